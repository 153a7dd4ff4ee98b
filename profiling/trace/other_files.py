"""What a file is that no reader takes, in a sentence: by a table of its first bytes, or by what they look like."""

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import orjson

from profiling.trace.formats.sqlite_tables import MAGIC

_MOST_KEYS = 6
_LONGEST_LIST = 60_000
_PRINTABLE = frozenset(range(32, 127)) | {9, 10, 13}


def told_of(head: bytes, tables: Sequence[str] = ()) -> str:
    """Return what a file is and what to bring instead, by its first bytes, and of a database by the names of its
    tables, which may stand anywhere in it; "" if nothing is known of it.
    """
    listed = "".join(f"CREATE TABLE {name}\n" for name in tables)[:_LONGEST_LIST].encode(errors="replace")
    for begins, is_a, instead in _table():
        if begins.search(head) or (listed and begins.search(MAGIC + listed)):
            return f"The file is {is_a}. {instead}"
    return ""


def looks_like(head: bytes, tables: Sequence[str] = ()) -> str:
    """Return what the first bytes of an unknown file look like, and a database by the names of its tables."""
    if head.startswith(MAGIC):
        names = ", ".join(f'"{name[:40]}"' for name in tables[:_MOST_KEYS])
        return f"an SQLite database with the tables {names}" if names else "an SQLite database"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"{", b"[")):
        keys = _first_keys(text)
        return f"JSON with {', '.join(keys)}" if keys else "JSON"
    if head.startswith(b"\x80") and b"." in head:
        return "a pickle of Python"
    share = sum(byte in _PRINTABLE for byte in head[:4096]) / max(len(head[:4096]), 1)
    return "text" if share > 0.95 else "binary data"


def _first_keys(text: bytes) -> list[str]:
    """Return the first keys of a JSON object, as they stand on its first level."""
    try:
        parsed = orjson.loads(text)
        return [f'"{key[:40]}"' for key in list(parsed)[:_MOST_KEYS]] if isinstance(parsed, dict) else []
    except orjson.JSONDecodeError:  # it is longer than the head
        keys = re.findall(rb'[{,]\s*"([^"\\]{1,40})"\s*:', text[:4096])
        return [f'"{key.decode(errors="replace")}"' for key in dict.fromkeys(keys[:_MOST_KEYS])]


@cache
def _table() -> list[tuple[re.Pattern[bytes], str, str]]:
    parsed = tomllib.loads((files("profiling.trace") / "other_files.toml").read_text(encoding="utf-8"))
    return [
        (re.compile(b"(?s)" + one["begins"].encode("latin-1")), str(one["is"]), str(one["instead"]))
        for one in parsed.values()
    ]
