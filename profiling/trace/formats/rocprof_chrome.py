"""Events of rocprof (version 1 and 2) in its JSON for Chrome, the `results.json` of `--hip-trace` or `--sys-trace`.

    {"ph": "X", "name": "gemm", "pid": "8", "tid": "1", "ts": "773902406300", "dur": "5", "args": {"dev-id": "2",
     "stream-id": "1", "queue-id": "0", "pid": "517", "tid": "517", "BeginNs": "...661", "EndNs": "...941", ...}}

The number of a process stands for a table: 0 ranges and marks, 1 copies, 2 calls of HIP, 3 calls of HSA, from 6 on GPUs
and from 518 on their barriers. The real one is among the arguments, which are texts, as are the exact times.

Source: rocprofiler, bin/tblextr.py; and a real trace.
"""

import re
from collections.abc import Mapping
from typing import Any

from profiling.trace.formats.rocm import RocmTimeline
from profiling.trace.limits import Limits
from profiling.trace.writer import StoreWriter

_MARKERS, _COPIES, _HSA, _BARRIERS = "0", "1", "3", 518
_NUMBER = re.compile(r"\d{1,18}")


class RocprofEvents:
    """Puts such events into a store, and knows their lanes."""

    def __init__(self, writer: StoreWriter, limits: Limits) -> None:
        self._timeline = RocmTimeline(writer, limits)
        self._lanes: dict[tuple[str, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def lane(self, event: Mapping[str, Any]) -> int | None:
        """Return the lane of the table and thread or stream that an end of an arrow names, None for none."""
        return self._lanes.get((str(event["pid"]), str(event["tid"])))

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event. Raises: KeyError, TypeError, ValueError for one that is none."""
        args, table, name = event["args"], str(event["pid"]), str(event["name"])
        start, end, pid = int(args["BeginNs"]), int(args["EndNs"]), _number(args.get("pid"))
        if "dev-id" in args:
            where: Any = {
                "pid": pid,
                "device": _number(args["dev-id"]),
                "stream": _number(args.get("stream-id", args.get("queue-id"))),
                "correlation": None,
            }
            if table == _COPIES or name.startswith("Copy"):
                lane = self._timeline.copy(_of_copy(name), start, end, size=None, **where)
            elif _number(table) >= _BARRIERS:
                return
            else:
                lane = self._timeline.kernel(name, start, end, details={}, **where)
        else:
            lane = self._timeline.call(
                name,
                start,
                end,
                pid=pid,
                tid=_number(event["tid"]),
                correlation=None,
                domain="MARKER" if table == _MARKERS else "",
                title="HSA" if table == _HSA else "",
            )
        self._lanes.setdefault((table, str(event["tid"])), lane)

    def finish(self) -> None:
        """Say what is to be said once all was added."""
        self._timeline.finish(tool="rocprof")


def _of_copy(name: str) -> str:
    """Return "HOST_TO_DEVICE" for "CopyHostToDevice"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("Copy")).upper()


def _number(value: object) -> int:
    text = str(value)
    return int(text) if _NUMBER.fullmatch(text) else -1
