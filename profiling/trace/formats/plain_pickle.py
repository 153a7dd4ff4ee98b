"""Pickles of plain values, of files that somebody brought.

A pickle is a program. This one may make dicts, lists, texts and numbers, and call nothing: every name that it looks up
is refused. It runs in Python's own machine, not in the one in C, because that one sets aside what a pickle only
announces.

A pickle may also put one list into another many times over, so that a few hundred bytes stand for more values than can
ever be walked through. What it holds is counted as if nothing were shared, in the time that its own values take.
"""

import os
import pickle
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

from profiling.trace.limits import Unreadable

MOST_BYTES = 256 << 20
MOST_DEPTH = 64
_FREE_VALUES, _VALUES_A_BYTE, _MOST_VALUES = 1_000_000, 20, 1_000_000_000
"""A snapshot holds the stack of each allocation, some hundred values, and writes each stack once: for a file of so many
bytes that comes to five values a byte."""


_Machine: Any = pickle._Unpickler
"""Its instructions are methods, which nothing declares."""


class _Plain(_Machine):
    """Builds plain values. Raises: Unreadable for anything else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """No name is looked up."""
        raise Unreadable(
            f"The file is refused: it is a pickle that asks for {module}.{name}, and such files ask for nothing."
        )

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ARG002
        """Nor is an object of another module."""
        raise Unreadable("The file is refused: it is a pickle that asks for objects of other modules.")

    def load_setitem(self) -> None:
        """Put one value into a dict."""
        _check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        """Put the values since the last mark into a dict."""
        _check_keys(self.stack[::2])
        super().load_setitems()

    def load_dict(self) -> None:
        """Make a dict of the values since the last mark."""
        _check_keys(self.stack[::2])
        super().load_dict()

    def refuse_set(self) -> NoReturn:
        """No recorder writes sets, and what is in one is hashed, as keys are."""
        raise Unreadable("The file is refused: it is a pickle with sets, which no dump has.")

    dispatch = pickle._Unpickler.dispatch | {
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
        pickle.EMPTY_SET[0]: refuse_set,
        pickle.FROZENSET[0]: refuse_set,
    }


def _check_keys(keys: Sequence[object]) -> None:
    """Let texts and numbers pass: a tuple is hashed with all that is in it. Raises: Unreadable."""
    if not all(isinstance(key, (str, bytes, int, float, type(None))) for key in keys):
        raise Unreadable("The file is refused: it is a pickle with keys that are neither texts nor numbers.")


def check_size(value: object, *, most_values: int, most_depth: int = MOST_DEPTH) -> None:
    """Refuse what holds more values, or deeper ones, than anybody should walk through.

    A list that stands in several places counts in each, though it is looked into once. Raises: Unreadable.
    """
    by_id: dict[int, tuple[int, int]] = {}  # of each list, dict or tuple: values in it, levels below it
    begun: set[int] = set()
    ahead = [value]
    while ahead:
        held = ahead[-1]
        inner = _inner(held)
        if inner is None or id(held) in by_id:
            ahead.pop()
            continue
        if id(held) not in begun:
            begun.add(id(held))
            unby_id = [each for each in inner if _inner(each) is not None and id(each) not in by_id]
            if any(id(each) in begun for each in unby_id):
                raise Unreadable("The file is refused: it is a pickle in which a list is part of itself.")
            ahead += unby_id
            continue
        ahead.pop()
        parts = [by_id[id(each)] for each in inner if _inner(each) is not None]
        count = 1 + len(inner) + sum(part[0] for part in parts)
        depth = 1 + max((part[1] for part in parts), default=0)
        if count > most_values or depth > most_depth:
            text = f"The file is refused: it is a pickle of more than {most_values:,} values, or {most_depth} levels."
            raise Unreadable(text)
        by_id[id(held)] = count, depth


def _inner(value: object) -> Collection[object] | None:
    """Return what a list, tuple or dict holds; keys are plain. None for what holds nothing."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else None


def text(value: object, most: int) -> str:
    """Return a text or number as a text of at most so many characters; "" for anything else.

    A list would be written out whole first, with whatever stands in it over and over.
    """
    if isinstance(value, str):
        return value[:most]
    return str(value)[:most] if isinstance(value, (int, float)) and abs(value) < 1 << 64 else ""


def is_pickle(head: bytes) -> bool:
    """Return True for the first bytes of a pickle of protocol 2 or newer."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def load(path: Path, *, title: str, advice: str) -> Any:
    """Return what a pickle holds. Raises: Unreadable, which calls it `title`, with `advice` where it is too large."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise Unreadable(f"The {title} is larger than {MOST_BYTES >> 20} MiB: {advice}.")
    try:
        with path.open("rb") as file:
            value = _Plain(file).load()
        check_size(value, most_values=min(max(_FREE_VALUES, _VALUES_A_BYTE * size), _MOST_VALUES))
    except Unreadable:
        raise
    except Exception as error:  # a machine that is fed nonsense fails in many ways
        if _is_cut_off(path):
            raise Unreadable(
                f"The {title} is cut off: it ends after {size / (1 << 20):,.1f} MiB in the middle of a value. "
                "Copy it again once it is written."
            ) from error
        raise Unreadable(f"The {title} is damaged: {type(error).__name__}: {str(error)[:200]}.") from error
    return value


def _is_cut_off(path: Path) -> bool:
    """Return True if a pickle lacks its end: whatever it holds, its last byte is the instruction to stop."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != pickle.STOP
