"""Tables of Nsight Compute: `ncu --csv` and `ncu --import x.ncu-rep --csv`, of any page that tells of single kernels.

Two forms. Wide (`--page raw`): a row a kernel, a column a metric, and a row of units below the head. Long (`--page
details`, and `--metrics ...`): a row a metric, by its name or by what people call it. Versions differ in columns and
names of units. Thousands and decimals are separated as the language of the machine does.

A table has no clock: ncu runs kernels one by one, several times each. They are laid one after another from ORIGIN on.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from profiling.trace.category import of_kernel
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

ORIGIN = 946_684_800 * 10**9
"""2000-01-01 in Unix ns."""

_HEAD = re.compile(rb'(?:^|[,"\n])(?:Kernel|Function) Name"?,', re.M)
_METRIC = re.compile(rb"Metric Name|(?:gpu|sm|launch|dram|smsp)__\w+")
_EUROPEAN = re.compile(r"^-?[\d.]*\d,(?:\d{1,2}|\d{4,})$|^-?\d{1,3}(?:\.\d{3})+,\d+$|^-?\d{1,3}(?:\.\d{3}){2,}$")
_UNITS = {
    "nsecond": 1, "ns": 1, "usecond": 10**3, "us": 10**3, "µs": 10**3, "μs": 10**3, "msecond": 10**6, "ms": 10**6,
    "second": 10**9, "sec": 10**9, "s": 10**9, "byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9,
}  # fmt: skip
"""To ns and bytes; whatever else is taken as it stands."""
_DURATION = "duration"
_KEYS = {
    "gpu__time_duration.sum": _DURATION,
    "gpu__time_duration.avg": _DURATION,
    "gpu__time_duration.max": _DURATION,
    "Duration": _DURATION,
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy %",
    "Achieved Occupancy": "achieved occupancy %",
    "sm__maximum_warps_per_active_cycle_pct": "theoretical occupancy %",
    "Theoretical Occupancy": "theoretical occupancy %",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "SM throughput %",
    "Compute (SM) Throughput": "SM throughput %",
    "SM [%]": "SM throughput %",
    "SOL SM": "SM throughput %",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "memory throughput %",
    "Memory Throughput": "memory throughput %",
    "Memory [%]": "memory throughput %",
    "SOL Memory": "memory throughput %",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": "DRAM throughput %",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM throughput %",
    "DRAM Throughput": "DRAM throughput %",
    "SOL FB": "DRAM throughput %",
    "dram__bytes.sum": "DRAM bytes",
    "dram__bytes_read.sum": "DRAM bytes read",
    "dram__bytes_write.sum": "DRAM bytes written",
    "launch__registers_per_thread": "registersPerThread",
    "Registers Per Thread": "registersPerThread",
    "launch__shared_mem_per_block_static": "staticSharedMemory",
    "Static Shared Memory Per Block": "staticSharedMemory",
    "launch__shared_mem_per_block_dynamic": "dynamicSharedMemory",
    "Dynamic Shared Memory Per Block": "dynamicSharedMemory",
    "launch__waves_per_multiprocessor": "waves per SM",
    "Waves Per SM": "waves per SM",
} | {f"launch__{what}_dim_{axis}": f"{what} {axis}" for what in ("grid", "block") for axis in "xyz"}
"""Metrics that are kept, and as what. What people call a throughput may be in % or in bytes per second."""


class NcuCsvReader:
    """Reads one table."""

    name = "ncu-csv"
    title = "a table of Nsight Compute"
    suffixes = (".csv",)

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Text with a head that names kernels and metrics; what the profiled program printed may stand above it."""
        return _HEAD.search(head) is not None and _METRIC.search(head) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put each kernel into a store, in the order in which they ran. Raises: Unreadable."""
        table = _Table(path, limits)
        is_european = any(_EUROPEAN.match(value) for kernel in table.kernels() for _, value, _ in kernel.metrics)
        at, untimed, timed = ORIGIN, 0, 0
        for kernel in table.kernels(progress):
            if writer.events >= limits.events:
                writer.note("warning", f"Only the first {writer.events:,} kernels were read; the rest is left out.")
                break
            timed += 1
            lasts = _add(kernel, at, writer, is_european=is_european)
            at += lasts or 0
            untimed += lasts is None
        if not timed:
            raise Unreadable("The table holds no kernel: ncu may have profiled none.")
        if untimed == timed:
            raise Unreadable(
                f"The table names {timed:,} kernels, but not how long they took: profile with a set that has "
                "gpu__time_duration, such as --set basic."
            )
        if untimed:
            writer.note("warning", f"{untimed:,} kernels were left out: the table does not say how long they took.")
        if table.problem:
            writer.note("warning", table.problem)
        writer.meta("clock", "none")
        writer.meta("tool", "ncu")
        writer.note(
            "info",
            "Nsight Compute tells how long kernels ran, not when: they are laid one after another, from 2000-01-01 on. "
            "What lies between kernels, how busy the device was and what overlaps is not known.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """One kernel of a table: properties by column, and metrics as (name, value, unit)."""

    about: dict[str, str]
    metrics: list[tuple[str, str, str]] = field(default_factory=list)


class _Table:
    """A file while it is read. `problem` says, once all was read, why the end is missing."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.problem = ""
        self._path = path
        self._limits = limits

    def kernels(self, progress: Progress = lambda _: None) -> Iterator[_Kernel]:
        """Yield the kernels, in the order of the table. Raises: Unreadable for a table of something else."""
        with UnpackedFile(self._path, limits=self._limits, progress=progress) as file:
            rows = self._rows(file)
            head = next((row for row in rows if "Kernel Name" in row or "Function Name" in row), None)
            if head is None:
                return
            if "Invocations" in head or "Minimum" in head:
                raise Unreadable("The table sums up kernels of one name: make it without --print-summary.")
            columns = [name.strip() for name in head]
            yield from _long(columns, rows) if "Metric Name" in columns else _wide(columns, rows)

    def _rows(self, file: UnpackedFile) -> Iterator[list[str]]:
        """Yield the rows of the file as far as it is a table."""
        try:
            yield from csv.reader(_lines(file))
            self.problem = file.problem
        except csv.Error as error:
            self.problem = f"The table is cut off or damaged ({error}); what comes after that is missing."


def _lines(file: UnpackedFile) -> Iterator[str]:
    """Yield the lines of a text, and parts of what is longer than any."""
    rest = b""
    while piece := file.read(1 << 20):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("utf-8-sig", errors="replace") + "\n"
        if len(rest) > 1 << 20:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode("utf-8-sig", errors="replace")


def _long(columns: list[str], rows: Iterator[list[str]]) -> Iterator[_Kernel]:
    """Yield kernels of a table with a row a metric; those of one kernel follow each other."""
    current: _Kernel | None = None
    for row in rows:
        about = dict(zip(columns, row, strict=False))
        metric, value = about.get("Metric Name", ""), about.get("Metric Value", "")
        if metric == "Metric Name" or not about.get("Kernel Name", about.get("Function Name")):
            continue  # the head once more, and what the program printed in between
        key = ("ID", "Process ID", "Kernel Name", "Function Name")
        if current is None or any(current.about.get(name) != about.get(name) for name in key):
            if current is not None:
                yield current
            current = _Kernel(about={name: text for name, text in about.items() if not name.startswith("Rule ")})
        if metric in _KEYS:
            current.metrics.append((metric, value, about.get("Metric Unit", "")))
    if current is not None:
        yield current


def _wide(columns: list[str], rows: Iterator[list[str]]) -> Iterator[_Kernel]:
    """Yield kernels of a table with a column a metric. Units stand in a row of their own, or beside the names."""
    names, units = [], []
    for column in columns:
        name, _, unit = column.removesuffix("]").rpartition(" [")
        has_unit = column not in _KEYS and column.endswith("]") and bool(name.strip())
        names.append(name if has_unit else column)
        units.append(unit if has_unit else "")
    wanted = [i for i, name in enumerate(names) if name in _KEYS]
    for row in rows:
        about = dict(zip(names, row, strict=False))
        if "Kernel Name" in row or "Function Name" in row:
            continue
        if not about.get("Kernel Name", about.get("Function Name")):
            if len(row) == len(names):
                units = [unit or old for unit, old in zip(row, units, strict=True)]
            continue
        metrics = [(names[i], row[i], units[i]) for i in wanted if i < len(row) and row[i]]
        yield _Kernel(about=about, metrics=metrics)


def _add(kernel: _Kernel, at: int, writer: StoreWriter, *, is_european: bool) -> int | None:
    """Add one kernel and return how long it took [ns]; None if the table does not say."""
    values: dict[str, float] = {}
    for metric, text, unit in kernel.metrics:
        key, value = _KEYS[metric], _number(text, is_european=is_european)
        if value is None or (key.endswith("%") and unit not in ("%", "")) or key in values:
            continue
        values[key] = value * _UNITS.get(unit.partition("/")[0], 1)
    lasts = values.pop(_DURATION, None)
    if lasts is None or not 0 <= lasts < 1 << 62:
        return None
    about = kernel.about
    details: dict[str, object] = {}
    for what in ("grid", "block"):
        sizes = re.findall(r"\d{1,10}", about.get(f"{what.title()} Size", ""))[:3]
        dims = [values.pop(f"{what} {axis}", None) for axis in "xyz"]
        if sizes:
            details[what] = [int(size) for size in sizes]
        elif None not in dims:
            details[what] = [round(size) for size in dims if size is not None]
    details |= {key: round(value) if value == round(value) else value for key, value in values.items()}
    details |= {"launched": about["Kernel Time"][:40]} if about.get("Kernel Time") else {}
    name = about.get("Kernel Name") or about["Function Name"]
    lane = writer.lane(
        "stream",
        process=about.get("Process Name", ""),
        pid=_integer(about.get("Process ID", "")),
        device=max(_integer(about.get("Device", "")), 0),
        stream=_integer(about.get("Stream", "")),
    )
    info = writer.info(orjson.dumps(details).decode())
    writer.add(lane, at, round(lasts), writer.name(name), of_kernel(name), info=info)
    return round(lasts)


def _number(text: str, *, is_european: bool) -> float | None:
    """Return a number as the machine's language writes it: 1,205.50 or 1.205,50; None for a text that is none."""
    marks = (".", ",") if is_european else (",", ".")
    plain = text.strip().replace(marks[0], "").replace(marks[1], ".")
    if len(plain) > 40 or not re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?", plain, re.I):
        return None
    value = float(plain)
    return value if abs(value) < 1e300 else None


def _integer(text: str) -> int:
    """Return a whole number of a text, -1 if it is none."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1


PLUGIN = NcuCsvReader()
