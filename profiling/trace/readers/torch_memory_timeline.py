"""Memory timelines of torch, raw: `profile.export_memory_timeline("x.raw.json.gz")`.

A list of [time in ns, action, bytes, category]. Bytes are signed: what a tensor's new version moves to another category
is told as two changes. Time -1 is what was there before. Numbers of actions and categories are those of
torch.profiler._memory_profiler.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

CATEGORIES = ("weights", "optimizer", "inputs", "temporary", "activations", "gradients", "autograd", "unknown")
"""In torch's order: parameter, optimizer state, input, temporary, activation, gradient, autograd detail, none."""
_FIRST_ROW = re.compile(rb"\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]")
_MOST_BYTES = 512 << 20


class MemoryTimelineReader:
    """Reads one timeline, of one device."""

    name = "torch-memory-timeline"
    title = "a raw memory timeline of torch"
    suffixes = (".raw.json", ".raw.json.gz", ".raw.gz")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A list of rows of four numbers."""
        return _FIRST_ROW.match(head.lstrip()) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put what each category held, and all together, into a store. Raises: Unreadable."""
        with UnpackedFile(path, limits=limits, progress=progress) as file:
            text = file.read(_MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise Unreadable(f"The timeline is longer than {_MOST_BYTES >> 20} MiB, which is the most.")
            if file.problem:
                writer.note("warning", file.problem)
        rows, unusable = _rows(text, writer)
        if not rows:
            return
        rows.sort(key=lambda row: row[0])  # what was there before comes first
        first = next((row[0] for row in rows if row[0] > 0), 0)
        series = [writer.counter(name, "B", device=0) for name in CATEGORIES]
        whole = writer.counter("allocated", "B", device=0)
        held = [0] * len(CATEGORIES)
        for moment, changes in itertools.groupby(rows, lambda row: max(row[0], first)):
            changed = set()
            for _, size, category in changes:
                held[category] += size
                changed.add(category)
            for category in changed:
                writer.count(series[category], moment, held[category])
            writer.count(whole, moment, sum(held))
        writer.meta("tool", "torch")
        writer.note("info", "A memory timeline does not say of which device it is; it is shown as device 0.")
        if unusable:
            writer.note("warning", f"{unusable:,} rows were left out: not four numbers.")


def _rows(text: bytes, writer: StoreWriter) -> tuple[list[tuple[int, int, int]], int]:
    """Return (time, bytes, category) of each row, and how many rows are none."""
    try:
        parsed: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        end = text.rfind(b"]")
        try:
            parsed = orjson.loads(text[: end + 1] + b"]")
        except orjson.JSONDecodeError as error:
            raise Unreadable(f"The timeline is damaged: {error}.") from error
        writer.note("warning", "The file is cut off; what comes after that is missing.")
    rows = []
    for row in parsed:
        if isinstance(row, list) and len(row) == 4 and all(type(value) is int for value in row) and 0 <= row[3] <= 7:
            rows.append((row[0], row[2], row[3]))
    return rows, len(parsed) - len(rows)


PLUGIN = MemoryTimelineReader()
