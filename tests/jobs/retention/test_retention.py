"""What a project's rules let go: said first, put into the trash by the same code, never what is still needed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobs.ingest.store import AttemptCache, store
from jobs.models import Artifact, Attempt, Capture, Frame, LogChunk, Retention, Run, RunUsage, Sample, TrashItem
from jobs.retention.apply import preview
from jobs.retention.deletion import restore
from jobs.retention.policy import RetentionRefused, RetentionRule, expendable, parse_rules, set_retention
from jobs.retention.purge import purge_step
from jobs.runs.checkpoints import Checkpoint, list_checkpoints, newest_visible
from jobs.runs.pins import pin_checkpoint
from jobs.storage.usage import count_again
from jobs.telemetry.logs import read_logs
from jobs.telemetry.samples import read_samples
from profiling import events
from tests.attempts import end, lose_checkpoint, train
from tests.batches import delivery
from tests.jobs.clock import Clock
from tests.rows import NOW, make_project, make_run, make_user

LATER = NOW + timedelta(days=40)
RULES = {kind: {"days": 30} for kind in ("logs", "samples", "captures", "checkpoints")}


def checkpoint(step: int, **fields: Any) -> Checkpoint:
    about: dict[str, Any] = {"attempt": 1, "size": 1, "is_visible": True, "score_name": "eval/reward", "score": None}
    about |= {"problem": "", "is_pinned": False, "is_after_divergence": False, "created_at": NOW}
    return Checkpoint(**(about | {"step": step} | fields))


ALL = [checkpoint(step, score=score) for step, score in ((50, 0.2), (40, 0.9), (30, 0.5), (20, None), (10, 0.9))]


@pytest.mark.parametrize(
    ("rule", "changes", "gone"),
    [
        (RetentionRule(days=30), {}, [40, 30, 20, 10]),  # the newest good one always stays
        (RetentionRule(days=30, keep_last=2), {}, [30, 20, 10]),
        (RetentionRule(days=30, keep_best=1), {}, [40, 30, 20]),  # of two alike the earlier
        (RetentionRule(days=30, keep_last=1, keep_best=2), {}, [30, 20]),
        (RetentionRule(days=50), {}, []),
        (RetentionRule(keep_last=1), {20: {"is_pinned": True}}, [40, 30, 10]),
        (RetentionRule(days=30), {50: {"problem": "is gone"}, 40: {"is_after_divergence": True}}, [50, 40, 20, 10]),
        (RetentionRule(days=30), {step: {"problem": "is gone"} for step in (50, 40, 30, 20, 10)}, [40, 30, 20, 10]),
        (RetentionRule(days=30, keep_last=1), {50: {"is_visible": False}}, [50, 30, 20, 10]),
    ],
)
def test_which_checkpoints_go(rule: RetentionRule, changes: dict[int, dict[str, Any]], gone: list[int]) -> None:
    there = [replace(c, **changes.get(c.step, {})) for c in ALL]

    assert [c.step for c in expendable(there, rule, now=LATER)] == gone


def test_a_loss_is_better_when_it_is_lower() -> None:
    there = [replace(c, score_name="eval/loss") for c in ALL]

    assert [c.step for c in expendable(there, RetentionRule(days=30, keep_best=1), now=LATER)] == [40, 30, 20, 10]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"frames": {"days": 1}}, "There is no retention of 'frames'"),
        ({"logs": {"days": 0}}, "logs.days is 0. Use a whole number from 1 to 3650"),
        ({"logs": {"keep_last": True}}, "logs.keep_last is True"),
        ({"logs": {"weeks": 1}}, "A rule holds days, keep_last, keep_best"),
        ({"samples": {"keep_best": 1, "days": 3}}, "Only checkpoints have a best one"),
        ({"checkpoints": {"keep_best": 1}}, "else all would go at once"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(raw: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RetentionRefused, match=sentence.replace("(", r"\(")):
        parse_rules(raw)


def trained(project: Any, state: str = "finished", **fields: Any) -> Run:
    """Return a run with three checkpoints, logs, a sample and a capture."""
    run = make_run(project, state="running", **fields)
    train(run, range(1, 61))
    said: list[events.Event] = [events.log([f"line {i}"], attempt=1, role="driver") for i in range(3)]
    about: dict[str, Any] = {"prompt": "1+1=", "completion": "2", "expected": "2", "reward": 1.0, "rewards": {}}
    said.append(events.sample(attempt=1, step=1, group=0, index=0, tokens=1, **about))
    store([delivery(run.pk, 2, said)], memory=AttemptCache(), now=NOW)
    Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", created_at=NOW)
    Artifact.objects.filter(run=run).update(created_at=NOW)
    if state != "running":
        end(run, state)
    run.refresh_from_db()
    return run


@pytest.mark.django_db
def test_what_is_said_is_what_goes_and_comes_back_or_not(clock: Clock) -> None:
    project = make_project()
    admin = make_user(project=project, role="admin")
    run, live = trained(project), trained(project, "running")
    pin_checkpoint(run_id=run.pk, attempt=1, step=20, is_pinned=True, user=admin, now=NOW)
    said = list(preview(project, parse_rules(RULES), now=LATER))
    assert not TrashItem.objects.exists()
    count_again([run.pk], now=NOW)
    assert RunUsage.objects.get(run=run).samples > 0

    set_retention(project=project, raw=RULES, trash_days=5, user=admin, now=NOW)
    clock.now = LATER
    clock.step()

    found = {item.kind: item for item in TrashItem.objects.all()}
    assert {each.kind for each in said} == {"logs", "samples", "capture", "checkpoints"}
    for each in said:
        item = found[each.kind]
        assert (item.run_id, item.num_things) == (run.pk, each.num_things)
        assert (item.bytes_here, item.bytes_cluster) == (each.bytes_here, each.bytes_cluster)
    assert found["logs"].num_things == 3
    assert [c.step for c in list_checkpoints(run)] == [60, 20]  # the newest, and the pinned one
    assert read_logs(run_id=run.pk).lines == ()
    assert read_samples(run_id=run.pk).total == 0
    assert not run.captures.exists()
    assert len(read_logs(run_id=live.pk).lines) == 3  # nothing of a live run
    assert [c.step for c in list_checkpoints(live)] == [60, 40, 20]

    for kind in ("logs", "checkpoints", "capture"):
        restore(item_id=found[kind].pk, user=admin, now=clock.now)
    assert len(read_logs(run_id=run.pk).lines) == 3
    assert [c.step for c in list_checkpoints(run)] == [60, 40, 20]
    assert run.captures.count() == 1
    clock.step(5 * 86_400 - 3600)
    assert Sample.objects.filter(run=run).exists()
    clock.step(7200)

    assert not Sample.objects.filter(run=run).exists()
    assert RunUsage.objects.get(run=run).samples == 0  # the quotas know at once
    assert LogChunk.objects.filter(run=run).exists()  # in the trash once more, since the rule stands
    assert Frame.objects.filter(run=run).count() == 2  # charts stay


@pytest.mark.django_db
def test_the_newest_runs_keep_theirs_and_so_does_what_others_start_from() -> None:
    project = make_project()
    old, base = trained(project), trained(project, now=NOW + timedelta(minutes=1))
    new = trained(project, now=NOW + timedelta(minutes=2))
    model = {"kind": "path", "id": f"/runs/{base.pk}/a1/checkpoints/step-20"}
    make_run(project, spec={"model": model})
    rules = parse_rules({"logs": {"days": 30, "keep_last": 2}, "checkpoints": {"days": 30}})

    going = {(each.kind, each.run_id) for each in preview(project, rules, now=LATER)}

    assert going == {
        ("logs", old.pk),
        ("checkpoints", old.pk),
        ("checkpoints", new.pk),
    }


@pytest.mark.django_db
def test_what_became_the_only_good_checkpoint_is_not_purged(clock: Clock) -> None:
    project = make_project()
    admin = make_user(project=project, role="admin")
    run = trained(project, "failed")
    set_retention(project=project, raw={"checkpoints": {"keep_last": 1}}, trash_days=1, user=admin, now=NOW)
    clock.step()
    assert [c.step for c in list_checkpoints(run)] == [60]
    Attempt.objects.create(run=run, number=2, submission_id="two", resume_attempt=1, resume_step=60)
    Run.objects.filter(pk=run.pk).update(latest_attempt=2, state="queued")
    lose_checkpoint(run, 2)
    run.refresh_from_db()
    assert newest_visible(run) is None

    purge_step(now=clock.now + timedelta(days=2))

    item = TrashItem.objects.get()
    assert item.state == "kept"
    assert "no other checkpoint" in item.problem


@pytest.mark.django_db
def test_a_round_is_done_in_steps_that_a_restart_goes_on_with(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.retention.apply.RUNS_AT_ONCE", 1)
    project = make_project()
    admin = make_user(project=project, role="admin")
    runs = [trained(project) for _ in range(3)]
    set_retention(project=project, raw={"logs": {"days": 30}}, trash_days=None, user=admin, now=NOW)
    clock.now = LATER
    counts = []
    for _ in range(5):
        Clock.step(clock)  # each as if in a process of its own
        counts.append(TrashItem.objects.count())

    assert counts == [1, 2, 3, 3, 3]
    assert {item.run_id for item in TrashItem.objects.all()} == {run.pk for run in runs}
    assert Retention.objects.get().applied_at == LATER
