"""What step times of single runs may differ by is measured on the project's own repeats, where there are enough."""

from typing import Any

import numpy as np
import pytest

from jobs.comparison.compare import compare
from jobs.comparison.conditions import RunConditions
from jobs.comparison.environment import conditions_of
from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.repeats import run_spreads
from jobs.comparison.verdict import OF_DEMO
from jobs.ingest.compaction import append_points
from jobs.models import Metric, Project, Run, RunEvent
from jobs.telemetry.chunks import points
from tests.rows import NOW, make_project, make_run

pytestmark = pytest.mark.django_db
LOGS = (0.0, 0.01, 0.03, -0.02, 0.0)  # about their mean 0.004 the squares sum up to 0.00132


def timed(project: Project, seconds: float, *, seed: int, lr: float = 1e-5, devices: str = "", **more: Any) -> Run:
    """Return a finished run of 40 steps that took so long each, after three that took ten times as long."""
    knobs = {
        "train.seed": {"value": seed, "origin": "you"},
        "optimizer.learning_rate": {"value": lr, "origin": "recipe"},
    }
    spec = {"algorithm": "grpo", "model": {"id": "m"}, "trainer": {"name": "native"}, "knobs": knobs}
    run = make_run(project, state="finished", spec=spec, **more)
    row = Metric.objects.create(run=run, name="time/step_seconds")
    x = np.arange(1, 41)
    append_points({row.pk: points(x, x, np.array([10 * seconds] * 3 + [seconds] * 37))}, attempt=1, through=0)
    Run.objects.filter(pk=run.pk).update(step=40, ended_at=NOW)
    if devices:
        note = {"environment": {"devices": [devices]}}
        RunEvent.objects.create(run=run, verb="note", at=NOW, data=note)
    run.refresh_from_db()
    return run


def test_repeats_are_runs_that_differ_in_seeds_alone() -> None:
    project = make_project()
    runs = [timed(project, float(np.exp(log)), seed=seed) for seed, log in enumerate(LOGS)]
    timed(project, 3.0, seed=1, lr=2e-5)  # another configuration, once
    timed(make_project("other"), 9.0, seed=1)  # another project

    found = run_spreads(runs[0], RunConditions()).of(STEP_METRIC)

    assert found.log_sd == pytest.approx(np.sqrt(0.00132 / 4))
    assert (found.degrees, found.num_runs) == (4, 5)
    assert compare(runs=runs[:2], base_id=runs[0].pk).spread == found


def test_what_was_made_on_other_devices_or_still_runs_is_no_repeat() -> None:
    project = make_project()
    runs = [timed(project, float(np.exp(log)), seed=seed, devices="A") for seed, log in enumerate(LOGS)]
    for seed in (7, 8):
        timed(project, 5.0, seed=seed, devices="B")
    Run.objects.filter(pk=timed(project, 7.0, seed=9, devices="A").pk).update(state="running")
    base = runs[0]

    assert run_spreads(base, conditions_of([base])[base.pk]).of(STEP_METRIC).num_runs == 5


def test_too_few_repeats_leave_what_seeds_of_the_demo_differed_by() -> None:
    project = make_project()
    runs = [timed(project, 1.0, seed=seed) for seed in range(4)]

    assert run_spreads(runs[0], RunConditions()) == OF_DEMO
