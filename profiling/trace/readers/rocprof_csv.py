"""Tables of AMD's rocprofv3 (`--output-format csv`): a file for kernels, copies, or calls of one interface each.

The tables of a process have names that begin alike, by default with its number (`4037_kernel_trace.csv`), and each
holds a part of what it did. A table of kernels names no process, and an agent by its number on the node, where CPUs
count as well; that number is shown as the device's. Counters stand in a row each, so a kernel that comes again with
another counter is one kernel, and they are among its details.
"""

import contextlib
import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from profiling.trace.formats.rocm import PART_OF, RocmTimeline
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_DETAILS = ("LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count")
_MOST_COUNTERS = 1000
"""Of a kernel; the rest of a hostile table is left out."""
_NAME = re.compile(
    r"(?:file-)?(?P<process>.*?)_?(?:kernel|memory_copy|memory_allocation|scratch_memory|"
    r"(?:hip|hsa|marker|rccl|rocdecode|rocjpeg|ompt)(?:_(?:core|compiler|runtime|amd_ext|image_ext|finalize_ext))?"
    r"(?:_api)?)_trace\b.*",
    re.I,
)
"""What rocprofv3 calls its tables, whatever stands before. Tables of counters are of runs of their own."""
_FIRST_LINE = re.compile(rb'\A(?:\xef\xbb\xbf)?[^\n]{0,2000}"?Start_Timestamp"?,"?End_Timestamp"?')


class RocprofCsvReader:
    """Reads one table."""

    name = "rocprof-csv"
    title = "a table of rocprofv3"
    suffixes = (".csv",)

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A first line that names both times."""
        return _FIRST_LINE.match(head) is not None

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the rows into a store. Raises: Unreadable for a table of something else."""
        timeline = RocmTimeline(writer, limits)
        named = _NAME.fullmatch(path.name)
        process = named["process"] if named else ""
        if named:
            writer.meta(PART_OF, process[:200])
        with UnpackedFile(path, limits=limits, progress=progress) as file:
            try:
                table = csv.DictReader(_lines(file))
                for row, counters in _with_counters(table):
                    _add(row, counters, timeline, pid=_number(row.get("Process_Id") or process))
                if "Counter_Name" in (table.fieldnames or ()):
                    writer.meta("clock", "none")
                    writer.note(
                        "info",
                        "Counters are read with one kernel after the other: how long each ran is known, what lies "
                        "between them says nothing of the program.",
                    )
            except csv.Error as error:
                writer.note("warning", f"The table ends here: {error}.")
            if file.problem:
                writer.note("warning", file.problem)
        timeline.finish()


def _lines(file: UnpackedFile) -> Iterator[str]:
    rest = b""
    while piece := file.read(1 << 20):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode("utf-8-sig", errors="replace") + "\n"
        if len(rest) > 1 << 20:
            raise Unreadable("A line of the table is longer than 1 MiB.")
    if rest:
        yield io.BytesIO(rest).getvalue().decode("utf-8-sig", errors="replace")


def _with_counters(rows: Iterable[Mapping[str, str]]) -> Iterator[tuple[Mapping[str, str], dict[str, float]]]:
    """Yield a row a kernel with its counters: rows that follow each other and differ in a counter alone are one."""
    for _, group in itertools.groupby(rows, _kernel_of):
        of_kernel = list(itertools.islice(group, _MOST_COUNTERS))
        yield of_kernel[0], dict(_counters(of_kernel))


def _kernel_of(row: Mapping[str, str]) -> object:
    """Return what the rows of one kernel have in common; of a table without counters each row is one."""
    if "Counter_Name" not in row:
        return object()
    return row.get("Agent_Id"), row.get("Dispatch_Id"), row.get("Start_Timestamp")


def _counters(rows: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, float]]:
    for row in rows:
        with contextlib.suppress(ValueError):
            if row.get("Counter_Name") and math.isfinite(value := float(row.get("Counter_Value") or "")):
                yield row["Counter_Name"], value


def _add(row: Mapping[str, str], counters: Mapping[str, float], timeline: RocmTimeline, *, pid: int) -> None:
    """Add a row; None and what is no number are left to be counted as unusable."""
    start, end = _integer(row.get("Start_Timestamp")), _integer(row.get("End_Timestamp"))
    correlation = _integer(row.get("Correlation_Id"))
    if row.get("Kernel_Name"):
        details: dict[str, object] = {
            what: [_number(row.get(f"{key}_Size_{axis}")) for axis in "XYZ"]
            for what, key in (("grid", "Grid"), ("block", "Workgroup"))
            if row.get(f"{key}_Size_X")
        }
        details |= {name: _number(row[name]) for name in _DETAILS if row.get(name)}
        details |= counters
        timeline.kernel(
            row["Kernel_Name"],
            start,
            end,
            pid=pid,
            device=_agent(row.get("Agent_Id")),
            stream=_number(row.get("Stream_Id")) if row.get("Stream_Id") else _number(row.get("Queue_Id")),
            correlation=correlation,
            details=details,
        )
    elif row.get("Direction"):
        agents = [row.get("Destination_Agent_Id"), row.get("Source_Agent_Id")]
        to_host = row["Direction"].endswith("TO_HOST")
        timeline.copy(
            row["Direction"],
            start,
            end,
            pid=pid,
            device=_agent(agents[1] if to_host else agents[0]),
            stream=_number(row.get("Stream_Id")),
            correlation=correlation,
            size=None,
        )
    else:
        timeline.call(
            row.get("Function") or row.get("Operation") or "",
            start,
            end,
            pid=pid,
            tid=_number(row.get("Thread_Id")),
            correlation=correlation,
            domain=row.get("Domain") or "",
        )


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _number(text: str | None) -> int:
    number = _integer(text)
    return -1 if number is None else number


def _agent(text: str | None) -> int:
    """Return the number of `Agent 4`, or of 4."""
    return _number((text or "").rpartition(" ")[2])


PLUGIN = RocprofCsvReader()
