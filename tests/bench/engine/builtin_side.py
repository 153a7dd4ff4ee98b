"""The built-in trainer on a Ray head of its own, as the console starts it, and its run as the comparison wants it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.engine.comparison import WARM_UP, SideRun, StepRecord
from tests.bench.engine.meter import ProcessMeter
from tests.bench.engine.side import SideFailed, check_steps, side_run
from tests.bench.engine.trl_side import digest, read_lines
from tests.bench.engine.workloads import Workload
from tests.bench.stage import ROOT
from tests.ray_head import RayHead, running_head
from tests.revision import write_revision

RUN_SECONDS = 3600.0
PACKAGES = ("jobs", "profiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A variant of the built-in trainer: knobs that differ from the workload's, or the code of another revision."""

    name: str = "built-in"
    knobs: Mapping[str, Any] = field(default_factory=dict)
    code: Path = ROOT


def code_of(revision: str, folder: Path) -> Path:
    """Write the packages of a revision of this repository into `folder`, unless they are there; return it.

    Raises: SystemExit if there is no such revision.
    """
    named = subprocess.run(["git", "rev-parse", "--short", revision], cwd=ROOT, capture_output=True, text=True)
    if named.returncode:
        raise SystemExit(f"There is no revision {revision!r}: {named.stderr.strip()}")
    target = folder / named.stdout.strip()
    if not target.exists():
        write_revision(revision, target, *PACKAGES)
    return target


def changed(spec: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with other knobs, or fields of its hardware where a name begins with `hardware.`."""
    hardware = {name.removeprefix("hardware."): value for name, value in values.items() if name.startswith("hardware.")}
    knobs = {name: value for name, value in values.items() if not name.startswith("hardware.")}
    return {**spec, "knobs": {**spec["knobs"], **knobs}, "hardware": {**spec.get("hardware", {}), **hardware}}


def run_builtin(variant: BuiltIn, workload: Workload, spec: Mapping[str, Any], folder: Path) -> SideRun:
    """Train the spec in `folder`, and return what was measured.

    Raises: SideFailed, with the last lines of its output.
    """
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps(changed(spec, variant.knobs)))
    with running_head(first_on_path=variant.code, is_warm=False) as head:
        begin = time.time()
        process = _start(head, variant, folder)
        try:
            with ProcessMeter(lambda: [process.pid, head.pid]) as meter:
                code = process.wait(RUN_SECONDS)
        finally:
            process.kill()
            process.wait()
    if code:
        raise SideFailed((folder / "driver.log").read_text(errors="replace"))
    events = read_lines(folder / "events.jsonl")
    steps = steps_of(events, folder, sequences=workload.sequences)
    check_steps(steps)
    began = next(e["t"] / 1e9 for e in events if e["kind"] == "state" and e["state"] == "training")
    ends = [event["t"] for event in step_metrics(events)]
    return side_run(
        variant.name,
        steps,
        meter,
        cores=os.cpu_count() or 1,
        ready_seconds=began - begin,
        phases=phases_of(events),
        waiting=waiting_of(events, ends[WARM_UP - 1], ends[-1]),
        reporting=reporting_of(events),
    )


def _start(head: RayHead, variant: BuiltIn, folder: Path) -> "subprocess.Popen[bytes]":
    env = {**os.environ, **head.environment, "PYTHONPATH": head.path, "PYTHONWARNINGS": "ignore"}
    env.pop("PITWALL_ATTEMPT", None)
    command = [sys.executable, "-m", "jobs.engine", "--device=cpu", str(folder)]
    with (folder / "driver.log").open("wb") as out:
        return subprocess.Popen(command, cwd=variant.code, env=env, stdout=out, stderr=out)


def steps_of(events: Sequence[Mapping[str, Any]], folder: Path, *, sequences: int) -> list[StepRecord]:
    """Return the steps of a run directory. In fine-tuning, which keeps no samples, a step has `sequences`."""
    records = []
    gaps = gaps_of(events)
    for event in step_metrics(events):
        step, values, end = event["step"], event["values"], event["t"] / 1e9
        samples = read_lines(folder / "samples" / f"step-{step:06d}.jsonl")
        if not samples:
            tokens = round(values["throughput/update_tokens_per_second"] * values["time/update_seconds"])
            records.append(StepRecord(step=step, end=end, sequences=sequences, tokens=tokens, loss=values["loss/sft"]))
            continue
        lengths = [sample["tokens"] for sample in samples]
        records.append(
            StepRecord(
                step=step,
                end=end,
                sequences=len(samples),
                tokens=sum(lengths),
                prompts=digest({sample["prompt"] for sample in samples}),
                reward=float(values["reward/mean"]),
                gap=gaps.get(step),
                shortest=min(lengths),
                longest=max(lengths),
            )
        )
    return records


def gaps_of(events: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Return the largest difference between vLLM and trainer after the sync of each step, in nats."""
    name = "sync/max_logprob_diff"
    return {e["step"]: float(e["values"][name]) for e in events if e["kind"] == "metric" and name in e["values"]}


def step_metrics(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the event that ends each step, in order."""
    return [event for event in events if event["kind"] == "metric" and "time/step_seconds" in event["values"]]


def phases_of(events: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the seconds of each phase in each of the steps that count, by the phase's name."""
    phases: dict[str, list[float]] = {}
    for event in step_metrics(events)[WARM_UP:]:
        for name, seconds in event["values"].items():
            if name.startswith("time/") and name not in ("time/step_seconds", "time/event_seconds"):
                phases.setdefault(name[len("time/") : -len("_seconds")], []).append(seconds)
    return phases


def reporting_of(events: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return the fraction of each step that counts in which the driver made and wrote events, samples and log lines."""
    values = [event["values"] for event in step_metrics(events)[WARM_UP:]]
    return [float(each["time/event_seconds"]) / float(each["time/step_seconds"]) for each in values]


def waiting_of(events: Iterable[Mapping[str, Any]], begin: int, end: int) -> dict[str, float]:
    """Return for each role the fraction of the time from `begin` to `end` in which none of its phases ran.

    Times are Unix nanoseconds; the ranks of a role are averaged.
    """
    busy: dict[tuple[str, int], int] = {}
    for event in events:
        if event["kind"] == "span" and not event.get("depth") and event["role"] != "driver":
            inside = min(event["start"] + event["duration"], end) - max(event["start"], begin)
            key = (event["role"], event["rank"])
            busy[key] = busy.get(key, 0) + max(0, inside)
    roles = {role: [spent for (other, _), spent in busy.items() if other == role] for role, _ in sorted(busy)}
    return {role: 1 - sum(spent) / len(spent) / (end - begin) for role, spent in roles.items()}
