"""Execution traces in Chakra's format (MLCommons): nodes of operators and collectives, what they wait for, how long.

A trace says in what order nodes may run, not when they ran, unless its nodes have a start. So a node without one begins
when all that it waits for has ended, and nothing overlaps on its lane: a schedule without any launch or queue between.
Protobuf (`.et`, schema 1: messages with their lengths before them) and the converter's JSON (`workload_graph`).
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from profiling.trace.category import Category, of_kernel
from profiling.trace.formats.protobuf import BYTES, Damaged, fields, message, number, text, varint
from profiling.trace.formats.stack_frames import ORIGIN
from profiling.trace.formats.whole_file import check_room, whole_file
from profiling.trace.limits import Limits, Progress, Unreadable
from profiling.trace.writer import StoreWriter

_SCHEMA = re.compile(rb"\A.{1,3}[\x0a\x12].\x0a\x06schema", re.S)
_VERSION = re.compile(r"\d{1,3}(?:\.\d{1,3}){1,3}\S{0,20}")
_COLLECTIVES = frozenset({5, 6, 7})
"""Kinds of nodes of schema 1 that communicate: send, receive, collective."""


class ChakraReader:
    """Reads the execution trace of one rank."""

    name = "chakra"
    title = "an execution trace of Chakra"
    suffixes = (".et", ".json")

    def sniff(self, _path: Path, head: bytes, /) -> bool:
        """A first message that names a schema, or JSON with a graph of a workload."""
        is_json = head.lstrip().startswith(b"{") and b'"workload_graph"' in head[:4096]
        return is_json or _SCHEMA.match(head) is not None or _begins_with_version(head)

    def read(self, path: Path, writer: StoreWriter, *, progress: Progress, limits: Limits) -> None:
        """Put the nodes into a store, in a schedule. Raises: Unreadable for a trace without lengths."""
        content = whole_file(path, writer, progress=progress, limits=limits)
        nodes = list(_of_json(content) if content.lstrip().startswith(b"{") else _of_protobuf(content, writer))
        if not nodes:
            return
        if not any(node.lasts for node in nodes):
            raise Unreadable(
                "The execution trace holds no times: link it with the profiler's trace of the same steps "
                "(`chakra_trace_link`), or bring that trace itself."
            )
        # the first of a trace that counts from 0 has none, as it seems: proto3 does not send zeros
        has_starts = sum(not node.start for node in nodes if node.lasts) <= min(1, len(nodes) - 1)
        begins = {} if has_starts else _schedule(nodes)
        for node in nodes:
            if writer.events >= limits.events:
                writer.note("warning", f"Only the first {writer.events:,} events were read; the rest is left out.")
                break
            _add(node, node.start * 1000 if has_starts else ORIGIN + begins[node.id], writer)
        writer.meta("tool", "chakra")
        if not has_starts:
            writer.meta("clock", "none")
            writer.note(
                "info",
                "An execution trace says what waits for what, not when it ran: a node is laid out as if it began when "
                "all that it waits for had ended, from 2000-01-01 on.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node: `start` in us of its clock, 0 for none; `lasts` in ns; `after` are ids of nodes."""

    id: int
    name: str
    start: int
    lasts: int
    after: Sequence[int]
    is_cpu: bool
    is_collective: bool


def _begins_with_version(head: bytes) -> bool:
    """Whether the first message tells a version of the schema, and the second is a node: a name and a kind."""
    try:
        length, place = varint(memoryview(head), 0)
        about = list(fields(head[place : place + length]))
        length, place = varint(memoryview(head), place + length)
        wires = {field: wire for field, wire, _ in fields(head[place : place + length])}
    except Damaged:
        return False
    versions = [text(value) for field, wire, value in about if (field, wire) == (1, BYTES)]
    is_about = bool(versions) and all(field in (1, 2) and wire == BYTES for field, wire, _ in about)
    return is_about and _VERSION.fullmatch(versions[0]) is not None and wires.get(2) == BYTES and wires.get(3) == 0


def _of_protobuf(content: bytes, writer: StoreWriter) -> Iterator[_Node]:
    """Yield the nodes of a file of messages; the first is about the file."""
    view, place = memoryview(content), 0
    is_first = True
    try:
        while place < len(view):
            length, place = varint(view, place)
            if place + length > len(view):
                raise Damaged("a message is cut off")
            if not is_first:
                yield _node(view[place : place + length])
            place += length
            is_first = False
    except Damaged as error:
        writer.note("warning", f"The file is cut off or damaged ({error}); what comes after that is missing.")


def _node(data: memoryview) -> _Node:
    key = kind = start = lasts = 0
    name, is_cpu = "", False
    after: list[int] = []
    for field, _, value in fields(data):
        if field == 1:
            key = number(value)
        elif field == 2:
            name = text(value)
        elif field == 3:
            kind = number(value)
        elif field in (4, 5):
            after += _numbers(value)
        elif field == 6:
            start = number(value)
        elif field == 7:
            lasts = number(value)
        elif field == 10:
            is_cpu = is_cpu or _says_cpu(message(value))
    return _Node(
        id=key,
        name=name,
        start=start,
        lasts=lasts * 1000,
        after=after,
        is_cpu=is_cpu,
        is_collective=kind in _COLLECTIVES,
    )


def _numbers(value: Any) -> list[int]:
    """Return a repeated number, packed or not."""
    if isinstance(value, int):
        return [value]
    values, place = [], 0
    while place < len(value):
        one, place = varint(value, place)
        values.append(one)
    return values


def _says_cpu(data: memoryview) -> bool:
    """Whether an attribute is `is_cpu_op` and true."""
    name, is_true = "", False
    for field, wire, value in fields(data):
        if field == 1 and wire == 2:
            name = text(value)
        elif isinstance(value, int):
            is_true = is_true or bool(value)
    return name == "is_cpu_op" and is_true


def _of_json(content: bytes) -> Iterator[_Node]:
    """Yield the nodes of the converter's JSON. Raises: Unreadable."""
    check_room(content)
    try:
        graph: Any = orjson.loads(content)["workload_graph"]
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"The file is cut off or damaged: {error}.") from error
    for raw in graph:
        about = {key.lower(): value for key, value in raw.items()}
        yield _Node(
            id=int(about["id"]),
            name=str(about["name"]),
            start=0,
            lasts=int(about.get("runtime", 0)) * 1000,
            after=[*about.get("ctrldeps", []), *about.get("data_deps", [])],
            is_cpu=bool(about.get("is_cpu_op")),
            is_collective=about.get("nodetype") in _COLLECTIVES,
        )


def _schedule(nodes: Sequence[_Node]) -> dict[int, int]:
    """Return when each node begins [ns]: after what it waits for, and after the one before on its lane.

    Nodes of a cycle, which no trace should have, begin in the order in which they stand.
    """
    ends: dict[int, int] = {}
    begins: dict[int, int] = {}
    free: dict[tuple[bool, bool], int] = {}
    there = {node.id for node in nodes}
    waiting = {node.id: {key for key in node.after if key in there and key != node.id} for node in nodes}
    followers: dict[int, list[int]] = {}
    for key, before in waiting.items():
        for one in before:
            followers.setdefault(one, []).append(key)
    by_id = {node.id: node for node in nodes}
    ready = deque(node.id for node in nodes if not waiting[node.id])
    left = iter([node.id for node in nodes])
    while len(begins) < len(by_id):
        if not ready:
            ready.append(next(key for key in left if key not in begins))
        key = ready.popleft()
        if key in begins:
            continue
        node = by_id[key]
        lane = (node.is_cpu, node.is_collective)
        begin = max([free.get(lane, 0), *(ends.get(one, 0) for one in node.after)])
        begins[key], ends[key] = begin, begin + node.lasts
        free[lane] = ends[key]
        for follower in followers.get(key, []):
            waiting[follower].discard(key)
            if not waiting[follower]:
                ready.append(follower)
    return begins


def _add(node: _Node, begin: int, writer: StoreWriter) -> None:
    if node.is_cpu:
        lane = writer.lane("thread", process="", pid=-1, thread="operators", tid=1)
        category = Category.OPERATOR
    else:
        title = "collectives" if node.is_collective else "compute"
        lane = writer.lane("stream", process="", pid=-1, device=0, stream=int(node.is_collective), title=title)
        category = Category.COMMUNICATION if node.is_collective else of_kernel(node.name)
    writer.add(lane, begin, node.lasts, writer.name(node.name or f"node {node.id}"), category)


PLUGIN = ChakraReader()
