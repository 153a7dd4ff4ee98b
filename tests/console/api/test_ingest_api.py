"""The runners' ingest endpoint: who may come in, and what becomes of batches, commands and answers."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from jobs.ingest.batches import MAX_BODY_BYTES
from jobs.ingest.process import Ingest
from jobs.models import Answer, Attempt, Command, Frame, Run
from jobs.runs.launch import ingest_token
from jobs.telemetry.streams import INGEST
from profiling import events as make
from tests.batches import metric
from tests.console.fake_runner import DATA, Runner
from tests.rows import make_artifact, make_run
from tests.services import Valkey

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(valkey: Valkey) -> Run:
    return make_run(state="running")


@pytest.fixture(autouse=True)
def files_dir(settings: Any, tmp_path: Path) -> Path:
    settings.FILES_DIR = tmp_path / "files"
    return tmp_path / "files"


def test_a_batch_is_taken_once_and_becomes_durable(run: Run, valkey: Valkey) -> None:
    runner = Runner(run)
    first = runner.events(1, metric(1, loss=1.0))
    assert (first.status_code, first.json()) == (200, {"durable_through": 0, "expect": 2, "commands": []})

    again = runner.events(1, metric(1, loss=1.0))
    assert again.json()["expect"] == 2
    gap = runner.events(5, metric(5, loss=5.0))
    assert gap.json()["expect"] == 2
    Ingest(valkey.client()).work()

    heartbeat = runner.events(0)
    assert heartbeat.json() == {"durable_through": 1, "expect": 2, "commands": []}
    assert Frame.objects.count() == 1


def test_after_redis_was_wiped_the_next_batch_is_the_one_after_the_database(run: Run, valkey: Valkey) -> None:
    runner = Runner(run)
    for batch in (1, 2):
        runner.events(batch, metric(batch, loss=1.0))
    Ingest(valkey.client()).work()
    for batch in (3, 4):
        runner.events(batch, metric(batch, loss=1.0))
    with valkey.client() as client:
        client.flushall()

    answer = runner.events(5, metric(5, loss=1.0)).json()

    assert (answer["durable_through"], answer["expect"]) == (2, 3)
    for batch in (3, 4, 5):
        runner.events(batch, metric(batch, loss=1.0))
    Ingest(valkey.client()).work()
    assert list(Frame.objects.order_by("seq").values_list("batch", flat=True)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("token", ["", "wrong", None])
def test_without_its_own_token_nobody_comes_in(run: Run, token: str | None) -> None:
    token = ingest_token(run.pk, 2) if token is None else token  # of another attempt

    answer = Runner(run, token=token).events(0)

    assert answer.status_code == 401
    assert "token" in answer.json()["problems"][0]


def test_an_unknown_attempt_is_404(run: Run) -> None:
    assert Runner(run, attempt=7).events(0).status_code == 404


def test_an_old_attempt_and_an_ended_run_are_fenced(run: Run) -> None:
    Attempt.objects.create(run=run, number=2, state="running", submission_id="second")
    Run.objects.filter(pk=run.pk).update(latest_attempt=2)
    Attempt.objects.filter(run=run, number=1).update(durable_batch=12)
    old, new = Runner(run), Runner(run, attempt=2)

    assert (old.events(13).status_code, old.events(13).json()) == (409, {"error": "fenced", "durable_through": 12})
    assert old.get("launch").status_code == 409
    assert old.put("a", DATA).status_code == 409
    assert new.events(0).status_code == 200
    Run.objects.filter(pk=run.pk).update(state="finished")
    assert new.events(0).status_code == 409


def test_what_is_wrong_with_a_batch_is_said_and_nothing_of_it_is_taken(run: Run, valkey: Valkey) -> None:
    answer = Runner(run).events(1, metric(1, loss=1.0), {**metric(2), "role": ""})

    assert answer.status_code == 422
    assert answer.json()["events"] == [1]
    assert answer.json()["problems"][0].startswith("events[1].role:")
    with valkey.client() as client:
        assert client.xlen(INGEST) == 0


def test_a_body_that_is_too_large_is_413(run: Run) -> None:
    assert Runner(run).post("events", b"x" * (MAX_BODY_BYTES + 1)).status_code == 413


def test_a_wrong_method_says_which_one_is_right(run: Run) -> None:
    answer = Runner(run).get("events")

    assert (answer.status_code, answer["Allow"]) == (405, "POST")


def test_without_redis_the_runner_is_told_to_come_back(run: Run, valkey: Valkey, settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"

    answer = Runner(run).events(1, metric(1, loss=1.0))

    assert answer.status_code == 503
    assert "Redis is away" in answer.json()["problems"][0]


def test_a_full_redis_is_503_and_takes_nothing(run: Run, valkey: Valkey) -> None:
    with valkey.client() as client:
        client.config_set("maxmemory", "1")
        try:
            answer = Runner(run).events(1, metric(1, loss=1.0))
        finally:
            client.config_set("maxmemory", "0")

    assert answer.status_code == 503
    assert "full" in answer.json()["problems"][0]
    assert Runner(run).events(1, metric(1, loss=1.0)).json()["expect"] == 2


def test_a_queue_that_is_too_long_is_503(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from console.api.ingest import ingest
    from jobs.ingest.inbox import accept

    async def short(*args: Any, **kwargs: Any) -> Any:
        return await accept(*args, **kwargs, max_queued=1)

    monkeypatch.setattr(ingest, "accept", short)
    runner = Runner(run)
    assert runner.events(1, metric(1, loss=1.0)).status_code == 200

    answer = runner.events(2, metric(2, loss=1.0))

    assert answer.status_code == 503
    assert "keep up" in answer.json()["problems"][0]


def test_without_the_database_the_runner_is_told_to_come_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def away(*_: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("console.api.ingest.access._find", away)

    answer = Runner(run).events(1, metric(1, loss=1.0))

    assert answer.status_code == 503
    assert "database" in answer.json()["problems"][0]


def test_commands_are_repeated_until_they_are_answered(run: Run) -> None:
    command = Command.objects.create(attempt=Attempt.objects.get(run=run), verb="stop", payload={"why": "enough"})
    runner = Runner(run)
    expected = [{"number": command.pk, "verb": "stop", "payload": {"why": "enough"}}]
    assert runner.events(0).json()["commands"] == expected
    assert runner.events(0).json()["commands"] == expected

    answer = runner.events(0, answered=[{"number": command.pk, "answer": {"saved": "step-3"}}])

    assert answer.json()["commands"] == []
    command.refresh_from_db()
    assert command.answer == {"saved": "step-3"}
    assert command.delivered_at is not None


def test_a_command_that_can_still_be_taken_back_waits(run: Run) -> None:
    soon = timezone.now() + timedelta(minutes=5)
    command = Command.objects.create(attempt=Attempt.objects.get(run=run), verb="stop", not_before=soon)
    assert Runner(run).events(0).json()["commands"] == []

    Command.objects.update(not_before=timezone.now())

    assert [one["number"] for one in Runner(run).events(0).json()["commands"]] == [command.pk]


def test_an_answer_to_somebody_elses_command_changes_nothing(run: Run) -> None:
    other = Command.objects.create(attempt=Attempt.objects.get(run=make_run(state="running")), verb="stop")

    Runner(run).events(0, answered=[{"number": other.pk, "answer": {}}])

    other.refresh_from_db()
    assert other.delivered_at is None


def test_contact_is_noted_at_most_once_a_second(run: Run) -> None:
    attempts = Attempt.objects.filter(run=run)
    recent = timezone.now() + timedelta(seconds=30)  # within a second of now, however long the request takes
    attempts.update(last_contact_at=recent)
    Runner(run).events(0)
    assert attempts.get().last_contact_at == recent

    earlier = timezone.now() - timedelta(seconds=2)
    attempts.update(last_contact_at=earlier)
    Runner(run).events(0)

    assert attempts.get().last_contact_at > earlier


def test_what_the_model_said_is_kept_also_after_the_run_ended(run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(state="finished")
    row = Answer.objects.create(run=run, artifact=make_artifact(run), prompt="2+2=", submission_id="answer-1")
    runner = Runner(run)

    assert runner.post(f"answers/{row.pk}", {"text": "4\0", "token_ids": [1, 2]}).json() == {}

    row.refresh_from_db()
    assert (row.state, row.text, row.token_ids) == ("finished", "4\ufffd", [1, 2])
    assert runner.post(f"answers/{row.pk}", {"problem": "late"}).status_code == 200
    row.refresh_from_db()
    assert row.problem == ""


@pytest.mark.parametrize("body", [b"{", {"text": 1}, {"token_ids": ["a"]}, {"problem": 3}])
def test_a_bad_answer_is_refused(run: Run, body: Any) -> None:
    row = Answer.objects.create(run=run, artifact=make_artifact(run), prompt="2+2=", submission_id="answer-1")

    assert Runner(run).post(f"answers/{row.pk}", body).status_code == 400


def test_a_state_event_of_the_runner_ends_the_run_and_fences_it(run: Run, valkey: Valkey) -> None:
    runner = Runner(run)
    last: Any = {**make.state("finished", attempt=1), "role": "runner", "meta": {"processes_left": 0}}
    runner.events(1, metric(1, loss=1.0), last)

    Ingest(valkey.client()).work()

    answer = runner.events(0)
    assert (answer.status_code, answer.json()["durable_through"]) == (409, 1)
