"""Dumps of torch's flight recorder: the newest collectives of one rank, as a pickle or as JSON.

`torch._C._distributed_c10d._dump_fr_trace()` and `..._dump_fr_trace_json()`, or the files that torch writes by itself
when a collective runs into its time-out; recorded where TORCH_FR_BUFFER_SIZE is set. A dump has no moment of its own,
and does not name its rank: `dumped_at_ns` and `rank` beside its keys say both, else the rank is the number at the end
of the file's name, as torch writes it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

import orjson

from profiling.trace.category import Category
from profiling.trace.formats import plain_pickle
from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_ENTRY, _KEYS = b"collective_seq_id", (b"pg_status", b"pg_config")
_MOST_JSON = 64 << 20
_MOST_ENTRIES = 100_000
_MOST_GROUPS = 1000
_MOST_RANKS = 100_000
"""Of all groups: whoever opens the store reads them."""
_MOST_NAME = 1000
_RANK = re.compile(r"(\d{1,6})(?:\.[a-z]+)*$", re.I)
_PLUMBING = ("torch/", "/torch/", "<string>", "threading.py", "<frozen")
_WIDTHS = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
    "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8,
}  # fmt: skip


class _Group(TypedDict, total=False):
    """What is known of a process group; the numbers are those of its last collectives, -1 where the dump tells none."""

    about: str
    ranks: list[int]
    enqueued: int
    started: int
    completed: int


class FlightRecorderReader:
    """Reads the dump of one rank."""

    name = "flight-recorder"
    title = "a dump of torch's flight recorder"
    suffixes = (".fr.json", ".fr.pickle")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A pickle or an object of JSON with the keys of a dump; a trace tells of its groups, too."""
        is_one = plain_pickle.is_pickle(head) or head.lstrip()[:1] == b"{"
        has_keys = _ENTRY in head or all(key in head for key in _KEYS)
        return is_one and has_keys and b'"traceEvents"' not in head

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put each collective into a store, on a lane of its process group. Raises: Unreadable."""
        dump = _loaded(path, limits, progress)
        if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
            raise Unreadable("The file is no dump of a flight recorder: it has no list of entries.")
        groups = _groups(dump)
        entries = [each for each in _dicts(dump["entries"]) if _moment(each.get("time_created_ns"))]
        most = min(_MOST_ENTRIES, limits.events)
        if len(entries) > most:
            writer.note("warning", f"Only the newest {most:,} of {len(entries):,} collectives were read.")
            entries = entries[-most:]
        if not entries:
            raise Unreadable("The dump holds no collective. Set TORCH_FR_BUFFER_SIZE=2000 before the processes start.")
        told_at = _moment(dump.get("dumped_at_ns"))
        until = told_at or max(max(_times(entry)) for entry in entries)
        rank = dump.get("rank")
        match = _RANK.search(path.name)
        number = rank if _is_rank(rank) else int(match[1]) if match else None
        if number is not None:
            writer.meta("rank", number)
        for entry in entries:
            _add(entry, until, groups, writer, process="" if number is None else f"rank {number}")
        writer.meta("flight", {"dumped_at": told_at, "groups": groups})
        writer.meta("tool", "torch flight recorder")
        writer.meta("tool_version", plain_pickle.text(dump.get("version"), 100))
        writer.note(
            "info",
            "A flight recorder tells when a collective was called. It ends when torch noticed that, or at the last "
            "moment of the dump where it had not; a collective that ended unnoticed is a moment.",
        )


def _loaded(path: Path, limits: Limits, progress: Progress) -> object:
    """Return what the file holds. Raises: Unreadable."""
    with path.open("rb") as file:
        begin = file.read(2)
    if plain_pickle.is_pickle(begin):
        return plain_pickle.load(path, title="dump", advice="record it with a smaller TORCH_FR_BUFFER_SIZE")
    with UnpackedFile(path, limits=limits, progress=progress) as unpacked:
        text = unpacked.read(_MOST_JSON + 1)
        if len(text) > _MOST_JSON:
            raise Unreadable(f"The dump is longer than {_MOST_JSON >> 20} MiB, which is the most.")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"The dump is damaged or cut off: {error}.") from error


def _groups(dump: Mapping[str, object]) -> dict[str, _Group]:
    """Return what is known of each process group by its name."""
    groups: dict[str, _Group] = {}
    status, config = dump.get("pg_status"), dump.get("pg_config")
    room = _MOST_RANKS
    for name, about in list(config.items() if isinstance(config, dict) else ())[:_MOST_GROUPS]:
        if isinstance(about, dict):
            ranks = _ranks(about.get("ranks"))
            ranks = ranks if len(ranks) <= room else []
            room -= len(ranks)
            groups[plain_pickle.text(name, 100)] = {"about": plain_pickle.text(about.get("desc"), 200), "ranks": ranks}
    for name, about in list(status.items() if isinstance(status, dict) else ())[:_MOST_GROUPS]:
        if isinstance(about, dict):
            group = groups.setdefault(plain_pickle.text(name, 100), {"about": "", "ranks": []})
            group["enqueued"] = _number(about.get("last_enqueued_collective"))
            group["started"] = _number(about.get("last_started_collective"))
            group["completed"] = _number(about.get("last_completed_collective"))
    return groups


def _ranks(ranks: object) -> list[int]:
    """Return the ranks of a group, of a list or of the text that some versions write for one."""
    if isinstance(ranks, str):
        return [int(number) for number in re.findall(r"\d{1,6}", ranks[:100_000])]
    return [rank for rank in ranks[:_MOST_RANKS] if _is_rank(rank)] if isinstance(ranks, list | tuple) else []


def _add(
    entry: Mapping[str, object], until: int, groups: Mapping[str, _Group], writer: StoreWriter, *, process: str
) -> None:
    """Add one collective."""
    named = entry.get("process_group")
    named = named if isinstance(named, list | tuple) and len(named) == 2 else ("", "")
    group, about = plain_pickle.text(named[0], 100), plain_pickle.text(named[1], 200)
    name = plain_pickle.text(entry.get("profiling_name"), _MOST_NAME) or "collective"
    created, _, completed = _times(entry)
    is_over = entry.get("state") == "completed" or entry.get("retired") is True
    end = completed if completed else created if is_over else until
    is_p2p = entry.get("is_p2p") is True
    inputs, outputs = _shapes(entry, "input"), _shapes(entry, "output")
    details = {
        "group": group,
        "about": about,
        "ranks": groups[group].get("ranks", [])[:64] if group in groups else [],
        "sequence": _number(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id")),
        "p2p": is_p2p,
        "state": plain_pickle.text(entry.get("state"), 20),
        "over": is_over,
        "input": inputs,
        "output": outputs,
        "place": _place(entry.get("frames")),
    }
    lane = writer.lane("range", process=process, pid=-1, title=f"{about or 'process group'} ({group})")
    size = _bytes(entry, "input") or _bytes(entry, "output")
    info = writer.info(orjson.dumps(details).decode())
    writer.add(lane, created, max(end - created, 0), writer.name(name), Category.COMMUNICATION, bytes=size, info=info)


def _times(entry: Mapping[str, object]) -> tuple[int, int, int]:
    """Return when it was called, and when torch noticed that it had begun and ended; 0 for not."""
    names = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")
    created, started, completed = (_moment(entry.get(name)) for name in names)
    return created, started, completed


def _shapes(entry: Mapping[str, object], side: str) -> str:
    """Return sizes and types as a text: "[1024] Float, [7] Half"."""
    sizes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    shown = []
    for i, size in enumerate(sizes[:16] if isinstance(sizes, list) else ()):
        kind = types[i] if isinstance(types, list) and i < len(types) else ""
        shown.append(f"{_numbers(size)} {plain_pickle.text(kind, 20)}".strip())
    return ", ".join(shown)


def _numbers(size: object) -> str:
    """Return the sizes of a tensor as a text, "[1024, 7]", the first sixteen of them; "" for what is none."""
    if not isinstance(size, list | tuple):
        return ""
    return f"[{', '.join(plain_pickle.text(one, 20) for one in size[:16])}]"


def _bytes(entry: Mapping[str, object], side: str) -> int:
    """Return the bytes of all tensors of one side, 0 where a type or size is not known."""
    sizes, types = entry.get(f"{side}_sizes"), entry.get(f"{side}_dtypes")
    if not isinstance(sizes, list) or not isinstance(types, list) or len(sizes) != len(types):
        return 0
    total = 0
    for size, kind in zip(sizes, types, strict=True):
        whole = isinstance(size, list | tuple) and len(size) <= 16 and all(_number(one) >= 0 for one in size)
        if not whole or kind not in _WIDTHS:
            return 0
        total += math.prod(_number(one) for one in size) * _WIDTHS[kind]
    return total if total < 1 << 62 else 0


def _place(frames: object) -> str:
    """Return the innermost line of somebody's own code, "" if no frame was recorded."""
    with_file = [(file, frame) for frame in _dicts(frames) if isinstance(file := frame.get("filename"), str)]
    above = [(file, frame) for file, frame in with_file if not any(part in file for part in _PLUMBING)]
    own = [(file, frame) for file, frame in above if "site-packages/" not in file]
    for file, frame in own or above or with_file:
        return f"{file[-200:]}:{_number(frame.get('line'))} {plain_pickle.text(frame.get('name'), 200)}"
    return ""


def _dicts(values: object) -> Iterator[dict[str, object]]:
    return (each for each in values if isinstance(each, dict)) if isinstance(values, list) else iter(())


def _is_rank(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _moment(value: object) -> int:
    return value if type(value) is int and 0 < value < 1 << 62 else 0


def _number(value: object) -> int:
    """Return a whole number, also of a text: in JSON the numbers of a group's status are texts; -1 for none."""
    if type(value) is int:
        return value if -1 <= value < 1 << 53 else -1
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 16 else -1


PLUGIN = FlightRecorderReader()
