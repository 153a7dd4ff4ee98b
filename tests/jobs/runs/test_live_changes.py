"""Knobs of a running run: asked for once, taken by the trainer, kept by a resume, and told."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, AuditEvent, Command, Run, RunEvent
from jobs.runs.annotate import ChangeRefused
from jobs.runs.live_changes import change_knobs, live_settings
from jobs.runs.resume import resume_run
from jobs.telemetry.attempt_spec import latest_spec_json, spec_json
from profiling import events as make
from tests.attempts import end, train
from tests.batches import delivery
from tests.rows import NOW, make_run, make_user

pytestmark = pytest.mark.django_db

RATE = "optimizer.learning_rate"


def ask(run: Run, user: Any = None, **about: Any) -> Any:
    ids = {"rate": RATE, "temperature": "rollout.temperature", "kl": "algorithm.kl_coefficient"}
    wanted = {ids.get(name, name): value for name, value in about.items()}
    return change_knobs(run_id=run.pk, wanted=wanted, user=user, now=NOW)


def take(run: Run, number: int, step: int, *, attempt: int = 1, old: Any = 3e-4, new: Any = 1e-3, **more: Any) -> None:
    """Let the trainer say that it took a change of the learning rate."""
    about = {"command": number, "changes": [{"knob": RATE, "old": old, "new": new}], **more}
    event = make.note("Learning rate changed", attempt=attempt, step=step, meta={"knobs": about})
    batch = Attempt.objects.get(run=run, number=attempt).durable_batch + 1
    store([delivery(run.pk, batch, [event], attempt=attempt)], memory=AttemptCache(), now=NOW)


def refusal(run: Run, **about: Any) -> tuple[str, str]:
    with pytest.raises(ChangeRefused) as refused:
        ask(run, **about)
    return refused.value.field, str(refused.value)


def test_a_change_is_asked_for_once_and_is_in_history_and_audit() -> None:
    run, ada = make_run(state="running"), make_user("ada")

    assert ask(run, ada, rate="1e-3") == {RATE: (3e-4, 1e-3)}
    assert ask(run, ada, rate=1e-3) == {}

    command = Command.objects.get(verb="set")
    assert (command.payload, command.created_by) == ({"knobs": {RATE: 1e-3}}, ada)
    event = RunEvent.objects.get(run=run, verb="set")
    assert (event.text, event.actor) == ("Asked for Learning rate 3e-4 → 0.001", ada)
    audit = AuditEvent.objects.get(verb="run.set")
    assert (audit.before, audit.after, audit.actor) == ({RATE: 3e-4}, {RATE: 1e-3}, ada)
    (waiting,) = [knob for knob in live_settings(run).knobs if knob.pending is not None]
    assert (waiting.id, waiting.value, waiting.pending) == (RATE, 3e-4, 1e-3)
    assert latest_spec_json(run) == run.spec  # not before the trainer has taken it


def test_what_the_trainer_took_is_told_with_who_asked_and_from_which_step() -> None:
    run, ada = make_run(state="running"), make_user("ada")
    ask(run, ada, rate=1e-3)

    take(run, Command.objects.get(verb="set").pk, 13)

    (change,) = live_settings(run).changes
    assert (change.knob, change.old, change.new, change.step, change.by) == (RATE, 3e-4, 1e-3, 13, "ada")
    assert parse_spec(latest_spec_json(run)).knob(RATE) == 1e-3
    assert parse_spec(spec_json(Attempt.objects.get(run=run))).knob(RATE) == 3e-4  # what it was started with
    assert all(knob.pending is None for knob in live_settings(run).knobs)


def test_a_change_is_undone_by_setting_it_back() -> None:
    run = make_run(state="running")
    ask(run, rate=1e-3)
    ask(run, rate=3e-4)
    first, second = Command.objects.filter(verb="set").order_by("pk")

    take(run, first.pk, 5)
    take(run, second.pk, 6, old=1e-3, new=3e-4)

    assert parse_spec(latest_spec_json(run)).knob(RATE) == 3e-4
    assert [(c.old, c.new, c.step) for c in live_settings(run).changes] == [(3e-4, 1e-3, 5), (1e-3, 3e-4, 6)]


def test_a_resume_keeps_the_changed_value_and_says_so() -> None:
    run = make_run(state="running")
    train(run, range(1, 45))
    ask(run, rate=1e-3)
    take(run, Command.objects.get(verb="set").pk, 45)
    end(run)

    again = resume_run(run_id=run.pk, step=40, hardware={}, num_steps=90, user=None, now=NOW + timedelta(minutes=5))

    spec = parse_spec(spec_json(again))
    assert (spec.knob(RATE), spec.num_steps) == (1e-3, 90)
    text = RunEvent.objects.filter(run=run, verb="queued").latest("pk").text
    assert text == "Resumed from checkpoint 40, with Learning rate 0.001 as changed while it trained"
    (change,) = live_settings(Run.objects.get(pk=run.pk)).changes
    assert not change.is_visible  # step 45 is in the dead branch


def test_what_cannot_change_is_refused_with_a_sentence() -> None:
    run = make_run(state="running", spec={"knobs": {"algorithm.kl_coefficient": 0}})

    assert refusal(run, rate=9) == (f"knobs.{RATE}", "9 is not allowed for Learning rate. Use a number from 0 to 1.")
    assert "that needs the role reference" in refusal(run, kl=0.1)[1]
    assert "These can: " in refusal(run, **{"train.seed": 3})[1]
    assert refusal(run)[1].startswith("Name a knob and its value. These can change: ")
    assert not Command.objects.exists()


@pytest.mark.parametrize("state", ["queued", "stopping", "finished", "failed"])
def test_only_a_running_run_takes_changes(state: str) -> None:
    run = make_run(state=state)

    assert f"is {state}. Only a running run takes changes" in refusal(run, rate=1e-3)[1]
    assert live_settings(run).knobs == ()


def test_another_trainer_takes_none() -> None:
    run = make_run(state="running", spec={"trainer": {"name": "verl"}})

    assert "takes no changes while it trains" in refusal(run, rate=1e-3)[1]


def test_a_refusal_of_the_trainer_is_told_and_changes_nothing() -> None:
    run = make_run(state="running")
    ask(run, rate=1e-3)

    about = {"command": Command.objects.get(verb="set").pk, "changes": [], "refused": "It cannot."}
    event = make.note("refused", attempt=1, step=3, meta={"knobs": about})
    store([delivery(run.pk, 1, [event])], memory=AttemptCache(), now=NOW)

    settings = live_settings(run)
    assert (settings.refused, settings.changes) == ("It cannot.", ())
    assert all(knob.pending is None for knob in settings.knobs)


def test_a_note_with_nonsense_for_knobs_changes_nothing() -> None:
    run = make_run(state="running")
    changes = [{"knob": "no.such", "old": 1, "new": 2}, {"knob": RATE, "old": 1, "new": {}}, 7]
    event = make.note("odd", attempt=1, step=3, meta={"knobs": {"command": "x", "changes": changes}})

    store([delivery(run.pk, 1, [event])], memory=AttemptCache(), now=NOW)

    assert live_settings(run).changes == ()
    assert latest_spec_json(run) == run.spec
