"""States of captures: what the trainer reports, what arrives, what an end cuts off, and what comes twice or late."""

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest

from jobs.captures.artifacts import FilePiece, receive
from jobs.captures.captures import answered, arm_at_launch, request_capture, withdraw_capture
from jobs.captures.refusals import CaptureRefused
from jobs.catalog.spec.parse import parse_spec
from jobs.ingest.store import AttemptCache, store
from jobs.models import Artifact, Attempt, Capture, Command, Run, RunEvent
from jobs.runs.lifecycle import finish
from profiling import events as make
from tests.batches import T0, delivery
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db

DATA = b"a report" * 100


class Trainer:
    """Says and hands over what a runner would, of one attempt."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.memory = AttemptCache()
        self.batch = 0

    def say(self, *some: Any) -> None:
        self.batch += 1
        store([delivery(self.run.pk, self.batch, some)], memory=self.memory, now=NOW)

    def tell(self, capture: Capture, *states: str, **more: Any) -> Capture:
        for state in states:
            event = make.capture(capture.pk, state, attempt=1, **more)
            event["t"] = T0
            self.say(event)
        return self.look(capture)

    def announce(self, capture: Capture, name: str) -> None:
        meta = {"capture": capture.pk, "role": "policy", "rank": 0}
        path = f"traces/{capture.pk}/{name}"
        self.say(make.artifact(name, artifact="trace", path=path, attempt=1, size=len(DATA), meta=meta))

    def upload(self, capture: Capture, name: str) -> None:
        digest = hashlib.sha256(DATA).hexdigest()
        piece = FilePiece(
            offset=0,
            size=len(DATA),
            sha256=digest,
            type="trace",
            step=2,
            path=f"traces/{capture.pk}/{name}",
            meta={"capture": capture.pk, "role": "policy"},
            data=DATA,
        )
        assert receive(run_id=self.run.pk, attempt=1, name=name, piece=piece).is_ready

    def look(self, capture: Capture) -> Capture:
        capture.refresh_from_db()
        return capture


@pytest.fixture
def trainer() -> Trainer:
    return Trainer(make_run(state="running", spec={"knobs": {"train.num_steps": 40}}))


def arm(trainer: Trainer, **more: Any) -> Capture:
    asked = {"tool": "torch", "first_step": 0, "num_steps": 2, "roles": [], "ranks": [], **more}
    return request_capture(run_id=trainer.run.pk, user=None, now=NOW, **asked)


def end(trainer: Trainer, state: str = "failed") -> None:
    assert finish(run_id=trainer.run.pk, attempt=1, state=state, cause={}, cleanup={}, now=NOW + timedelta(minutes=1))


def test_a_capture_is_ready_when_its_last_file_has_arrived(trainer: Trainer) -> None:
    capture = arm(trainer)
    trainer.tell(capture, "armed", "recording", step=4)
    trainer.tell(capture, "stopping", "writing")
    trainer.announce(capture, "policy-0.json.gz")
    trainer.announce(capture, "policy-1.json.gz")
    trainer.upload(capture, "policy-0.json.gz")
    assert trainer.tell(capture, "importing").state == "importing"

    trainer.upload(capture, "policy-1.json.gz")

    trainer.look(capture)
    assert (capture.state, capture.recorded_steps) == ("ready", (4, 5))
    assert set(capture.state_times) == {"armed", "recording", "stopping", "writing", "importing", "ready"}
    assert sorted(capture.files.values_list("name", flat=True)) == ["policy-0.json.gz", "policy-1.json.gz"]
    assert RunEvent.objects.filter(verb="capture", text="Capture of steps 4 to 5 with torch is ready").count() == 1


def test_the_word_importing_completes_a_capture_whose_files_came_first(trainer: Trainer) -> None:
    capture = arm(trainer)
    trainer.upload(capture, "policy-0.json.gz")  # before ingest has stored the announcement
    trainer.announce(capture, "policy-0.json.gz")

    assert trainer.tell(capture, "importing").state == "ready"


def test_what_comes_twice_or_late_changes_nothing(trainer: Trainer) -> None:
    capture = trainer.tell(arm(trainer), "recording", "writing", meta={"seen": 1})
    before = dict(capture.state_times)

    trainer.tell(capture, "armed", "recording", "stopping", "writing", meta={"seen": 2})

    assert (capture.state, capture.meta["seen"], capture.state_times) == ("writing", 1, before)
    assert trainer.tell(capture, "failed", text="No room.").state == "failed"
    assert trainer.tell(capture, "importing", "failed", text="Other words.").problem == "No room."


def test_captures_of_others_are_not_moved(trainer: Trainer) -> None:
    other = Trainer(make_run(state="running"))
    capture = arm(trainer)

    other.tell(capture, "recording", "failed", text="mine")
    trainer.say(make.capture("c-unknown", "recording", attempt=1))

    assert trainer.look(capture).state == "armed"
    assert Capture.objects.count() == 1


def test_importing_without_any_file_is_a_failure(trainer: Trainer) -> None:
    capture = trainer.tell(arm(trainer), "importing")

    assert capture.state == "failed"
    assert "announced no file" in capture.problem


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ((), "before it came to these steps"),
        (("recording",), "in the state recording"),
        (("importing",), "0 of 1 files"),
    ],
)
def test_the_end_of_the_attempt_fails_an_open_capture_with_a_sentence(
    trainer: Trainer, states: tuple[str, ...], sentence: str
) -> None:
    capture = arm(trainer)
    trainer.announce(capture, "policy-0.json.gz")
    trainer.tell(capture, *states)

    end(trainer)

    assert trainer.look(capture).state == "failed"
    assert sentence in capture.problem


def test_files_that_the_clean_up_brings_make_a_cut_off_capture_ready_after_all(trainer: Trainer) -> None:
    capture = trainer.tell(arm(trainer), "recording", step=4)
    end(trainer)
    trainer.tell(capture, "writing")
    trainer.announce(capture, "policy-0.json.gz")
    assert trainer.tell(capture, "importing").state == "failed"

    trainer.upload(capture, "policy-0.json.gz")

    assert trainer.look(capture).state == "ready"
    assert (capture.problem, "failed" in capture.state_times) == ("", False)


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_the_runner_found_after_the_trainers_end_is_ready_and_says_that_it_was_cut(
    trainer: Trainer, has_ended: bool
) -> None:
    capture = trainer.tell(arm(trainer), "recording", step=4, meta={"tool": "nsys", "missing": {}})
    if has_ended:  # the runner was killed; its clean-up job comes after the console has ended the attempt
        end(trainer)
    trainer.announce(capture, "policy-0.json.gz")
    trainer.upload(capture, "policy-0.json.gz")

    told = {"first_step": 4, "num_steps": 1, "missing": {}, "truncated": "The trainer's driver ended (SIGKILL)."}
    assert trainer.tell(capture, "importing", meta=told).state == "ready"

    assert (capture.problem, capture.recorded_steps) == ("", (4, 4))
    assert capture.meta["truncated"] == "The trainer's driver ended (SIGKILL)."


def test_what_the_trainer_gave_up_stays_failed(trainer: Trainer) -> None:
    capture = trainer.tell(arm(trainer), "recording")
    end(trainer)
    trainer.tell(capture, "failed", text="The profiler broke.")
    trainer.announce(capture, "policy-0.json.gz")

    trainer.tell(capture, "importing")
    trainer.upload(capture, "policy-0.json.gz")

    assert trainer.look(capture).state == "failed"
    assert capture.problem == "The profiler broke."


def test_a_refused_command_fails_its_capture(trainer: Trainer) -> None:
    capture = arm(trainer)
    command = Command.objects.get(verb="profile")

    answered(command, {"error": "unknown verb"}, now=NOW)

    assert trainer.look(capture).state == "failed"
    assert capture.problem == "The trainer does not take it: unknown verb."


def test_other_files_are_still_zipped_by_name(trainer: Trainer) -> None:
    trainer.say(make.artifact("traces-old", artifact="trace", path="traces", attempt=1))

    assert Artifact.objects.get().name == "traces-old.zip"


def test_a_frame_tells_what_became_of_captures(trainer: Trainer) -> None:
    capture = arm(trainer)
    event = make.capture(capture.pk, "failed", attempt=1, text="Why.")
    stored = store([delivery(trainer.run.pk, 1, [event])], memory=AttemptCache(), now=NOW)

    assert json.loads(stored.frames[0][1])["captures"] == [{"capture": capture.pk, "state": "failed", "text": "Why."}]


def test_a_trainer_cannot_mark_a_capture_as_cut_off(trainer: Trainer) -> None:
    capture = trainer.tell(arm(trainer), "recording", meta={"cut_off": "importing"})

    assert "cut_off" not in capture.meta
    assert Attempt.objects.get().state == "running"


def withdraw(trainer: Trainer, capture: Capture) -> Capture:
    user = trainer.run.created_by
    return withdraw_capture(run_id=trainer.run.pk, capture_id=capture.pk, user=user, now=NOW)


def verbs() -> list[str]:
    return list(Command.objects.order_by("pk").values_list("verb", flat=True))


def test_the_trainer_is_asked_to_withdraw_and_says_that_it_has(trainer: Trainer) -> None:
    capture = trainer.tell(arm(trainer), "armed")
    changes = Run.objects.values_list("capture_changes", flat=True)

    before = changes.get()
    asked = withdraw(trainer, capture)
    withdraw(trainer, capture)
    assert changes.get() == before + 1  # pages read their captures again
    assert (asked.state, verbs()) == ("armed", ["profile", "withdraw"])
    assert Command.objects.get(verb="withdraw").payload == {"capture": capture.pk}

    trainer.tell(capture, "withdrawn")
    assert (capture.state, capture.problem) == ("withdrawn", "")
    assert capture.ended_at is not None
    assert trainer.tell(capture, "recording", "failed", text="Late words.").state == "withdrawn"
    text = "Capture of the next 2 steps with torch is withdrawn; nothing was recorded"
    assert RunEvent.objects.filter(verb="capture", text=text).count() == 1
    assert withdraw(trainer, capture).state == "withdrawn"


def test_recording_that_had_begun_goes_on_and_says_so(trainer: Trainer) -> None:
    capture = arm(trainer)
    withdraw(trainer, capture)

    trainer.tell(capture, "armed", "recording", step=6)

    assert (capture.state, capture.recorded_steps) == ("recording", (6, 7))
    text = "Capture of steps 6 to 7 with torch goes on: recording had begun when it was withdrawn"
    assert RunEvent.objects.filter(verb="capture", text=text).count() == 1
    with pytest.raises(CaptureRefused, match="The workers record"):
        withdraw(trainer, capture)
    assert trainer.tell(capture, "withdrawn").state == "recording"
    trainer.announce(capture, "policy-0.json.gz")
    trainer.tell(capture, "importing")
    trainer.upload(capture, "policy-0.json.gz")
    assert trainer.look(capture).state == "ready"
    with pytest.raises(CaptureRefused, match="is ready"):
        withdraw(trainer, capture)
    assert verbs() == ["profile", "withdraw"]


def test_what_waits_in_the_queue_with_its_run_is_never_sent() -> None:
    profile = {"tool": "torch", "first_step": 1, "num_steps": 2}
    queued = Trainer(make_run(spec={"profile": profile}))
    capture = Capture.objects.get(run=queued.run)

    assert withdraw(queued, capture).state == "withdrawn"

    assert verbs() == []
    retry = Attempt(run=queued.run, number=2, submission_id="two", is_automatic=True)
    assert arm_at_launch(attempt=retry, spec=parse_spec(queued.run.spec), now=NOW) is None  # a retry brings it not back
    retry.is_automatic = False
    retry.save()
    assert arm_at_launch(attempt=retry, spec=parse_spec(queued.run.spec), now=NOW) is not None  # who resumes asks anew


def test_a_new_request_for_the_same_steps_is_not_the_withdrawn_one(trainer: Trainer) -> None:
    first = arm(trainer, first_step=10)
    withdraw(trainer, first)

    second = arm(trainer, first_step=10)

    assert second.pk != first.pk
    assert verbs() == ["profile", "withdraw", "profile"]


@pytest.mark.parametrize("told", [("armed",), ("armed", "failed")])
def test_a_run_that_ends_first_leaves_it_withdrawn(trainer: Trainer, told: tuple[str, ...]) -> None:
    capture = arm(trainer)
    withdraw(trainer, capture)
    trainer.tell(capture, *told, text="The run ended after step 3, before step 9.")

    end(trainer)

    assert trainer.look(capture).state == "withdrawn"
    assert trainer.tell(capture, "withdrawn").state == "withdrawn"
    assert RunEvent.objects.filter(text__endswith="is withdrawn; nothing was recorded").count() == 1


def test_what_the_clean_up_tells_of_one_that_had_begun_is_believed(trainer: Trainer) -> None:
    capture = arm(trainer)
    withdraw(trainer, capture)
    end(trainer)
    assert trainer.look(capture).state == "withdrawn"

    trainer.tell(capture, "recording", step=4)
    assert (capture.state, capture.problem) == ("failed", "The run ended while the capture was in the state recording.")
    trainer.announce(capture, "policy-0.json.gz")
    trainer.tell(capture, "importing")
    trainer.upload(capture, "policy-0.json.gz")

    assert trainer.look(capture).state == "ready"


@pytest.mark.parametrize(("error", "is_asked"), [("unknown verb", False), ("the trainer has ended", True)])
def test_a_runner_that_cannot_withdraw_leaves_it_armed(trainer: Trainer, error: str, is_asked: bool) -> None:
    capture = arm(trainer)
    withdraw(trainer, capture)

    answered(Command.objects.get(verb="withdraw"), {"error": error}, now=NOW)

    trainer.look(capture)
    assert (capture.state, capture.withdraw_asked_at is not None) == ("armed", is_asked)


def test_another_trainer_is_recorded_on_demand_also_where_nobody_knows_its_steps() -> None:
    run = make_run(state="running", num_steps=0, spec={"algorithm": "sft", "trainer": {"name": "openrlhf"}})

    asked: dict[str, Any] = {"tool": "torch", "first_step": 0, "num_steps": 1, "roles": [], "ranks": []}

    row = request_capture(run_id=run.pk, **asked, user=None, now=NOW)

    assert row.state == "armed"
    assert "by" not in Command.objects.get(verb="profile").payload


VERL = {"algorithm": "sft", "trainer": {"name": "verl"}, "data": {"kind": "path", "id": "/d"}}


@pytest.mark.parametrize(
    ("more", "asked", "by"),
    [
        ({"profile": {"what": "operators", "first_step": 3, "num_steps": 2}}, ("torch", 3, 2, []), "trainer"),
        ({"profile": {"what": "stacks", "first_step": 3}}, ("stacks", 3, 2, []), None),
        (
            {"knobs": {"profiling.enable": True, "profiling.first_step": 4, "profiling.last_step": 5}},
            ("torch", 4, 2, [0]),
            "trainer",
        ),
    ],
)
def test_what_another_trainer_records_itself_is_a_capture(more: Any, asked: tuple[Any, ...], by: str | None) -> None:
    run = make_run(state="queued", num_steps=0, spec=VERL | more)

    row = Capture.objects.get(run=run)

    assert (row.tool, row.first_step, row.num_steps, row.ranks) == asked
    assert Command.objects.get(verb="profile").payload.get("by") == by
    assert row.what in ("operators", "stacks")
