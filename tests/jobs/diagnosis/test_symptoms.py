"""What a run looks like: found in what its runner reported, however much that is, and in nothing that is over."""

import traceback
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.diagnosis.health import alarms_of
from jobs.diagnosis.numbers import FIRST, HORIZON, read_lines
from jobs.diagnosis.symptoms import MAX_LINES, OWN_LINES, RunSymptoms, run_symptoms
from jobs.ingest.compaction import compact
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, HealthMark, Run
from profiling import events as make
from tests.attempts import end
from tests.batches import delivery, metric
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db

# What torch prints; tests/jobs/catalog/rules/test_symptom.py takes such lines from the programs themselves.
NO_DEVICE_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def last_words(fails: Callable[[], object]) -> list[str]:
    """Return what Python prints when this fails."""
    try:
        fails()
    except BaseException:
        return traceback.format_exc().splitlines()
    raise AssertionError("It did not fail.")


def report(run: Run, *events: make.Event, attempt: int = 1) -> None:
    """Store one batch of the attempt."""
    batch = Attempt.objects.get(run=run, number=attempt).durable_batch + 1
    store([delivery(run.pk, batch, events, attempt=attempt)], memory=AttemptCache(), now=NOW)


def log(lines: list[str], *, role: str = "driver", rank: int = 0, attempt: int = 1) -> make.Event:
    return make.log(lines, attempt=attempt, role=role, rank=rank, stream="stderr")


def found(run: Run) -> RunSymptoms:
    run.refresh_from_db()
    return run_symptoms(run, now=NOW)


def ids(run: Run) -> list[str]:
    return [match.symptom.id for match in found(run).matches]


def test_a_failure_is_known_by_its_last_words_with_the_place_where_they_stand() -> None:
    run = make_run(state="running", spec={"knobs": {"train.micro_batch_size": 4}})
    report(run, log(["step 1"]), log(["step 1 of rank 1", NO_DEVICE_MEMORY], role="policy", rank=1))
    end(run)

    looked = found(run)

    (match,) = looked.matches
    assert match.symptom.id == "memory.device"
    (evidence,) = match.evidence
    assert evidence.text == NO_DEVICE_MEMORY
    line = looked.lines[evidence.text]
    assert (line.role, line.rank, line.line) == ("policy", 1, 1)
    changes = [dict(offer.fix.changes) for offer in match.remedies if offer.fix is not None]
    assert changes[0] == {"train.micro_batch_size": 2}
    assert looked.computed_at == NOW


@pytest.mark.parametrize(
    ("fails", "symptom"),
    [
        (lambda: bytearray(1 << 62), "memory.host"),
        (lambda: __import__("a_module_of_nobody"), "start.missing_package"),
    ],
    ids=["memory", "module"],
)
def test_real_last_words_are_recognized(fails: Callable[[], object], symptom: str) -> None:
    run = make_run(state="running")
    report(run, log(last_words(fails)))
    end(run)

    assert ids(run) == [symptom]


def test_what_one_process_said_is_found_under_what_others_said_after_it() -> None:
    run = make_run(state="running")
    report(run, log([NO_DEVICE_MEMORY], role="policy", rank=1))
    for batch in range(20):
        report(run, *[log([f"{batch} {i} of {rank}" for i in range(400)], role="vllm", rank=rank) for rank in range(3)])
    end(run)

    looked = found(run)

    assert [match.symptom.id for match in looked.matches] == ["memory.device"]
    assert looked.num_lines <= MAX_LINES


def test_what_was_survived_long_ago_is_not_what_it_looks_like() -> None:
    run = make_run(state="running")
    report(run, log([NO_DEVICE_MEMORY]))
    report(run, log([f"step {i}" for i in range(MAX_LINES + OWN_LINES)]))

    assert ids(run) == []


def test_the_cause_counts_where_no_line_was_shipped() -> None:
    run = make_run(state="running")
    Attempt.objects.filter(run=run).update(
        state="failed", cause={"side": "trainer", "text": "policy rank 0 died", "log_line": NO_DEVICE_MEMORY}
    )

    looked = found(run)

    assert [match.symptom.id for match in looked.matches] == ["memory.device"]
    assert looked.lines == {}


def test_a_line_is_known_with_what_ray_and_colors_put_before_it() -> None:
    run = make_run(state="running")
    report(run, log(["\x1b[36m(PolicyActor pid=812, ip=10.0.0.5)\x1b[0m MemoryError"]))

    looked = found(run)

    (evidence,) = looked.matches[0].evidence
    assert looked.matches[0].symptom.id == "memory.host"
    assert evidence.text == "(PolicyActor pid=812, ip=10.0.0.5) MemoryError"
    assert looked.lines[evidence.text].line == 0


@pytest.mark.parametrize("step_seconds", [0.004, 0.2, 2000.0])
def test_no_phase_is_too_short_to_be_a_symptom(step_seconds: float) -> None:
    run = make_run(state="running")
    shares = {"time__step_seconds": step_seconds, "time__rollout_seconds": 0.9 * step_seconds}
    values(run, range(1, 11), **shares)

    assert ids(run) == ["speed.rollout_dominates"]


def values(run: Run, steps: range, *, attempt: int = 1, **numbers: float) -> None:
    named = {name.replace("__", "/"): value for name, value in numbers.items()}
    report(run, *[metric(step, attempt=attempt, **named) for step in steps], attempt=attempt)


@pytest.mark.parametrize("is_folded", [False, True])
def test_numbers_are_those_of_the_newest_steps(is_folded: bool) -> None:
    run = make_run(state="running", spec={"knobs": {"optimizer.learning_rate": 1e-3}})
    values(run, range(1, HORIZON + 500), kl__reference=0.1)
    values(run, range(HORIZON + 500, HORIZON + 510), kl__reference=0.75)
    if is_folded:
        run.refresh_from_db()
        compact(run_id=run.pk, limit=run.seq)

    (match,) = found(run).matches

    assert match.symptom.id == "learning.kl_runs_away"
    assert "median of the last 10 values is 0.75" in match.evidence[0].text
    first = match.remedies[0]
    assert first.fix is not None
    assert dict(first.fix.changes) == {"optimizer.learning_rate": 5e-4}


@pytest.mark.parametrize("is_folded", [False, True])
def test_of_a_long_run_the_newest_values_count_and_those_with_which_it_began(is_folded: bool) -> None:
    run, newest = make_run(state="running"), 3 * HORIZON
    values(run, range(1, newest + 1), loss__policy=0.1)
    values(run, range(10, newest + 1, 10), reward__mean=0.3)  # of a trainer that reports every tenth step
    values(run, range(1500, 1801, 300), eval__accuracy=0.4)
    values(run, range(1, 501), kl__reference=0.1)  # told no longer
    if is_folded:
        run.refresh_from_db()
        compact(run_id=run.pk, limit=run.seq)
    names = {"loss/policy", "reward/mean", "eval/accuracy", "kl/reference"}

    lines = read_lines(run.pk, names, step=newest)

    steps = {name: xs for name, (xs, _ys) in lines.items()}
    assert steps["loss/policy"] == [*range(1, FIRST + 1), *range(newest - HORIZON, newest + 1)]
    assert steps["reward/mean"] == list(range(10, newest + 1, 10))
    assert steps["eval/accuracy"] == [1500, 1800]
    assert "kl/reference" not in steps


def test_what_began_first_stands_first_as_the_rest_often_follows_from_it() -> None:
    run = make_run(state="running")
    values(run, range(1, 31), kl__reference=2.9, loss__policy=float("nan"))
    stored = ids(run)
    assert len(stored) == 2
    for step, finding in enumerate(reversed(stored), start=1):
        HealthMark.objects.create(run=run, finding=finding, tone="alarm", begin_step=step, last_step=30, began_at=NOW)
    report(run, log([NO_DEVICE_MEMORY]))

    assert ids(run) == ["memory.device", *reversed(stored)]  # neither follows from the other
    assert found(run).since == {finding: step for step, finding in enumerate(reversed(stored), start=1)}


def test_what_follows_from_another_stands_after_it_though_it_began_before() -> None:
    run = make_run(state="running")
    values(run, range(1, 31), kl__reference=2.9, response__truncated_fraction=1.0)
    for finding, step in (("learning.truncated", 7), ("learning.kl_runs_away", 12)):
        HealthMark.objects.create(run=run, finding=finding, tone="alarm", begin_step=step, last_step=30, began_at=NOW)

    assert ids(run) == ["learning.kl_runs_away", "learning.truncated"]
    assert [mark.finding for mark in alarms_of([run.pk])[run.pk]] == ["learning.kl_runs_away", "learning.truncated"]


def test_what_a_cause_wants_lower_is_not_raised_for_what_follows_from_it() -> None:
    flat, runaway = make_run(state="running"), make_run(state="running")
    for run, kl in ((flat, 0.01), (runaway, 9.0)):
        values(run, range(1, 61), reward__mean=0.1, reward__unseen_rise=0.03, kl__reference=kl)

    def moves(run: Run, name: str) -> list[float]:
        (match,) = (each for each in found(run).matches if each.symptom.id == name)
        rates = (offer.fix.changes.get("optimizer.learning_rate") for offer in match.remedies if offer.fix)
        return [rate for rate in rates if isinstance(rate, float)]

    assert moves(flat, "learning.reward_stays_flat") == [pytest.approx(9e-4)]
    assert ids(runaway).index("learning.kl_runs_away") < ids(runaway).index("learning.reward_stays_flat")
    assert moves(runaway, "learning.kl_runs_away") == [pytest.approx(1.5e-4)]
    assert moves(runaway, "learning.reward_stays_flat") == []


def test_a_value_that_is_no_number_counts() -> None:
    run = make_run(state="running")
    values(run, range(1, 6), loss__policy=0.1)
    values(run, range(6, 7), loss__policy=float("nan"))

    assert ids(run) == ["learning.not_a_number"]


def test_steps_that_were_resumed_past_do_not_count() -> None:
    run = make_run(state="running")
    values(run, range(1, 21), kl__reference=0.1)
    values(run, range(21, 41), kl__reference=2.9)
    end(run)
    Attempt.objects.create(run=run, number=2, submission_id=f"{run.pk}-2", resume_attempt=1, resume_step=20)
    Run.objects.filter(pk=run.pk).update(latest_attempt=2, step=20)

    assert ids(run) == []


def test_while_a_retry_waits_the_attempt_before_it_is_looked_at() -> None:
    run = make_run(state="running")
    report(run, log([NO_DEVICE_MEMORY]))
    end(run)
    second = Attempt.objects.create(run=run, number=2, submission_id=f"{run.pk}-2")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2, state="queued")

    assert (found(run).attempt, ids(run)) == (1, ["memory.device"])

    Attempt.objects.filter(pk=second.pk).update(state="running")
    assert (found(run).attempt, ids(run)) == (2, [])


@pytest.mark.parametrize("fields", [{}, {"spec": {"algorithm": "sft"}}, {"spec": {"trainer": {"name": "verl"}}}])
def test_a_healthy_run_looks_like_nothing(fields: dict[str, Any]) -> None:
    run = make_run(state="running", **fields)
    lines = ["Training starts.", "WARNING Failed to import: ModuleNotFoundError(\"No module named 'flash'\")", ""]
    report(run, log(lines))
    values(run, range(1, 60), kl__reference=0.01, policy__entropy=1.2, loss__policy=0.1, loss__sft=0.5)

    assert ids(run) == []


def test_how_much_is_read_does_not_depend_on_how_long_the_log_is() -> None:
    run = make_run(state="running")
    counts = []
    for _ in range(2):
        report(run, *[log([f"line {i}" for i in range(500)], role="policy", rank=rank) for rank in range(4)])
        with CaptureQueriesContext(connection) as queries:
            found(run)
        counts.append(len(queries))

    assert counts[0] == counts[1] < 30
