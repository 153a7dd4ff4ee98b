"""Sweeps: all runs or none, once however often one clicks, stopped together, so many at once."""

from typing import Any

import pytest

from jobs.catalog.spec.parse import SpecInvalid
from jobs.models import Attempt, AuditEvent, Command, Project, Run, Study
from jobs.runs import admission, lifecycle
from jobs.runs.launch import KeyReused
from jobs.sweeps.sweeps import change_max_concurrent, create_study, stop_study
from jobs.sweeps.table import is_better, study_state
from tests.jobs.runs.test_admission import cluster
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

RATE = "optimizer.learning_rate"
SMALL = {"hardware": {"policy_ranks": 1}, "knobs": {"algorithm.kl_coefficient": 0}}  # 2 CPUs


def make_study(project: Project | None = None, **fields: Any) -> Study:
    return made(project or make_project(), **fields)[0]


def made(project: Project, **fields: Any) -> tuple[Study, bool]:
    asked: dict[str, Any] = {
        "name": "rates",
        "spec": SMALL,
        "knobs": [{"id": RATE, "values": [1e-4, 3e-4, 1e-3, 3e-3]}],
        "method": "grid",
        "num_runs": None,
        "max_concurrent": 2,
        "seed": 0,
        "user": None,
        "idempotency_key": None,
        "now": NOW,
    }
    return create_study(project=project, **asked | fields)


def runs_of(study: Study) -> list[Run]:
    return [a.run for a in Attempt.objects.filter(run__study=study).select_related("run").order_by("pk")]


def states(study: Study) -> list[str]:
    return [run.state for run in runs_of(study)]


def admit(**cluster_size: Any) -> None:
    admission.admit_waiting(state=cluster(**cluster_size), now=NOW)


def end(run: Run) -> None:
    lifecycle.finish(run_id=run.pk, attempt=1, state="finished", cause={}, cleanup={"processes_left": 0}, now=NOW)


def test_a_sweep_queues_one_run_a_point_with_its_values() -> None:
    user = make_user("ada")

    study = make_study(user=user)

    runs = runs_of(study)
    assert [run.name for run in runs] == [f"rates · lr={text}" for text in ("1e-4", "3e-4", "0.001", "0.003")]
    assert [run.study_values for run in runs] == [{RATE: v} for v in (1e-4, 3e-4, 1e-3, 3e-3)]
    assert [run.spec["knobs"][RATE] for run in runs] == [
        {"value": v, "origin": "you"} for v in (1e-4, 3e-4, 1e-3, 3e-3)
    ]
    assert {run.created_by_id for run in runs} == {user.pk}
    assert (study.num_runs, study.max_concurrent, study.spec["name"]) == (4, 2, "rates")
    assert AuditEvent.objects.get(verb="study.create").object_id == study.pk


def test_one_bad_point_and_nothing_is_created() -> None:
    with pytest.raises(SpecInvalid, match="With prompts_per_step=3"):
        make_study(
            spec={"hardware": {"policy_ranks": 2}, "knobs": {"rollout.samples_per_prompt": 5}},
            knobs=[{"id": "rollout.prompts_per_step", "values": [2, 4, 3]}],
        )

    assert (Study.objects.count(), Run.objects.count(), AuditEvent.objects.count()) == (0, 0, 0)


def test_a_failure_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = admission.demand, []

    def demand(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the database went away")
        return real(*args, **options)

    monkeypatch.setattr(admission, "demand", demand)
    with pytest.raises(RuntimeError):
        make_study()

    assert (Study.objects.count(), Run.objects.count()) == (0, 0)


def test_a_double_click_makes_one_sweep() -> None:
    project = make_project()

    first, is_first_new = made(project, idempotency_key="k")
    again, is_again_new = made(project, idempotency_key="k", max_concurrent=3)

    assert (is_first_new, is_again_new, first.pk == again.pk) == (True, False, True)
    assert Run.objects.count() == 4
    with pytest.raises(KeyReused, match="already made sweep"):
        made(project, idempotency_key="k", seed=7)


def test_only_so_many_run_at_once_and_the_rest_says_why() -> None:
    study = make_study()

    admit(cpus=64)

    assert states(study) == ["starting", "starting", "queued", "queued"]
    assert [r.wait_reason for r in runs_of(study)[2:]] == ["Waits for its sweep: 2 of 2 at once are running"] * 2
    end(runs_of(study)[0])
    admit(cpus=64)
    assert states(study) == ["finished", "starting", "starting", "queued"]


def test_a_long_queue_is_judged_again_with_few_queries(django_assert_max_num_queries: Any) -> None:
    make_study(knobs=[{"id": "train.seed", "values": list(range(40))}])
    admit(cpus=64)

    with django_assert_max_num_queries(9):
        admit(cpus=64)


def test_runs_held_back_block_nobody_behind_them() -> None:
    study = make_study(max_concurrent=1)
    later = make_run()
    other = make_study(max_concurrent=1)

    admit(cpus=64)

    later.refresh_from_db()
    assert (states(study)[:2], later.state, states(other)[:2]) == (
        ["starting", "queued"],
        "starting",
        ["starting", "queued"],
    )


def test_a_run_of_a_sweep_that_waits_for_room_keeps_its_place() -> None:
    study = make_study()
    small = make_run(spec={"algorithm": "sft", "hardware": {"policy_ranks": 1}})

    admit(cpus=1)

    small.refresh_from_db()
    assert states(study) == ["starting", "queued", "queued", "queued"]
    assert small.wait_reason == f"Waits behind {runs_of(study)[1].pk}, which came first"


def test_at_once_can_be_changed_while_it_runs() -> None:
    study, user = make_study(max_concurrent=1), make_user()
    admit(cpus=64)

    change_max_concurrent(study_id=study.pk, value=3, user=user)
    admit(cpus=64)
    change_max_concurrent(study_id=study.pk, value=1, user=user)
    admit(cpus=64)

    assert states(study) == ["starting", "starting", "starting", "queued"]
    assert runs_of(study)[3].wait_reason == "Waits for its sweep: 3 of 1 at once are running"
    assert AuditEvent.objects.filter(verb="study.max_concurrent").count() == 2
    with pytest.raises(SpecInvalid, match="0 is not allowed"):
        change_max_concurrent(study_id=study.pk, value=0, user=user)


def test_stop_all_cancels_the_queue_and_stops_what_runs() -> None:
    study, user = make_study(), make_user()
    admit(cpus=64)

    assert stop_study(study_id=study.pk, user=user, now=NOW) == 4
    admit(cpus=64)

    assert states(study) == ["stopping", "stopping", "stopped", "stopped"]
    assert Command.objects.filter(verb="stop", attempt__run__study=study).count() == 2
    assert stop_study(study_id=study.pk, user=user, now=NOW) == 0
    assert AuditEvent.objects.filter(verb="study.stop").count() == 1
    study.refresh_from_db()
    assert study.is_stop_requested


@pytest.mark.parametrize(
    ("counts", "is_stop_requested", "state"),
    [
        ({"queued": 3}, False, "queued"),
        ({"queued": 2, "starting": 1}, False, "running"),
        ({"queued": 2, "finished": 1}, False, "running"),
        ({"stopping": 1, "stopped": 2}, True, "stopping"),
        ({"running": 1, "stopped": 2}, True, "running"),
        ({"stopped": 2, "finished": 1}, True, "stopped"),
        ({"stopped": 1, "finished": 2}, False, "finished"),
        ({"finished": 1, "failed": 2}, False, "finished"),
        ({"failed": 2}, False, "failed"),
        ({}, False, "finished"),
    ],
)
def test_the_state_of_a_sweep_follows_from_its_runs(
    counts: dict[str, int], is_stop_requested: bool, state: str
) -> None:
    assert study_state(counts, is_stop_requested=is_stop_requested) == state


def test_better_is_what_the_dictionary_of_metrics_says() -> None:
    assert is_better("reward/mean", 2.0, 1.0)
    assert is_better("loss/sft", 1.0, 2.0)
    assert is_better("own/number", 2.0, 1.0)
