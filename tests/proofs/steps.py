"""`make proof-steps`: steps and times of traces held against other tools, trace by trace; writes docs/proofs/steps.md.

The judges (requirements/judges.lock) stand in an environment of their own in build/judges, unless PITWALL_JUDGES names
an interpreter that has them. TraceLens is in no package index: PITWALL_TRACELENS names the folder of its source.
Arguments: traces of torch; nothing for those of tests/data/traces and for made ones, whose CPU is 0, 1 and 3 steps
ahead of the device.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiling.analysis.intervals import difference, joined, total
from profiling.analysis.summary import WorkerSummary, summarise
from profiling.analysis.work import read
from profiling.evidence import RecordedTrace, phase_spans
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.store import Store

HOUSE = Path(__file__).resolve().parents[2]
REPORT = HOUSE / "docs" / "proofs" / "steps.md"
REAL = ("torch_diff_control.json.gz", "torch_diff_test.json.gz", "torch_sampled_rank0.json.gz")
AHEAD = (0, 1, 3)
US = 1000
TIMES = {
    "busy_time": "busy",
    "computation_time": "compute",
    "exposed_comm_time": "exposed communication",
    "exposed_memcpy_time": "exposed copies",
    "idle_time": "idle",
}


@dataclass
class Held:
    """One trace and what came of it; steps are (number, begin, end) in us."""

    name: str
    ours: list[tuple[int, float, float]]
    plugin: list[tuple[int, float, float]]
    rows: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def main() -> int:
    """Hold every trace against the judges and write the report; return 1 if any disagrees."""
    python = os.environ.get("PITWALL_JUDGES") or str(_environment())
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(argument) for argument in sys.argv[1:]]
        if not paths:
            paths = [HOUSE / "tests" / "data" / "traces" / name for name in REAL]
            paths += [made(Path(folder) / f"{steps} steps ahead.json", steps) for steps in AHEAD]
        found = [hold(path, python, Path(folder)) for path in paths]
    REPORT.write_text("\n".join(_report(found)) + "\n", encoding="utf-8")
    for held in found:
        print(f"{held.name}: {len(held.ours)} steps, {len(held.wrong)} disagreements", *held.wrong, sep="\n  ")
    return 1 if any(held.wrong for held in found) else 0


def _environment() -> Path:
    """Make the judges' environment unless it is there; return its interpreter."""
    python = HOUSE / "build" / "judges" / "bin" / "python"
    lock = HOUSE / "requirements" / "judges.lock"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(lock)]
        subprocess.run(install, check=True)
    return python


def made(path: Path, ahead: int) -> Path:
    """Write a trace of twelve steps of 10 ms on the CPU, each of which launches three kernels of 3 ms and a collective.

    The device is busy with work of `ahead` steps before, so that the CPU is as many steps ahead of it.
    """
    begin, at = 1_700_000_000_000_000, 0
    events: list[dict[str, Any]] = []
    for step in range(-ahead, 12):
        at = max(at, begin + 10_000 * step + 500)
        for i, (name, lasts) in enumerate((("gemm", 3000), ("attention", 3000), ("ncclDevKernel_AllReduce", 4000))):
            number = 1 + i + 3 * (step if step >= 0 else 1000 - step)
            if step >= 0:
                called = {"correlation": number, "External id": number}
                launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 70, "dur": 10}
                events.append({**launch, "ts": begin + 10_000 * step + 100 * (i + 1), "args": called})
            ran = {"device": 0, "stream": 7, "correlation": number, "External id": number}
            kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "args": ran}
            events.append({**kernel, "ts": at, "dur": lasts})
            at += lasts + 1  # the plugin leaves out what ends just when the first of a step begins
    for step in range(12):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7, "tid": 70}
        events.append({**mark, "ts": begin + 10_000 * step, "dur": 10_000, "args": {"External id": 9000 + step}})
    # marks first: to HTA, what was launched by the first event of a file was launched by none
    events = sorted(events, key=lambda event: event["cat"] != "user_annotation")
    events = [{**event, "ts": event["ts"] + 10_000 * ahead} for event in events]
    about = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "made"}], "distributedInfo": {"rank": 0}}
    path.write_text(json.dumps({**about, "traceEvents": events}))
    return path


def hold(path: Path, python: str, folder: Path) -> Held:
    """Return one trace as here and as the judges have it."""
    command = [python, str(Path(__file__).with_name("step_judges.py")), str(path)]
    command += [os.environ["PITWALL_TRACELENS"]] if os.environ.get("PITWALL_TRACELENS") else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    told = json.loads(done.stdout.splitlines()[-1])
    store_path = folder / f"{path.name}.store"
    import_trace(path, store_path)
    with Store(store_path) as store:
        recorded = [RecordedTrace(store=store)]
        by_step = summarise(recorded, phase_spans(()))
        times = _times(store)
    ours = [(step.number, step.begin / US, step.end / US) for step in by_step.budget.steps]
    held = Held(name=path.name, ours=ours, plugin=[(n, a, b) for n, a, b in told["plugin"]])
    if held.ours != held.plugin:
        held.wrong.append(f"steps: {held.ours} here, {held.plugin} of the plugin")
    before = _outside(by_step.workers[0])
    held.rows.append(f"| operations of no step | {before} | {told['hta'].get('-1', 0)} (HTA) |")
    if before != told["hta"].get("-1", 0):
        held.wrong.append(f"operations of no step: {before} here, {told['hta'].get('-1', 0)} of HTA")
    if "tracelens" in told:
        _hold_times(held, times, told["tracelens"])
    return held


def _outside(worker: WorkerSummary) -> int:
    return worker.outside.before if worker.outside else 0


def _times(store: Store) -> dict[str, float]:
    """Return the times of all of a recording in us, with the memsets as compute, as TraceLens has them."""
    work = read(store)
    compute = joined(work.compute, work.device.of(Category.MEMSET).union)
    talk, copies = work.collectives.union, work.device.of(Category.COPY).union
    span = int(work.device.end.max() - work.device.ts.min())
    return {
        "busy_time": total(work.busy) / US,
        "computation_time": total(compute) / US,
        "exposed_comm_time": total(difference(talk, compute)) / US,
        "exposed_memcpy_time": total(difference(difference(copies, compute), talk)) / US,
        "idle_time": (span - total(work.busy)) / US,
    }


def _hold_times(held: Held, ours: dict[str, float], theirs: dict[str, float]) -> None:
    for key, value in ours.items():
        held.rows.append(f"| {TIMES[key]}, µs | {value:,.3f} | {theirs[key]:,.3f} (TraceLens) |")
        if abs(value - theirs[key]) > 0.5:  # its times are floating point
            held.wrong.append(f"{TIMES[key]}: {value} us here, {theirs[key]} us of TraceLens")


def _report(found: list[Held]) -> list[str]:
    lines = [
        "# Steps, held against other tools",
        "",
        "Written by `make proof-steps`. A step ends with the last device work that it launched "
        "([how](../use/profile.md#read-the-summary)). Judges: TensorBoard's torch profiler plugin 0.4.3 (begin and end "
        "of every step), Holistic Trace Analysis 0.5.0 (operations of the device that belong to no step) and, where "
        "its source is at hand (this report: commit 171dd74), TraceLens (times over all of the "
        "recording, with memsets as compute, as it has them). Made traces: the CPU is so many steps ahead of the "
        "device.",
        "",
    ]
    for held in found:
        means = [sum(end - begin for _, begin, end in side) / max(len(side), 1) for side in (held.ours, held.plugin)]
        lines += [
            f"## {held.name}",
            "",
            "| | here | judge |",
            "|---|---|---|",
            f"| steps | {len(held.ours)} | {len(held.plugin)} (plugin) |",
            f"| mean step, µs | {means[0]:,.3f} | {means[1]:,.3f} (plugin) |",
            f"| begins and ends that differ | {sum(a != b for a, b in zip(held.ours, held.plugin, strict=False))} | |",
            *held.rows,
            "",
            *(f"- **Disagreement**: {one}" for one in held.wrong),
        ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
