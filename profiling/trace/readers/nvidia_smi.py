"""Readings of nvidia-smi over time: the table of `--query-gpu`, and `dmon` with the time of day.

    timestamp, index, utilization.gpu [%], memory.used [MiB]
    2025/04/01 10:11:12.123, 0, 97 %, 70123 MiB

    #Date       Time        gpu    pwr     sm
    #YYYYMMDD   HH:MM:SS    Idx      W      %
     20250401   10:11:12      0    412     97

Each line is of one GPU and tells the time that its node's clock shows, without a zone.
"""

import re
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from profiling.trace.formats.text_lines import lines
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_TABLE = re.compile(
    rb"\A(?:\xef\xbb\xbf)?[^\n]{0,2000}\btimestamp\b(?=[^\n]{0,2000}[a-z]\.(?:gpu|memory|used|free|draw|sm|mem))"
)
_DMON = re.compile(rb"\A#[ \t]?Date,?[ \t]+Time,?[ \t]+gpu\b")
_TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y%m%d %H:%M:%S")
_NAMES_OF_A_GPU = ("index", "gpu", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
"""Columns that tell one GPU from another, the best first."""
_NO_READINGS = {
    *_NAMES_OF_A_GPU,
    "timestamp",
    "date",
    "time",
    "pci.device",
    "pci.bus",
    "count",
    "driver_version",
    "name",
}
_HEADER = re.compile(r"([\w.]+)\s*(?:\[([^\]]*)\])?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?= *(?:%|[A-Za-z/°]{1,8})? *$)")
_UNITS = {"MiB": ("B", 1 << 20), "KiB": ("B", 1 << 10), "MB": ("B", 1 << 20), "C": ("°C", 1)}
"""What a unit is kept as, and by what its numbers are multiplied; dmon says MB for MiB."""


class NvidiaSmiReader:
    """Reads readings of the GPUs of one node."""

    name = "nvidia-smi"
    title = "readings of nvidia-smi with their times"
    suffixes = (".csv", ".log", ".txt")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A table of a query that has a column of times, or lines of dmon that begin with a day."""
        return _TABLE.match(head) is not None or _DMON.match(head) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put each column of each GPU into a store as a series."""
        table: _Readings | None = None
        taken = unusable = 0
        with UnpackedFile(path, limits=limits, progress=progress) as file:
            for line in lines(file):
                text = line.lstrip("\ufeff").strip()
                if not text:
                    continue
                if table is None:
                    table = _Readings(text, writer)
                    continue
                if text.startswith("#"):
                    table.read_units(text)
                    continue
                num_readings = table.read(text)
                unusable += not num_readings
                taken += num_readings
                if taken > limits.samples:
                    break
            if file.problem:
                writer.note("warning", file.problem)
        if not taken:
            raise Unreadable(
                "No line of nvidia-smi's readings has a time and a number. Bring them as they were written."
            )
        if unusable:
            writer.note("warning", f"{unusable:,} lines were left out: no time, or no number.")
        writer.note("info", "The times are those of the node's clock, which tells no zone: they are read as UTC.")
        writer.meta("tool", "nvidia-smi")


class _Readings:
    """The columns of a table, and its lines."""

    def __init__(self, header: str, writer: StoreWriter) -> None:
        self._writer = writer
        self._has_commas = "," in header
        matches = [_HEADER.match(cell) for cell in self._cells(header.lstrip("# "))]
        self._names = [match[1].lower() if match else "" for match in matches]
        self._units = [(match[2] or "").strip() if match else "" for match in matches]
        self._of_gpu = next((self._names.index(name) for name in _NAMES_OF_A_GPU if name in self._names), -1)
        self._gpus: dict[str, int] = {}
        self._next = count()
        self._series: dict[tuple[int, int], tuple[int, int]] = {}

    def read_units(self, line: str) -> None:
        """Take in the units that stand below the names of columns, once."""
        if not any(self._units):
            cells = self._cells(line.lstrip("# "))
            self._units = [*cells, *[""] * len(self._names)][: len(self._names)]

    def read(self, line: str) -> int:
        """Add the numbers of a line; return how many they are."""
        cells = self._cells(line)
        at = self._time(cells)
        if at is None:
            return 0
        gpu, taken = self._gpu(cells), 0
        for i, (name, cell) in enumerate(zip(self._names, cells, strict=False)):
            number = None if not name or name in _NO_READINGS else _NUMBER.match(cell)
            if number is not None:
                series, factor = self._of(i, gpu, cell[number.end() :].strip())
                self._writer.count(series, at, float(number[0]) * factor)
                taken += 1
        return taken

    def _cells(self, line: str) -> list[str]:
        return [cell.strip() for cell in line.split(",")] if self._has_commas else line.split()

    def _time(self, cells: list[str]) -> int | None:
        """Return the time of a line in Unix ns, None where it has none."""
        places = [self._names.index(name) for name in ("timestamp", "date", "time") if name in self._names]
        text = " ".join(cells[place] for place in places if place < len(cells))
        for form in _TIMES:
            try:
                moment = datetime.strptime(text, form).replace(tzinfo=UTC)
            except ValueError:
                continue
            since = moment - datetime(1970, 1, 1, tzinfo=UTC)
            return max((since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000, 0) or None
        return None

    def _gpu(self, cells: list[str]) -> int:
        """Return the number of the GPU that a line is of, -1 where no column tells; of names in the order they come."""
        if not 0 <= self._of_gpu < len(cells):
            return -1
        name = cells[self._of_gpu]
        if name.isdecimal() and name.isascii() and len(name) < 6:
            return int(name)
        if name not in self._gpus and len(self._gpus) < 4096:
            self._gpus[name] = next(self._next)
        return self._gpus.get(name, -1)

    def _of(self, column: int, gpu: int, unit: str) -> tuple[int, int]:
        """Return the series of a column of a GPU, and by what its numbers are multiplied."""
        key = column, gpu
        if key not in self._series:
            label = self._units[column] or unit or ("C" if self._names[column].startswith("temperature.") else "")
            kept_as, factor = _UNITS.get(label, (label, 1))
            self._series[key] = self._writer.counter(self._names[column], kept_as, device=gpu), factor
        return self._series[key]


PLUGIN = NvidiaSmiReader()
