"""Traces of ten million events: how fast they come in and in how much memory, how soon there is something to see, and
what the summary and the rules of diagnosis take.

    python -m tests.bench.traces [--events 10000000]

The trace is made here, in the shape of torch's own: nested operators on threads, launches, kernels on streams.
Each import is a process of its own, as the console runs it.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiling import plain
from profiling.analysis.summary import TraceSummary, summarise, within
from profiling.diagnosis.finding import evaluate_files
from profiling.evidence import Evidence, RecordedTrace, phase_spans
from profiling.trace.store import Store
from profiling.trace.tiles import MOST_BYTES, tile
from tests.bench.stage import ROOT, Result, print_table

COMMAND = "python -m tests.bench.traces"
EVENTS = 10_000_000
TIMES = 3
TILES = 200
GATES = {"rate": 100_000.0, "memory": 300.0, "view": 1.0, "tile": 0.2, "bytes": float(MOST_BYTES)}
"""Events a second and more; MB, s, s and bytes at most."""

_THREADS, _STREAMS = 6, 4
_HEAD = (
    '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "baseTimeNanoseconds": '
    '1790857026000000000, "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},\n  "traceEvents": [\n'
)
_OPERATOR = """  {
    "ph": "X", "cat": "cpu_op", "name": "%s", "pid": 4711, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d,"Record function id": 0, "Ev Idx": %d, "Input Dims": [[%d, 4096], [4096, 4096]]
    }
  },
"""
_LAUNCH = """  {
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4711, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d, "cbid": 211, "correlation": %d
    }
  },
"""
_KERNEL = """  {
    "ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      "External id": %d, "queued": 0, "device": 0, "context": 1, "stream": %d, "correlation": %d,
      "registers per thread": 64, "shared memory": 49152, "grid": [%d, 1, 1], "block": [128, 1, 1]
    }
  },
"""
_NAMES = [f"aten::operator_{i}" for i in range(180)]
_KERNELS = [f"void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_{i}x128_align8>(Params)" for i in range(60)]
_KERNELS[0] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def events(count: int) -> Iterator[str]:
    """Yield the text of about `count` events: groups of three nested operators, a launch and a kernel."""
    rng = random.Random(7)
    at = [1000.0 * thread for thread in range(_THREADS)]
    busy_until = [0.0] * _STREAMS
    for number in range(1, count // 5 + 1):
        thread = number % _THREADS
        start, lasts = at[thread], rng.uniform(8, 60)
        at[thread] += lasts + rng.uniform(0.5, 9)
        outer, rows = number * 4, rng.choice((128, 512, 2048))
        tid = 5000 + thread
        stream = number % _STREAMS
        launched = start + lasts * 0.5
        begins = max(launched + 4, busy_until[stream])
        runs = rng.uniform(2, 40)
        busy_until[stream] = begins + runs
        name = number * 31 % 178
        yield (
            _OPERATOR % (_NAMES[name], tid, start, lasts, outer, number, rows)
            + _OPERATOR % (_NAMES[name + 1], tid, start + 1, lasts - 2, outer + 1, number, rows)
            + _OPERATOR % (_NAMES[name + 2], tid, start + 2, lasts - 4, outer + 2, number, rows)
            + _LAUNCH % (tid, launched, lasts * 0.1, outer + 2, number)
            + _KERNEL % (_KERNELS[number * 17 % 60], 7 + stream, begins, runs, outer + 2, 7 + stream, number, rows)
        )


def make(path: Path, count: int) -> int:
    """Write a trace and return how many bytes it has unpacked."""
    size = 0
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(_HEAD)
        for text in events(count):
            size += len(text)
            file.write(text)
        file.write(
            '  {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "ts": 0, "args": {"name": "python"}}\n'
        )
        file.write('  ], "traceName": "made.json"}\n')
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """What one import took: time of the clock and of the CPU [s], most resident memory [MB]."""

    seconds: float
    cpu_seconds: float
    memory: float
    events: int


def imported(source: Path, target: Path) -> Import:
    """Import in a process of its own."""
    target.unlink(missing_ok=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "profiling.trace.importing", str(source), str(target)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    said = process.stdout.read().splitlines()
    _, _, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    facts = json.loads(said[-1])["facts"]
    return Import(
        seconds=seconds,
        cpu_seconds=used.ru_utime + used.ru_stime,
        memory=used.ru_maxrss * 1024 / 1e6,
        events=facts["events"],
    )


def view(target: Path) -> tuple[float, int]:
    """Return the seconds from a closed file to tiles of the whole trace, and the largest tile [bytes]."""
    began = time.perf_counter()
    with Store(target) as store:
        level = max((store.end - store.begin).bit_length() - 10, 0)  # 512 to 1024 columns
        width = 512 << level
        origin = store.facts.origin
        made = [
            tile(store, level=level, index=index)
            for index in range((store.begin - origin) // width, (store.end - origin) // width + 1)
        ]
    return time.perf_counter() - began, max(len(each) for each in made)


def tiles(target: Path) -> tuple[list[float], int]:
    """Return the seconds of tiles at all levels and places, and the largest of them [bytes]."""
    rng = random.Random(3)
    took, largest = [], 0
    with Store(target) as store:
        top = (store.end - store.begin).bit_length() - 9
        for _ in range(TILES):
            level = rng.randrange(8, top + 1)
            at = rng.randrange(store.begin, store.end) - store.facts.origin
            began = time.perf_counter()
            made = tile(store, level=level, index=at // (512 << level))
            took.append(time.perf_counter() - began)
            largest = max(largest, len(made))
    return took, largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Seconds that what is computed of a trace takes: the summary, all rules, and reading the kept summary again."""

    summary: float
    rules: float
    again: float


def answers(target: Path) -> Answers:
    """Compute as the console does with the first who asks, and read as it does with the next."""
    began = time.perf_counter()
    with Store(target) as store:
        found = summarise([RecordedTrace(store=store)], phase_spans(()))
        text = plain.written(found)
    summary = time.perf_counter()
    with Store(target) as store:
        evaluate_files(Evidence(recorded=within([RecordedTrace(store=store)])))
    rules = time.perf_counter()
    plain.read(TraceSummary, text)
    return Answers(summary=summary - began, rules=rules - summary, again=time.perf_counter() - rules)


def result(what: str, values: list[float], unit: str) -> Result:
    """Return one number as the table shows it."""
    return Result(
        what=what, median=statistics.median(values), spread=(min(values), max(values)), unit=unit, command=COMMAND
    )


def measured(count: int) -> tuple[list[Result], list[str]]:
    """Return all numbers, and a sentence for each gate that does not hold."""
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as folder:
        source, target = Path(folder) / "made.pt.trace.json.gz", Path(folder) / "made.store"
        size = make(source, count)
        runs = [imported(source, target) for _ in range(TIMES)]
        taken = runs[0].events
        views = [view(target) for _ in range(5)]
        took, largest = tiles(target)
        told = [answers(target) for _ in range(TIMES)]
        kept = target.stat().st_size / (1 << 20)
        packed = source.stat().st_size / (1 << 20)
    millions = f"{taken / 1e6:.3g} M events"
    found = [
        result(f"trace of {millions}: file, packed", [packed], "MiB"),
        result(f"trace of {millions}: file, unpacked", [size / (1 << 20)], "MiB"),
        result("import", [taken / each.seconds for each in runs], "events/s"),
        result("import: most resident memory", [each.memory for each in runs], "MB"),
        result("store", [kept], "MiB"),
        result("first view: open and tiles of the whole trace", [seconds for seconds, _ in views], "s"),
        result(f"tile ({TILES} at all levels)", took, "s"),
        result("tile: the largest", [max(largest, *(size for _, size in views))], "bytes"),
        result("summary, the first time: open and compute", [one.summary for one in told], "s"),
        result("diagnosis, the first time: open and all rules", [one.rules for one in told], "s"),
        result("summary, kept: read again", [one.again for one in told], "s"),
        result("import, a second of one core", [taken / each.cpu_seconds for each in runs], "events/s"),
    ]
    by_gate = {"rate": found[2], "memory": found[3], "view": found[5], "tile": found[6], "bytes": found[7]}
    problems = []
    for gate, bound in GATES.items():
        one = by_gate[gate]
        holds = one.median >= bound if gate == "rate" else one.median <= bound
        if not holds:
            problems.append(f"{one.what}: {one.median:,.3g} {one.unit}, promised {bound:,.3g}")
    return found, problems


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; the exit code is 1 if a promise is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=EVENTS)
    found, problems = measured(parser.parse_args(arguments).events)
    print_table(found)
    if problems:
        sys.exit("Not held: " + "; ".join(problems))


if __name__ == "__main__":
    main()
