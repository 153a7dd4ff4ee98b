"""What an import takes at most, and the refusal of a file. Trace files are uploaded, so they may be hostile."""

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[float], None]
"""Told how far an import is, 0 to 1."""


class Unreadable(ValueError):
    """The file cannot be imported; the sentence says why, and what can be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one import.

    events        read at most; the rest of the trace is left out, with a note
    samples       of counters, likewise
    unpacked      bytes that a packed file may unpack to
    ratio         unpacked bytes per packed byte: JSON of traces packs to a tenth or a thirtieth
    """

    events: int = 30_000_000
    samples: int = 30_000_000
    unpacked: int = 32 << 30
    ratio: int = 250


DEFAULT = Limits()
