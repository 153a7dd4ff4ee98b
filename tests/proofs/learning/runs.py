"""Single runs of the proof, each of which leaves a file, so that one can go on where one stopped."""

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.data.model_files import model_folder
from tests.jobs.engine.conftest import EndedRun, Running
from tests.proofs.answers import accuracy, held_out_rows, speaks
from tests.proofs.learning.budgets import ACCURACY, NUM_HELD_OUT, TEACHER, Trial, spec_of
from tests.ray_head import HOUSE, RayHead

RESULTS = HOUSE / "build" / "proofs" / "learning"
TEACHER_MODEL = RESULTS / "teacher"
ENGINE = ("jobs.engine", "--device=cpu")
RUN_SECONDS = 1800
SHOWN = ("eval/", "reward/mean", "loss/", "pairs/", "teacher/gap")
"""Beginnings of the metrics that a result keeps."""


def result_of(trial: Trial) -> dict[str, Any] | None:
    """Return what an earlier run of the very same spec measured, or None."""
    file = RESULTS / f"{trial.name}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found if found.get("spec") == spec_of(trial, TEACHER_MODEL) else None


def run_trial(trial: Trial, head: RayHead) -> dict[str, Any]:
    """Train, measure the model before and after, and keep the numbers.

    Raises: AssertionError with what the driver printed.
    """
    if not TEACHER_MODEL.exists():
        _train_teacher(head)
    spec = spec_of(trial, TEACHER_MODEL)
    began = time.monotonic()
    ended = _ended(RESULTS / "runs" / trial.name, spec, head)
    found = {
        "spec": spec,
        "revision": _revision(),
        "seconds": round(time.monotonic() - began, 1),
        "measures": measures_of(ended),
        "curves": curves_of(ended),
    }
    (RESULTS / f"{trial.name}.json").write_text(json.dumps(found))
    shutil.rmtree(ended.run_dir)
    return found


def measures_of(ended: EndedRun) -> dict[str, list[float]]:
    """Return what was measured on held-out data before the first step and after the last, by name.

    `accuracy` is what Transformers finds of a folder whose model writes text; the others the trainer told.
    """
    told = {name: [of[min(of)], of[max(of)]] for name, of in curves_of(ended).items() if name.startswith("eval/")}
    model = ended.run_dir / "model" / "final"
    if speaks(model):
        told[ACCURACY] = [_accuracy_of_base(), accuracy(model, held_out_rows(NUM_HELD_OUT))]
    return told


@cache
def _accuracy_of_base() -> float:
    return accuracy(model_folder(parse_spec({}).model), held_out_rows(NUM_HELD_OUT))


def curves_of(ended: EndedRun) -> dict[str, dict[int, float]]:
    """Return the metrics that are kept, by name and step."""
    names = {name for event in ended.of("metric") for name in event["values"] if name.startswith(SHOWN)}
    return {name: ended.series(name) for name in sorted(names)}


def _ended(run_dir: Path, spec: Mapping[str, Any], head: RayHead) -> EndedRun:
    shutil.rmtree(run_dir, ignore_errors=True)
    ended = Running(run_dir, dict(spec), head, ENGINE, is_warm=True).wait(RUN_SECONDS)
    assert ended.code == 0, ended.output
    return ended


def _train_teacher(head: RayHead) -> None:
    ended = _ended(RESULTS / "runs" / "teacher", {**TEACHER, "profile": {"nsys_ready": "off"}}, head)
    (ended.run_dir / "model" / "final").rename(TEACHER_MODEL)
    shutil.rmtree(ended.run_dir)


def _revision() -> str:
    said = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    return said.stdout.strip()
