"""`/metrics`: who gets how much of it, what it says, and that it stays small and quick."""

import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from console.monitoring.families import VALUES
from console.monitoring.requests import CountRequests, route_class
from console.sign_in.api_token import make_token
from jobs.catalog.metric import metrics
from jobs.models import Project, Run, RunEvent
from jobs.monitoring import runs as monitored
from jobs.telemetry.heartbeats import Heartbeat
from tests.rows import make_project, make_run, make_user, signed_in
from tests.services import Valkey

TOKEN = "a-token-of-the-operator-for-prometheus"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _token(settings: Any) -> None:
    settings.METRICS_TOKEN = TOKEN


def scrape(token: str = TOKEN, *, accept: str = "") -> Any:
    """Return the answer to Prometheus."""
    headers = {"Host": "localhost", "Authorization": f"Bearer {token}", "Accept": accept}
    return Client(headers=headers).get("/metrics")


def samples(answer: Any) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return every value of a page by name and labels."""
    assert answer.status_code == 200, answer.content
    values: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return values


def token_of(user: AbstractUser, **limits: Any) -> str:
    return make_token(user=user, name="prometheus", **limits)[1]


def running(project: Project, **fields: Any) -> Run:
    return make_run(project, state="running", now=timezone.now(), **fields)


def ended(project: Project, *, minutes_ago: float) -> Run:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    run = make_run(project, state="failed", now=at)
    RunEvent.objects.create(run=run, at=at, verb="failed", text="it broke")
    return run


def test_nobody_without_a_token_learns_anything(settings: Any) -> None:
    person = make_user(project=make_project(), role="admin")
    expired = token_of(person, expires_at=timezone.now() - timedelta(days=1))
    refused = [scrape(token) for token in ("", "x", TOKEN[:-1], expired)]
    refused += [Client(headers={"Host": "localhost"}).get("/metrics"), signed_in(person).get("/metrics")]
    settings.METRICS_TOKEN = ""  # not set: then an empty token is none either
    refused.append(scrape(""))

    assert [answer.status_code for answer in refused] == [401] * 7
    assert all(b"pitwall_" not in answer.content for answer in refused)
    assert refused[0]["WWW-Authenticate"] == "Bearer"


def test_a_token_of_a_project_shows_its_runs_alone_and_nothing_of_the_console(valkey: Valkey) -> None:
    del valkey
    ours, theirs = make_project("ours"), make_project("theirs")
    own, other = running(ours), running(theirs)
    member = make_user(project=ours, role="admin")
    ours.membership_set.create(user=(both := make_user(project=theirs)), role="viewer")

    seen = {
        name: samples(scrape(token))
        for name, token in {
            "member": token_of(member, role="viewer"),
            "limited": token_of(both, project="ours"),
            "both": token_of(both),
        }.items()
    }

    for name in ("member", "limited"):
        assert {dict(labels)["run"] for labels in seen[name]["pitwall_run_step"]} == {own.pk}
        assert {dict(labels)["project"] for labels in seen[name]["pitwall_runs"]} == {"ours"}
    assert {dict(labels)["run"] for labels in seen["both"]["pitwall_run_step"]} == {own.pk, other.pk}
    assert not any(name.startswith(("pitwall_http", "pitwall_redis", "process_")) for name in seen["both"])
    assert seen["both"]["pitwall_up"] == {(): 1}


def test_a_superuser_sees_the_console_and_the_runs_of_own_projects(valkey: Valkey) -> None:
    del valkey
    running(make_project("theirs"))
    root = make_user("root", project=make_project("own"))
    User.objects.filter(pk=root.pk).update(is_superuser=True)

    whole, limited = samples(scrape(token_of(root))), samples(scrape(token_of(root, role="viewer")))

    assert whole["pitwall_redis_up"] == {(): 1}
    assert whole["pitwall_data_disk_free_bytes"][()] > 0
    assert "pitwall_run_step" not in whole
    assert "pitwall_redis_up" not in limited  # a limited token does not speak for the whole account


def test_what_a_run_reports_is_there_under_its_name_and_unit(valkey: Valkey) -> None:
    del valkey
    values = {"reward/mean": 0.5, "time/step_seconds": 2.5, "loss/policy": "NaN", "of/nobody": 1}
    project = make_project("ours")
    run = running(project, step=7, num_steps=20, latest_values=values, name='say "hi"\n')
    make_run(project, state="queued", now=timezone.now() - timedelta(seconds=90))
    key = (("project", "ours"), ("run", run.pk))

    page = samples(scrape())

    assert (page["pitwall_run_reward_mean"][key], page["pitwall_run_step_duration_seconds"][key]) == (0.5, 2.5)
    assert page["pitwall_run_policy_loss"][key] != page["pitwall_run_policy_loss"][key]
    assert (page["pitwall_run_step"][key], page["pitwall_run_steps"][key]) == (7, 20)
    assert time.time() - page["pitwall_run_last_contact_timestamp_seconds"][key] < 60
    (labels,) = (dict(labels) for labels in page["pitwall_run_info"] if ("run", run.pk) in labels)
    assert labels == {
        "run": run.pk,
        "project": "ours",
        "name": 'say "hi"\n',
        "trainer": "native",
        "algorithm": "grpo",
    }
    assert page["pitwall_runs"][("project", "ours"), ("state", "queued")] == 1
    assert page["pitwall_runs"][("project", "ours"), ("state", "finished")] == 0
    assert 80 < page["pitwall_queue_oldest_wait_seconds"][(("project", "ours"),)] < 200
    assert page["pitwall_cluster_up"] == {(): 0}
    assert set(VALUES) <= set(metrics()), "values of metrics that nobody knows"


def test_the_number_of_series_is_bounded_and_what_is_left_out_is_counted(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    del valkey
    monkeypatch.setattr(monitored.shown_runs, "__kwdefaults__", {"most": 3})
    project = make_project("ours")
    live = [running(project).pk for _ in range(2)]
    recent, _old = ended(project, minutes_ago=5), ended(project, minutes_ago=16)
    make_run(project, state="queued")

    page = samples(scrape())

    assert [dict(labels)["run"] for labels in page["pitwall_run_step"]] == [*reversed(live), recent.pk]
    assert page["pitwall_runs_left_out"] == {(): 1}
    assert page["pitwall_runs"][("project", "ours"), ("state", "failed")] == 2


def test_the_questions_to_the_database_do_not_grow_with_the_runs(valkey: Valkey) -> None:
    del valkey
    project = make_project("ours")
    counts = []
    for _ in range(2):
        for _ in range(5):
            running(project, latest_values={"reward/mean": 1.0})
        with CaptureQueriesContext(
            connection,
        ) as queries:
            scrape()
        counts.append(len(queries))

    assert counts[0] == counts[1] <= 15


def test_openmetrics_is_spoken_where_it_is_asked_for(valkey: Valkey) -> None:
    del valkey
    running(make_project("ours"), latest_values={"reward/mean": 1.0})

    answer = scrape(accept="application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5")

    assert answer["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert "no-store" in answer["Cache-Control"]
    families = {family.name: family for family in openmetrics(answer.content.decode())}  # type: ignore[no-untyped-call]
    assert families["pitwall_ingest_batches"].type == "counter"
    assert families["pitwall_run"].type == "info"
    assert all(family.documentation for family in families.values())


def test_redis_that_is_away_is_said_and_the_rest_is_there(settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    running(make_project("ours"))

    page = samples(scrape())

    assert page["pitwall_redis_up"] == {(): 0}
    assert len(page["pitwall_run_step"]) == 1


def test_processes_and_both_queues_in_redis(valkey: Valkey) -> None:
    with valkey.client() as redis_client:
        for _ in range(2):
            Heartbeat("ingest", redis_client).beat()
        redis_client.hset("pitwall:processes", "worker@gone:7", str(time.time() - 60))
        redis_client.lpush("celery", *(json.dumps({"headers": {"sent_at": time.time() - age}}) for age in (100, 10)))
        redis_client.xadd("pitwall:ingest", {"run": "r"}, id=f"{int((time.time() - 30) * 1000)}-0")

    page = samples(scrape())

    alive = page["pitwall_service_processes"]
    assert {dict(labels)["service"]: value for labels, value in alive.items()} == {
        "web": 0,
        "ingest": 1,
        "worker": 0,
        "reconcile": 0,
    }
    assert page["pitwall_service_starts_total"][(("service", "ingest"),)] == 2
    assert 55 < time.time() - page["pitwall_service_last_seen_timestamp_seconds"][(("service", "worker"),)] < 120
    assert page["pitwall_tasks_waiting"] == {(): 2}
    assert 95 < page["pitwall_tasks_oldest_age_seconds"][()] < 160
    assert 25 < page["pitwall_ingest_lag_seconds"][()] < 90


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    del receive
    if scope["path"] == "/api/breaks":
        raise ConnectionError("gone")
    await send({"type": "http.response.start", "status": 404, "headers": []})


@pytest.mark.asyncio
async def test_requests_are_counted_by_kinds_that_no_caller_can_multiply() -> None:
    from console.monitoring.requests import REQUESTS, UNDER_WAY

    async def send(_message: Any) -> None:
        return

    before = REQUESTS.labels("page", "other", "404")._value.get()
    counted = CountRequests(_answer)
    for path in ("/a", "/b/c", "/runs/r-1"):
        await counted({"type": "http", "path": path, "method": "BREW"}, None, send)
    with pytest.raises(ConnectionError):
        await counted({"type": "http", "path": "/api/breaks", "method": "GET"}, None, send)

    assert REQUESTS.labels("page", "other", "404")._value.get() - before == 3
    assert REQUESTS.labels("api", "GET", "closed")._value.get() >= 1
    assert UNDER_WAY._value.get() == 0
    assert [route_class(p) for p in ("/healthz", "/ingest/r/1/events", "/static/x.js", "/nonsense")] == [
        "health",
        "ingest",
        "static",
        "page",
    ]


def test_a_token_that_could_be_guessed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from console.settings import _metrics_token

    monkeypatch.setenv("PITWALL_METRICS_TOKEN", "short")
    with pytest.raises(ImproperlyConfigured, match="PITWALL_METRICS_TOKEN has 5 characters; 24 or more are needed"):
        _metrics_token()
