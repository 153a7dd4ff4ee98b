"""Logs of NCCL: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL, with times (NCCL_DEBUG_TIMESTAMP_LEVELS=ALL, NCCL 2.26).

A line tells that a collective was called, with its size, not how long it took: calls are moments. A line without a time
has no place on the clock and is only counted.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

import orjson

from profiling.trace.category import Category
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_LINE = re.compile(
    r"^(?:\[(?P<day>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d(?:[.,]\d+)?)\]\s*)?"
    r"(?P<host>[\w.-]+):(?P<pid>\d+):(?P<tid>\d+)\s+(?:\[(?P<device>\d+)\]\s+)?"
    r"NCCL (?P<level>INFO|WARN)\s+(?P<text>.*)$"
)
_CALL = re.compile(
    r"^(?P<name>[A-Z]\w+): opCount [0-9a-f]+ .*?\bcount (?P<count>\d+) datatype (?P<type>\d+)(?P<rest>.*)$"
)
_FACT = re.compile(r"\b(op|root|comm|nranks|stream)[ =]([^\s\]]+)")
_VERSION = re.compile(r"NCCL version (\S+)")
_SIZES = {0: 1, 1: 1, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 1, 11: 1}
"""Bytes of ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, two of fp8."""
_LONGEST_LINE = 1 << 16


class NcclLogReader:
    """Reads the log of one or several ranks."""

    name = "nccl-log"
    title = "a log of NCCL"
    suffixes = (".log", ".txt")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """Text with lines of NCCL."""
        return b" NCCL INFO " in head or b" NCCL WARN " in head

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put calls of collectives into a store, warnings into its notes. Raises: Unreadable where no time is told."""
        calls, untimed, left_out, version = 0, 0, 0, ""
        with UnpackedFile(path, limits=limits, progress=progress) as file:
            rest = b""
            while True:
                piece = file.read(1 << 20)
                *whole, rest = (rest + piece).split(b"\n") if piece else (rest, b"")
                for raw in whole:
                    line = _LINE.match(raw[:_LONGEST_LINE].decode(errors="replace"))
                    if line is None:
                        continue
                    if line["level"] == "WARN":
                        writer.note("warning", f"NCCL on {line['host']}: {line['text'][:400]}")
                    elif match := _VERSION.search(line["text"]):
                        version = match[1]
                    elif call := _CALL.match(line["text"]):
                        calls += 1
                        if line["day"] is None:
                            untimed += 1
                        elif writer.events < limits.events:
                            _add(line, call, writer)
                        else:
                            left_out += 1
                rest = rest[-_LONGEST_LINE:]
                if not piece:
                    break
            if file.problem:
                writer.note("warning", file.problem)
        if calls == 0:
            raise Unreadable("The log names no collective: set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL.")
        if untimed == calls:
            raise Unreadable(
                f"The log tells of {calls:,} collectives, but not when: set NCCL_DEBUG_TIMESTAMP_LEVELS=ALL "
                "(NCCL 2.26 or newer)."
            )
        if left_out:
            writer.note("warning", f"Only the first {writer.events:,} calls were read; the rest is left out.")
        if untimed:
            writer.note("warning", f"{untimed:,} collectives were left out: no time stands on the line.")
        writer.note(
            "info", "A log of NCCL tells when a collective was called, not how long it took. Its times are read as UTC."
        )
        writer.meta("tool", "nccl")
        writer.meta("tool_version", version)


def _add(line: "re.Match[str]", call: "re.Match[str]", writer: StoreWriter) -> None:
    """Add one call."""
    moment = datetime.fromisoformat(f"{line['day']}T{line['time'].replace(',', '.')[:15]}").replace(tzinfo=UTC)
    at = round(moment.timestamp()) * 10**9 if not moment.microsecond else round(moment.timestamp() * 1e6) * 1000
    device = int(line["device"]) if line["device"] and len(line["device"]) < 6 else -1
    lane = writer.lane(
        "thread",
        process=line["host"],
        pid=int(line["pid"]),
        tid=int(line["tid"]),
        thread="",
        device=device,
        title="NCCL calls",
    )
    size = int(call["count"]) * _SIZES.get(int(call["type"]), 0)
    if size < 1 << 62:
        details = {"count": call["count"], **dict(_FACT.findall(call["rest"]))}
        info = writer.info(orjson.dumps(details).decode())
        writer.add(lane, at, 0, writer.name(f"nccl{call['name']}"), Category.RANGE, bytes=size, info=info)


PLUGIN = NcclLogReader()
