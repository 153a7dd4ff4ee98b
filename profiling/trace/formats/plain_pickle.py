"""Pickles of plain values, of files that somebody brought.

A pickle is a program. This one may make dicts, lists, texts and numbers, and call nothing: every name that it looks up
is refused. It runs in Python's own machine, not in the one in C, because that one sets aside what a pickle only
announces.
"""

import pickle
from pathlib import Path
from typing import Any, NoReturn

from profiling.trace.limits import Unreadable

MOST_BYTES = 256 << 20


class _Plain(pickle._Unpickler):
    """Builds plain values. Raises: Unreadable for anything else."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """No name is looked up."""
        raise Unreadable(
            f"The file is refused: it is a pickle that asks for {module}.{name}, and such files ask for nothing."
        )

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ARG002
        """Nor is an object of another module."""
        raise Unreadable("The file is refused: it is a pickle that asks for objects of other modules.")


def is_pickle(head: bytes) -> bool:
    """Return True for the first bytes of a pickle of protocol 2 or newer."""
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def load(path: Path, *, title: str, advice: str) -> Any:
    """Return what a pickle holds. Raises: Unreadable, which calls it `title`, with `advice` where it is too large."""
    if path.stat().st_size > MOST_BYTES:
        raise Unreadable(f"The {title} is larger than {MOST_BYTES >> 20} MiB: {advice}.")
    try:
        with path.open("rb") as file:
            return _Plain(file).load()
    except Unreadable:
        raise
    except Exception as error:  # a machine that is fed nonsense fails in many ways
        raise Unreadable(f"The {title} is damaged: {type(error).__name__}: {str(error)[:200]}.") from error
