"""An event of a Chrome trace as torch writes it, and what is taken of its parts."""

from typing import TypedDict

from profiling.trace import clock
from profiling.trace.formats.json_list import thousandfold

Id = int | str | None
"""Of a process, a thread, an arrow."""
Args = TypedDict(
    "Args",
    {
        "correlation": int,
        "External id": int,
        "external id": int,
        "device": int,
        "Device Id": int,
        "Device Type": int,
        "stream": int,
        "Stream Id": int,
        "bytes": int,
        "Total Allocated": float,
        "Total Reserved": float,
        "In msg nelems": int,
        "dtype": str,
        "name": str,
        "labels": str,
    },
    total=False,
)
"""Arguments of an event that are looked at; an event may have any others."""
NOTHING: Args = {}
EXACT = thousandfold("ts")
"""Where JsonList puts times of day."""


class TorchEvent(TypedDict, total=False):
    """Times in us. In somebody's file it may be anything: what fails is left out."""

    ph: str
    cat: str
    name: str
    id: int | str
    pid: int | str
    tid: int | str
    ts: float | str
    dur: float | str
    args: Args


def time_of(event: TorchEvent, base: int) -> int:
    """Return when an event is, in Unix ns; times of the file count from a base [Unix ns]."""
    exact = event.get(EXACT)
    return exact + base if isinstance(exact, int) else clock.of_microseconds(event["ts"], base)


def text_of(value: object) -> str:
    """Return an identifier as a text, "" if there is none."""
    return "" if value is None else str(value)[:200]


def number_of(value: Id) -> int:
    """Return an identifier as a number, -1 for a text that is none."""
    try:
        return -1 if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
