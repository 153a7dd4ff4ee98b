"""What stops the live path is said on pages: Redis away, ingest not running, nothing can be stored."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.test import Client
from django.urls import reverse

from console.labels.ingest import Silence, ingest_problem
from jobs.telemetry.streams import beat
from tests.rows import make_project, make_user
from tests.services import Valkey


@pytest.fixture
def beaten(valkey: Valkey) -> Iterator[redis.Redis]:
    with valkey.client() as client:
        yield client


def test_all_well_says_nothing(beaten: redis.Redis) -> None:
    beat(beaten, trouble="")

    assert ingest_problem() == ""


def test_an_ingest_that_never_ran_is_named_once_it_had_time_to_start(beaten: redis.Redis) -> None:
    started = Silence(since=1000.0)

    assert ingest_problem(now=1009.9, silence=started) == ""
    assert "has not reported yet" in ingest_problem(now=1010.0, silence=started)


def test_an_emptied_redis_is_no_news_until_the_ingest_process_is_silent(beaten: redis.Redis) -> None:
    silence = Silence(since=0.0)
    beat(beaten, trouble="")
    assert ingest_problem(silence=silence) == ""
    seen_at = silence.since

    beaten.flushall()

    assert ingest_problem(now=seen_at + 9.9, silence=silence) == ""
    assert "has not reported for 12 s" in ingest_problem(now=seen_at + 12, silence=silence)
    beat(beaten, trouble="")
    assert ingest_problem(silence=silence) == ""


def test_an_ingest_that_died_is_named_with_its_silence(beaten: redis.Redis) -> None:
    beat(beaten, trouble="")

    assert "has not reported for 2 min" in ingest_problem(now=time.time() + 120)


def test_what_troubles_it_is_quoted_as_one_sentence(beaten: redis.Redis) -> None:
    beat(beaten, trouble="The database does not take anything: disk full\n")

    assert "cannot be stored: The database does not take anything: disk full. Training goes on" in ingest_problem()


def test_a_redis_that_is_away_is_named(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"

    assert ingest_problem().startswith("Redis does not answer")


@pytest.mark.django_db
def test_the_cluster_page_and_the_frame_say_it(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    project = make_project()
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")

    page = client.get(reverse("cluster")).content.decode()
    usage = client.get(reverse("usage")).json()

    assert "Redis does not answer" in page
    assert usage["ingest_problem"].startswith("Redis does not answer")
