"""What finished runs say of the planner: each held against its own plan, by kind of device; taken over, and undone."""

from datetime import date

import pytest
from django.contrib.auth.models import AbstractUser

from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, AuditEvent, Metric, Project, Run
from jobs.planning.calibration import Calibrations, NothingToTake, apply, calibrations
from jobs.planning.run_plan import run_plan
from jobs.planning.settings import change_settings, constants_of, undo_calibration
from profiling import events
from tests.batches import T0, delivery
from tests.measured_runs import AWAY, four_runs, measured_run, spec_of
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

TODAY = date(2026, 11, 20)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project) -> AbstractUser:
    return make_user(project=project, role="admin")


def say(project: Project, admin: AbstractUser) -> Calibrations:
    return calibrations(project, user=admin, state=AWAY)


def test_runs_are_taken_over_and_their_plans_come_to_lie_where_they_were(project: Project, admin: AbstractUser) -> None:
    runs = four_runs(project, admin, rollout=1.6, update=0.7)

    (kind,) = say(project, admin).kinds
    assert (kind.accelerator.id, kind.num_runs) == ("h200-sxm", 4)
    assert kind.calibration.values == pytest.approx(
        {"decode.pace": 1.6, "speed.update_pace": 0.7, "speed.other_share": 0.1}
    )
    apply(project, "h200-sxm", user=admin, state=AWAY, today=TODAY)

    pace = constants_of(project, "h200-sxm").get("decode.pace")
    assert (pace.value, pace.evidence, pace.is_changed) == (pytest.approx(1.6), "measured", True)
    assert pace.source == "measured on 4 finished runs of this project"
    again_read = Run.objects.get(pk=runs[0].pk)
    update = next(row for row in run_plan(again_read, user=admin, state=AWAY).rows if row.phase == "update")
    assert update.difference == pytest.approx(0, abs=0.02)  # a plan fills micro-batches to their caps, a run seldom
    assert constants_of(project, "l4").decode.pace == 1  # another kind of device
    assert constants_of(project).decode.pace == 1  # none in particular
    (again,) = say(project, admin).kinds
    assert (again.calibration.values, again.on) == ({}, "2026-11-20")
    with pytest.raises(NothingToTake, match="suggest no better value"):
        apply(project, "h200-sxm", user=admin, state=AWAY, today=TODAY)


def test_what_was_taken_over_is_undone_step_by_step(project: Project, admin: AbstractUser) -> None:
    four_runs(project, admin, update=2.0)
    apply(project, "h200-sxm", user=admin, state=AWAY, today=TODAY)
    Run.objects.filter(project=project).delete()
    four_runs(project, admin, update=3.0)
    apply(project, "h200-sxm", user=admin, state=AWAY, today=TODAY)
    assert constants_of(project, "h200-sxm").speed.update_pace == pytest.approx(3.0)

    assert undo_calibration(project=project, accelerator="h200-sxm", actor=admin)
    assert constants_of(project, "h200-sxm").speed.update_pace == pytest.approx(2.0)
    assert undo_calibration(project=project, accelerator="h200-sxm", actor=admin)
    assert not undo_calibration(project=project, accelerator="h200-sxm", actor=admin)

    project.refresh_from_db()
    assert project.calibrations == {}
    verbs = AuditEvent.objects.filter(object_id=project.slug).order_by("pk").values_list("verb", flat=True)
    assert list(verbs) == ["planner.calibrate"] * 2 + ["planner.uncalibrate"] * 2


def test_kinds_of_devices_do_not_mix(project: Project, admin: AbstractUser) -> None:
    four_runs(project, admin, update=2.0)
    for prompts in (64, 128, 256):
        measured_run(project, admin, prompts=prompts, kind="H100", update=0.5)

    found = {kind.accelerator.id: kind.calibration.values["speed.update_pace"] for kind in say(project, admin).kinds}

    assert found == pytest.approx({"h200-sxm": 2.0, "h100-sxm": 0.5})


def test_a_run_is_held_against_what_it_generated(project: Project, admin: AbstractUser) -> None:
    """Long and short answers take the planner's time for each: no pace is to be learned from that."""
    for prompts, response in ((64, 100.0), (128, 300.0), (256, 500.0)):
        measured_run(project, admin, prompts=prompts, response=response, rollout=1.5)

    (kind,) = say(project, admin).kinds

    assert kind.calibration.values["decode.pace"] == pytest.approx(1.5)


def test_the_same_setting_again_is_no_further_setting(project: Project, admin: AbstractUser) -> None:
    for seed in range(4):
        measured_run(project, admin, prompts=64, knobs={"train.seed": seed}, response=300.0 + seed, update=2.0)

    (kind,) = say(project, admin).kinds

    assert kind.num_runs == 4
    assert {each.num_settings for each in kind.calibration.proposals} == {1}
    assert kind.calibration.values == {}


def test_runs_that_say_nothing_are_counted_with_the_reason(project: Project, admin: AbstractUser) -> None:
    measured_run(project, admin, steps=3)
    older = measured_run(project, admin)
    Attempt.objects.filter(run=older).update(ran_on={})
    moved = measured_run(project, admin)
    Attempt.objects.create(run=moved, number=2, submission_id="x", num_gpus=8, ran_on={"nodes": []})
    make_run(project, state="failed", spec=spec_of(64))

    found = say(project, admin)

    assert found.kinds == ()
    assert dict(found.left_out) == {
        "It reports the time of fewer than four steps.": 1,
        "The devices of this run were not stored. Choose the hardware that it ran on.": 1,
        "Its attempts ran on different devices.": 1,
    }
    with pytest.raises(NothingToTake, match="No finished run on h200-sxm"):
        apply(project, "h200-sxm", user=admin, state=AWAY, today=TODAY)


def test_what_somebody_sets_counts_everywhere(project: Project, admin: AbstractUser) -> None:
    four_runs(project, admin, update=2.0, rollout=1.5)
    apply(project, "h200-sxm", user=admin, state=AWAY, today=TODAY)

    change_settings(project=project, constants={"speed.update_pace": 1.25}, actor=admin, today=TODAY)

    k = constants_of(project, "h200-sxm")
    assert (k.speed.update_pace, k.decode.pace) == (1.25, pytest.approx(1.5))
    assert k.get("speed.update_pace").evidence == "set"
    assert k.get("speed.update_pace").source == "set by the project"


def test_runs_of_other_projects_say_nothing_here(project: Project, admin: AbstractUser) -> None:
    four_runs(make_project(), admin, update=2.0)

    assert say(project, admin).kinds == ()


def test_what_a_trainer_says_may_be_anything(project: Project, admin: AbstractUser) -> None:
    runs = four_runs(project, admin, update=2.0)
    for run, wild in zip(runs, (1e300, -5.0, 1e-300, 0.0), strict=True):
        Metric.objects.filter(run=run, name="time/reference_seconds").delete()
        told = [
            events.metric({"time/reference_seconds": wild}, attempt=1, step=number, t=T0 + 99 + number)
            for number in range(1, 6)
        ]
        store([delivery(run.pk, 2, told)], memory=AttemptCache(), now=NOW)

    (kind,) = say(project, admin).kinds

    assert kind.calibration.values["speed.update_pace"] == pytest.approx(2.0)


def test_attempts_on_alike_nodes_are_one_place(project: Project, admin: AbstractUser) -> None:
    runs = four_runs(project, admin, update=2.0)
    first = Attempt.objects.get(run=runs[0])
    row = {**first.ran_on["nodes"][0], "memory_bytes": 9e11, "count": 2}  # Ray was started again, with another node
    resumed = {"submission_id": "again", "resume_attempt": 1, "resume_step": 5}
    Attempt.objects.create(run=runs[0], number=2, num_gpus=8, ran_on={"nodes": [row]}, **resumed)
    Run.objects.filter(pk=runs[0].pk).update(latest_attempt=2)

    (kind,) = say(project, admin).kinds

    assert kind.num_runs == 4
