"""What AMD's recorders write, whichever file: kernels, copies and calls in ns of the machine's clock.

That clock counts from the start of the machine, so a file cannot be laid beside one of another tool. A correlation id
joins a call with what it started; it is counted by process.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from profiling.trace.category import Category, of_kernel, of_range
from profiling.trace.lanes import of_stream
from profiling.trace.limits import Limits
from profiling.trace.writer import StoreWriter

Correlation = TypeVar("Correlation", int, npt.NDArray[np.int64])
_WAITS = ("Synchronize", "hsa_signal_wait", "hsa_amd_signal_wait", "WithStream")
CORRELATIONS = 1 << 40
"""Correlation ids are smaller: above them a link has its process."""
PART_OF = "part_of"
"""The fact of a store that holds a part of one process: what tells the process among the files of a recording."""


def link_of(pid: int, correlation: Correlation) -> Correlation:
    """Return the link of events with a correlation id, or with several of them: it is counted by process."""
    return (pid % (1 << 22)) * CORRELATIONS + correlation


class RocmTimeline:
    """Puts events into a store as long as there is room; what cannot be is counted and told at the end."""

    def __init__(self, writer: StoreWriter, limits: Limits) -> None:
        self._writer = writer
        self._most = limits.events
        self._unusable = 0
        self._cut = False

    def kernel(
        self,
        name: str,
        start: object,
        end: object,
        *,
        pid: int,
        device: int,
        stream: int,
        correlation: object,
        details: Mapping[str, object],
        process: str = "",
    ) -> int:
        """Add a kernel on a queue or stream of a device; return its lane."""
        text = name.removesuffix(".kd")
        category = Category.COPY if "rocclr_copyBuffer" in text else of_kernel(text)
        if "rocclr_fillBuffer" in text or text == "FillBuffer":
            category = Category.MEMSET
        lane = self._writer.lane("stream", process=process, pid=pid, device=device, stream=stream)
        self._add(lane, start, end, text, category, correlation, pid, details)
        return lane

    def copy(
        self,
        name: str,
        start: object,
        end: object,
        *,
        pid: int,
        device: int,
        stream: int,
        correlation: object,
        size: object,
        process: str = "",
    ) -> int:
        """Add a copy, `size` in bytes where that is known, on the device that takes part in it; return its lane."""
        title = of_stream("copies", stream)
        lane = self._writer.lane("stream", process=process, pid=pid, device=device, stream=stream, title=title)
        num_bytes = size if isinstance(size, int) and 0 <= size < 1 << 62 else 0
        text = name.removeprefix("MEMORY_COPY_").replace("_", " ").lower()
        self._add(lane, start, end, f"copy {text}", Category.COPY, correlation, pid, {}, num_bytes=num_bytes)
        return lane

    def call(
        self,
        name: str,
        start: object,
        end: object,
        *,
        pid: int,
        tid: int,
        correlation: object,
        domain: str,
        process: str = "",
        category: Category | None = None,
        title: str = "",
    ) -> int:
        """Add a call of HIP, HSA or RCCL, or a range that somebody marked (`domain` MARKER...); return its lane, one of
        several of a thread where there are titles.

        What it is, `category`, is told by its name where the recorder does not say.
        """
        lane = self._writer.lane("thread", process=process, pid=pid, thread=f"thread {tid}", tid=tid, title=title)
        if category is None:
            of_call = Category.SYNC if any(wait in name for wait in _WAITS) else Category.RUNTIME
            category = of_range(name) if domain.upper().startswith("MARKER") else of_call
        self._add(lane, start, end, name, category, correlation, pid, {})
        return lane

    def finish(self, *, tool: str = "rocprofv3") -> None:
        """Say what is to be said once all was added."""
        writer = self._writer
        writer.meta("tool", tool)
        writer.note("info", "Times count from the start of the machine: they are not those of the clock.")
        if self._unusable:
            writer.note("warning", f"{self._unusable:,} rows were left out: a time is missing or is none.")
        if self._cut:
            writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")

    def _add(
        self,
        lane: int,
        start: object,
        end: object,
        name: str,
        category: Category,
        correlation: object,
        pid: int,
        details: Mapping[str, object],
        *,
        num_bytes: int = 0,
    ) -> None:
        writer = self._writer
        if writer.events >= self._most:
            self._cut = True
            return
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end or not name:
            self._unusable += 1
            return
        link = 0
        if isinstance(correlation, int) and 0 < correlation < CORRELATIONS:
            link = link_of(pid, correlation)
        info = writer.info(orjson.dumps(dict(details)).decode()) if details else 0
        try:
            writer.add(lane, start, end - start, writer.name(name), category, link=link, bytes=num_bytes, info=info)
        except OverflowError:
            self._unusable += 1
