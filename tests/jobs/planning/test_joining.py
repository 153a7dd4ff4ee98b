"""Finished runs join the calibration of what they were on by themselves: once, robustly, with the error before and
after; on the CPU from the first one on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser

from jobs.cluster.ray_api import ClusterState, Node
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Project, Run
from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.result import Interval
from jobs.planning import joining
from jobs.planning.joining import join_run, joining_of, joinings, set_joining, waiting
from jobs.planning.plan_vs_measured import RunMeasurements
from jobs.planning.run_plan import question_of, run_plan
from jobs.planning.settings import change_settings, constants_of, undo_calibration
from jobs.processes import tasks
from jobs.processes.reconcile import ReconcilerState, _join_finished
from profiling import events
from tests.batches import T0, delivery
from tests.measured_runs import measured_run
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

NODE = Node(id="n", address="", is_head=True, accelerator="", gpus=0.0, cpus=8.0, memory_bytes=16 << 30)
HERE = ClusterState(is_reachable=True, problem="", away_since=None, nodes=(NODE,), cpus_total=8.0, gpus_total=0.0)
NO_NODE = replace(HERE, nodes=())  # of runs on GPUs it is kept what they were on
PACE = 12.0  # a CPU may be that far from the figures that are assumed of it


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project) -> AbstractUser:
    return make_user(project=project, role="admin")


def cpu_run(project: Project, admin: AbstractUser, *, state: str = "finished", pace: float = PACE, **knobs: Any) -> Run:
    """Return a run of the built-in trainer on a CPU whose phases take `pace` times what is assumed."""
    names = {name.replace("__", "."): value for name, value in knobs.items()}
    spec = {"algorithm": "grpo", "hardware": {"layout": "split", "device": "cpu"}, "knobs": names}
    run = make_run(project, state=state, spec=spec, user=admin)
    if state != "finished":
        return run
    asked = question_of(run, user=admin, state=HERE, measured=RunMeasurements(), reads=False)
    planned = estimate(asked.job, shipped_constants()).time.phases
    values = {f"time/{phase}_seconds": seconds.middle * pace for phase, seconds in planned.items()}
    values["time/step_seconds"] = sum(values.values()) / 0.9
    told = [events.metric(values, attempt=1, step=number, t=T0 + number) for number in range(1, 6)]
    store([delivery(run.pk, 1, told)], memory=AttemptCache(), now=NOW)
    return run


def join(run: Run, state: ClusterState = HERE) -> joining.Joining:
    made = join_run(run.pk, state=state, now=NOW)
    assert made is not None
    return made


def step_of(run: Run, admin: AbstractUser) -> Interval | None:
    found = run_plan(Run.objects.get(pk=run.pk), user=admin, state=HERE).rows
    return next((row.predicted for row in found if row.phase == "step"), None)


def width(seconds: Interval) -> float:
    return seconds.high / seconds.middle


def test_after_the_first_run_on_a_cpu_another_setting_has_a_step_time(project: Project, admin: AbstractUser) -> None:
    other = cpu_run(project, admin, state="queued", rollout__prompts_per_step=32)
    assert step_of(other, admin) is None

    first = join(cpu_run(project, admin, rollout__prompts_per_step=8))

    assert (first["accelerator"], first["num_settings"], first["before"]) == ("cpu", 1, None)
    assert first["after"] == pytest.approx(0, abs=1e-6)
    update = first["constants"]["speed.update_pace"]
    assert update["was"] is None
    assert update["value"] == pytest.approx(PACE)
    after_one = step_of(other, admin)
    assert after_one is not None
    assert width(after_one) > 1.5  # it rests on one run; errors of its phases add as squares

    for prompts, pace in ((12, PACE * 1.2), (16, PACE / 1.2), (24, PACE), (48, PACE)):
        last = join(cpu_run(project, admin, pace=pace, rollout__prompts_per_step=prompts))

    assert last["before"] == pytest.approx(0, abs=0.02)  # its plan had not seen it
    after_five = step_of(other, admin)
    assert after_five is not None
    assert after_five.middle == pytest.approx(after_one.middle, rel=0.02)
    assert width(after_five) < width(after_one)
    assert joinings(Project.objects.get(pk=project.pk))[0]["run"] == last["run"]


def test_a_run_is_held_against_what_was_known_before_it_finished(project: Project, admin: AbstractUser) -> None:
    first, second = (cpu_run(project, admin, pace=pace, rollout__prompts_per_step=8) for pace in (PACE, 3 * PACE))
    join(first)
    known = step_of(second, admin)
    join(second)

    assert step_of(first, admin) is None, "nothing was known of this CPU"
    assert known is not None
    assert step_of(second, admin) == known


def test_a_run_joins_once_and_what_others_did_meanwhile_stays(
    project: Project, admin: AbstractUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (cpu_run(project, admin, rollout__prompts_per_step=n) for n in (8, 16))
    made, runs = joining._made, [other]

    def interrupted(run: Run, **words: Any) -> Any:
        answer = made(run, **words)
        if runs:
            monkeypatch.setattr(joining, "_made", made)
            join(runs.pop())
        return answer

    monkeypatch.setattr(joining, "_made", interrupted)
    join(one)

    kept = Project.objects.get(pk=project.pk)
    assert [each["run"] for each in joinings(kept)] == [one.pk, other.pk]
    assert kept.calibrations["cpu"]["num_runs"] == 2
    assert join_run(one.pk, state=HERE, now=NOW) is None
    assert Project.objects.get(pk=project.pk).calibrations == kept.calibrations


def test_on_gpus_runs_join_where_others_are_foretold_better_and_a_strange_one_moves_nothing(
    project: Project, admin: AbstractUser
) -> None:
    for prompts in (64, 128):
        assert join(measured_run(project, admin, prompts=prompts, update=2.0), NO_NODE)["constants"] == {}
    third = join(measured_run(project, admin, prompts=256, update=2.0), NO_NODE)
    assert third["constants"]["speed.update_pace"] == {"was": 1, "value": pytest.approx(2)}
    assert third["before"] > third["after"]  # type: ignore[operator]

    strange = join(measured_run(project, admin, prompts=512, update=40.0), NO_NODE)

    assert "speed.update_pace" not in strange["constants"]
    project.refresh_from_db()
    assert constants_of(project, "h200-sxm").speed.update_pace == pytest.approx(2)


def test_what_people_set_wins_and_what_they_undo_stays_undone(project: Project, admin: AbstractUser) -> None:
    join(cpu_run(project, admin, rollout__prompts_per_step=8))
    project.refresh_from_db()
    change_settings(project=project, constants={"decode.pace": 3.0}, actor=admin, today=NOW.date())
    assert "decode.pace" not in join(cpu_run(project, admin, rollout__prompts_per_step=16))["constants"]
    project.refresh_from_db()
    assert constants_of(project, "cpu").decode.pace == 3

    assert undo_calibration(project=project, accelerator="cpu", actor=admin)

    assert project.calibrations == {}
    assert join(cpu_run(project, admin, rollout__prompts_per_step=24))["constants"] == {}
    project.refresh_from_db()
    set_joining(project=project, is_on=False, actor=admin)
    late = cpu_run(project, admin, rollout__prompts_per_step=48)
    assert join_run(late.pk, state=HERE, now=NOW) is None
    assert waiting(now=NOW) == []
    set_joining(project=project, is_on=True, actor=admin)
    assert join(late)["constants"]


def test_the_reconciler_asks_for_each_run_once_a_minute_until_it_has_joined(
    project: Project, admin: AbstractUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, silent = cpu_run(project, admin), make_run(project, state="finished", spec={}, user=admin)
    asked: list[str] = []
    monkeypatch.setattr(tasks, "enqueue", lambda task, **about: asked.append(about["run_id"]))
    memory = ReconcilerState()
    for seconds in (0, 1, 59, 60):
        _join_finished(NOW + timedelta(seconds=seconds), memory)
    assert asked == [run.pk, silent.pk] * 2

    monkeypatch.setattr("jobs.cluster.ray_api.read_state", lambda: HERE)
    for run_id in asked:
        tasks.join_calibration(run_id=run_id)

    assert waiting(now=NOW) == []
    assert joining_of(Run.objects.get(pk=silent.pk))["why_not"]  # type: ignore[index]
    assert Run.objects.get(pk=run.pk).state == "finished"
    assert Attempt.objects.get(run=run).state == "finished"
