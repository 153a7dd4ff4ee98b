"""A program on a CPU and a device, as the torch profiler would record it: queues, streams and waits obey physics.

The CPU has a clock; a launch puts work into a stream, which runs it when the work before it is done and the launch has
arrived. So idle time, hidden work and waits come about as they do on a machine, and are not drawn by hand. Times in us.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.contracts.trace_files import database

ARRIVES = 4.0  # from the begin of a launching call to the earliest begin of its work
CALL = 3.0
MOST_QUEUED = 1000
BASE = 1_760_000_000_000_000

H100: Mapping[str, Any] = {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9}
A100: Mapping[str, Any] = {"name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8}
MI300: Mapping[str, Any] = {"name": "AMD Instinct MI300X", "totalGlobalMem": 206_000_000_000, "computeMajor": 9}
P100: Mapping[str, Any] = {"name": "Tesla P100-PCIE-16GB", "totalGlobalMem": 17_000_000_000, "computeMajor": 6}


@dataclass
class Program:
    """One process: `now` is its CPU's clock. `calls` begins the names of calls ("cuda", "hip")."""

    device: Mapping[str, Any] = field(default_factory=lambda: H100)
    calls: str = "cuda"
    rank: int = 0
    world_size: int = 1
    index: int = 0
    stacks: bool = False
    now: float = 100.0
    tid: int = 11
    events: list[dict[str, Any]] = field(default_factory=list)
    _free: dict[int, float] = field(default_factory=dict)
    _ends: list[float] = field(default_factory=list)
    _link: int = 0
    _outer: int = 0

    # -- the CPU --

    def work(self, us: float) -> None:
        """Let the CPU do something that is not recorded."""
        self.now += us

    @contextmanager
    def span(self, name: str, kind: str = "user_annotation", *, tid: int = 0, **args: Any) -> Iterator[None]:
        """Record an event of the CPU around a block."""
        begin = self.now
        yield
        self.add(kind, name, begin, self.now - begin, tid=tid, **args)

    @contextmanager
    def frame(self, name: str) -> Iterator[None]:
        """Record a frame of Python around a block, where stacks are recorded."""
        begin = self.now
        yield
        if self.stacks:
            self.add("python_function", name, begin, self.now - begin)

    @contextmanager
    def operator(self, name: str, *types: str) -> Iterator[None]:
        """Record an operator around a block; its kernels carry its number."""
        self._outer += 1
        number, begin = self._outer, self.now
        self.work(4)
        yield
        args = {"External id": number, "Record function id": 0, **({"Input type": list(types)} if types else {})}
        self.add("cpu_op", name, begin, self.now - begin, **args)

    def add(self, kind: str, name: str, begin: float, lasts: float, *, tid: int = 0, **args: Any) -> None:
        """Record an event of the CPU."""
        self.events.append(
            {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": tid or self.tid}
            | {"ts": round(begin, 3), "dur": round(max(lasts, 0.0), 3), "args": args}
        )

    # -- the device --

    def launch(self, name: str, us: float, *, stream: int = 7) -> None:
        """Launch work of a stream; the call blocks while the queue is full."""
        begin = self.now
        if len(self._ends) >= MOST_QUEUED:
            self.now = max(self.now, self._ends[-MOST_QUEUED])
        self._link += 1
        self.now += CALL
        self._call("LaunchKernel", begin, self._link)
        self._run(name, us, stream, self._link, "kernel", begin + ARRIVES)

    def graph(self, kernels: Sequence[tuple[str, float]], *, stream: int = 7) -> None:
        """Launch a graph: one call, many kernels."""
        begin = self.now
        self._link += 1
        self.now += 4 * CALL
        self._call("GraphLaunch", begin, self._link)
        for name, us in kernels:
            self._run(name, us, stream, self._link, "kernel", begin + 3 * ARRIVES)

    def copy(self, mib: float, us: float, *, what: str = "HtoD (Pinned -> Device)", stream: int = 7) -> None:
        """Copy between host and device; what is not pinned blocks the CPU until it is done."""
        begin = self.now
        self._link += 1
        blocks = "Pageable" in what or self.calls == "hip"
        name = "MemcpyWithStream" if self.calls == "hip" else "MemcpyAsync"
        self._run(f"Memcpy {what}", us, stream, self._link, "gpu_memcpy", begin + ARRIVES, bytes=int(mib * 2**20))
        self.now = max(self.now + CALL, self._free[stream] + 2) if blocks else self.now + CALL
        self._call(name, begin, self._link)

    def wait_for(self, stream: int, other: int) -> None:
        """Let a stream wait for another one, as an event does; the CPU goes on."""
        self._free[stream] = max(self._free.get(stream, 0.0), self._free.get(other, 0.0))

    def done(self, stream: int | None = None) -> float:
        """Return when all that was launched so far, or what is in one stream, will have ended."""
        return max(self._free.values(), default=0.0) if stream is None else self._free.get(stream, 0.0)

    def sync(self, *, what: str = "DeviceSynchronize", until: float | None = None) -> None:
        """Wait for the device, or for a moment at which some of its work is done."""
        begin = self.now
        done = self.done() if until is None else until
        self.now = max(self.now + 2, done + 3)
        self._call(what, begin, 0)

    def item(self) -> None:
        """Read a number from the device: a small copy, and a wait for it."""
        with self.operator("aten::item"):
            self.copy(0.0, 1.5, what="DtoH (Device -> Pinned)")
            self.sync(what="StreamSynchronize", until=self.done(7))

    def _call(self, name: str, begin: float, link: int) -> None:
        kind = "cuda_runtime"
        self.add(kind, f"{self.calls}{name}", begin, self.now - begin, **({"correlation": link} if link else {}))

    def _run(self, name: str, us: float, stream: int, link: int, kind: str, earliest: float, **args: Any) -> None:
        begin = max(earliest, self._free.get(stream, 0.0) + 0.8)
        self._free[stream] = begin + us
        self._ends.append(begin + us)
        args |= {"device": self.index, "stream": stream, "correlation": link, "External id": self._outer}
        self.events.append(
            {"ph": "X", "cat": kind, "name": name, "pid": self.index, "tid": stream}
            | {"ts": round(begin, 3), "dur": round(us, 3), "args": args}
        )

    # -- memory and the whole --

    def memory(self, allocated: float, reserved: float) -> None:
        """Record what the allocator gave out and holds [bytes]."""
        args = {"Device Type": 1, "Device Id": self.index, "Total Allocated": allocated, "Total Reserved": reserved}
        self.events.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": self.tid}
                           | {"ts": round(self.now, 3), "s": "t", "args": args})  # fmt: skip

    def write(self, path: Path, *, cut: float = 1.0) -> Path:
        """Write the trace as the torch profiler does, or the first part of it."""
        events = [{**event, "ts": BASE + event["ts"]} for event in sorted(self.events, key=lambda one: one["ts"])]
        head: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": self.index, **self.device}],
            "with_stack": int(self.stacks),
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world_size},
        }
        text = json.dumps({**head, "traceEvents": events})
        path.write_text(text[: int(len(text) * cut)])
        return path

    def write_nsys(self, path: Path, *, has_session: bool = True, overhead: float = 0.0) -> Path:
        """Write it as nsys exports it: calls, kernels, copies and ranges; `overhead` is the share of a flush."""
        texts = {event["name"]: i for i, event in enumerate(self.events, 1)}
        pid, tid = 1 << 24, (1 << 24) + self.tid
        rows: dict[str, list[tuple[Any, ...]]] = {"runtime": [], "kernel": [], "gpu_memcpy": [], "ranges": []}
        for event in self.events:
            begin = int(event["ts"] * 1000)
            end, number, args = begin + int(event["dur"] * 1000), texts[event["name"]], event["args"]
            link = args.get("correlation", 0)
            match event["cat"]:
                case "cuda_runtime":
                    rows["runtime"].append((begin, end, tid, link, number))
                case "kernel":
                    rows["kernel"].append((begin, end, pid, args["device"], args["stream"], link, number))
                case "gpu_memcpy":
                    place = (pid, args["device"], args["stream"], link, args["bytes"])
                    rows["gpu_memcpy"].append((begin, end, *place, 1, 0 if "Pageable" in event["name"] else 1, 2))
                case "user_annotation":
                    rows["ranges"].append((begin, end, tid, 59, event["name"]))
        about = (self.index, self.device["name"], self.device["totalGlobalMem"])
        last = max(row[1] for table in rows.values() for row in table)
        tables = {
            "StringIds(id, value)": [(number, text) for text, number in texts.items()],
            "EXPORT_META_DATA(name, value)": [("EXPORT_SCHEMA_VERSION", "3.25")],
            "TARGET_INFO_GPU(id, name, totalMemory)": [about],
            "CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId)": rows["runtime"],
            "CUPTI_ACTIVITY_KIND_KERNEL(start, end, globalPid, deviceId, streamId, correlationId, demangledName)": rows[
                "kernel"
            ],
            "CUPTI_ACTIVITY_KIND_MEMCPY(start, end, globalPid, deviceId, streamId, correlationId, bytes, copyKind, "
            "srcKind, dstKind)": rows["gpu_memcpy"],
            "NVTX_EVENTS(start, end, globalTid, eventType, text)": rows["ranges"],
            "PROFILER_OVERHEAD(start, end, globalTid, overheadType)": [
                (int(last * 0.4), int(last * (0.4 + overhead)), tid, 3),  # within the steps
                (0, int(last * 0.5), tid, 8),  # launches that wait for room in the queue are no overhead
            ],
        }
        if has_session:
            tables["TARGET_INFO_SESSION_START_TIME(utcEpochNs)"] = [(BASE * 1000,)]
        return database(path, tables)
