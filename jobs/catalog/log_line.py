"""A line of a log, and what it says without what was put before it on its way: colors, prefixes, times, levels.

    \\x1b[36m(PolicyActor pid=812, ip=10.0.0.5)\\x1b[0m [rank1]: MemoryError        Ray and torch
    (EngineCore_0 pid=812) ERROR 11-20 12:00:00 [core.py:700] MemoryError          vLLM
    2026-11-20 12:00:00,123 ERROR worker.py:42 -- MemoryError                      Ray's own
    2026-11-20 12:00:00.123 | ERROR | trainer:fit:42 - MemoryError                 loguru
    [2026-11-20 12:00:00,123][trainer][ERROR] - MemoryError                        Hydra
    E1120 12:00:00.123000 812 torch/x.py:42] MemoryError                           glog, torch
      | MemoryError                                                                Python, of one exception in a group

Patterns that are held against the beginning of a line are held against `said`. A level below ERROR stays in it, so
that what was only warned of does not look like the cause.
"""

import re
from dataclasses import dataclass

_COLOR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_RAY = re.compile(r"\((?:(?P<label>.{1,200}?) )?pid=\d+(?:, ip=[^)\s]*)?\) ?")
_RANK = re.compile(r"\[(?:rank|default)(?P<rank>\d+)\]: ?")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
_LEVEL = r"(?:ERROR|CRITICAL|FATAL)"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY_AND_TIME = rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"
_BEFORE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"[EF]\d{{4}} {_CLOCK} +\d+ \S+\] ",  # glog
        rf"{_LEVEL}:? (?:\d\d-\d\d {_CLOCK} )?(?:\[[\w./-]+:\d+\]|[\w./-]+:\d+\]) ",  # vLLM
        rf"{_DAY_AND_TIME} *\| *{_LEVEL} *\| *\S+ - ",  # loguru
        rf"\[?{_DAY_AND_TIME}\]?(?:\[[\w.-]+\])?:?\s*(?:-\s*)?",
        rf"\[?{_LEVEL}\]?:?\s+(?:-\s+)?(?:[\w./-]+:\d+ -- )?",
        r"\s*\| ",
    )
)
_MOST_PARTS = 8  # before a line, one after the other

LOST_NCCL = r"Watchdog caught collective operation timeout|ncclSystemError|ncclRemoteError|NCCL error|NCCL timeout"
LOST_GLOO = (
    r"(?i:gloo.*(?:timed? ?out|connection closed by peer|connection reset))|Timed out waiting \d+ms for"
    r"|Connection closed by peer \["
)
"""What the libraries between ranks say of a connection whose other end went away; those who are left say it."""

_LOST_PEER = re.compile(f"{LOST_NCCL}|{LOST_GLOO}")

_OF_PROFILER = re.compile(
    r"External init callback must run in same thread as registerClient"
    r"|USDT:\d{4}-\d\d-\d\d .* SyncActivityProfilerHandler\.cpp:\d+\] profiler_(?:start|stop)"
)
"""What Kineto, torch's profiler, writes of every capture on CPU; nothing is wrong then, whatever level it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedLine:
    """`label` is whose Ray says it is ("PolicyActor"), `rank` is torch's; `text` is the line without both and colors.

    `said` lacks time, level and place in the code, too.
    """

    label: str
    rank: int | None
    text: str
    said: str


def read_line(raw: str) -> ParsedLine:
    """Return the parts of a line; one that nobody put anything before is itself."""
    text = _REPEATED.sub("", uncolored(raw)).rstrip()
    label, rank = "", None
    for _part in range(_MOST_PARTS):
        if ray := _RAY.match(text):
            label, text = ray["label"] or label, text[ray.end() :]
        elif of_rank := _RANK.match(text):
            rank, text = int(of_rank["rank"]), text[of_rank.end() :]
        else:
            break
    said = text
    for _part in range(_MOST_PARTS):
        before = next((match for each in (*_BEFORE, _RAY, _RANK) if (match := each.match(said))), None)
        if before is None:
            break
        said = said[before.end() :]
    return ParsedLine(label=label, rank=rank, text=text, said=said)


def uncolored(text: str) -> str:
    """Return the text without a terminal's colors and other control sequences."""
    return _COLOR.sub("", text) if "\x1b" in text else text


def tells_of_lost_peer(text: str) -> bool:
    """Return True for the error of a rank that lost its connection to another one."""
    return _LOST_PEER.search(text) is not None


def is_of_profiler(text: str) -> bool:
    """Return True for a line that torch's profiler writes of a capture that goes well: it tells of no error."""
    return _OF_PROFILER.search(text) is not None
