"""A console without Ray for browser tests: real Valkey, web and ingest processes on this session's test database."""

import itertools
import os
import random
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from django.contrib.auth.models import AbstractUser
from django.db import connection
from django.test import Client
from django.test.utils import setup_databases

from console.embedded.ports import free_block
from jobs.models import Attempt, Project, Run
from jobs.runs.launch import ingest_token
from jobs.telemetry.streams import ingest_status
from profiling import events
from profiling.events import Event
from tests.batches import manage, service_environment
from tests.collected_statics import collected_statics
from tests.loopback import HTTP
from tests.rows import make_project, make_user
from tests.services import Valkey
from tests.waiting import wait_until

START_SECONDS = 180
STORE_SECONDS = 60
NS = 1_000_000_000
PHASES = (
    ("rollout", 0.3, "vllm"),
    ("old_logprobs", 0.15, "policy"),
    ("update", 0.4, "policy"),
    ("weight_sync", 0.1, "policy"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConsole:
    """Where it answers, and somebody who may see and change `project`."""

    url: str
    project: Project
    user: AbstractUser

    def session_cookie(self) -> dict[str, str]:
        """Return the cookie of a signed-in browser."""
        client = Client()
        client.force_login(self.user)
        return {"name": "pitwall_session", "value": client.cookies["pitwall_session"].value, "url": self.url}


@dataclass(slots=True, kw_only=True)
class Reporter:
    """What a runner would post for a run, step by step; whatever a page reads afterwards is in the database."""

    console: LiveConsole
    run: Run
    num_steps: int = 0
    clock: int = field(default_factory=lambda: time.time_ns() - 120 * NS)
    batch: int = 0
    attempt: int = 1
    reward: float = 0.4  # before the first step

    def post(self, some: list[Event]) -> None:
        """Ship one batch as the runner does; returns when ingest has stored it."""
        self._ship(some)
        self._wait_until_stored()

    def _ship(self, some: list[Event]) -> None:
        """Returns when the console has taken the batch: it may still be on its way to the database."""
        self.batch += 1
        url = f"{self.console.url}/ingest/{self.run.pk}/{self.attempt}/events"
        answer = HTTP.post(
            url,
            json={"batch": self.batch, "events": some, "answered": []},
            headers={"Authorization": f"Bearer {ingest_token(self.run.pk, self.attempt)}"},
            timeout=200,
        )
        answer.raise_for_status()
        assert answer.json()["expect"] == self.batch + 1, answer.text

    def _wait_until_stored(self) -> None:
        attempt = Attempt.objects.filter(run=self.run, number=self.attempt)
        wait_until(
            lambda: attempt.filter(durable_batch__gte=self.batch).exists(),
            STORE_SECONDS,
            what=f"ingest did not store batch {self.batch} of {self.run.pk}",
        )

    def steps(self, count: int, *, at_once: int = 1) -> None:
        """Post `count` more steps, `at_once` a batch; they are on their way together, as a quick trainer's are."""
        for _ in range(0, count, at_once):
            some: list[Event] = []
            for _ in range(at_once):
                self.num_steps += 1
                some += self.step_events(self.num_steps)
            self._ship(some)
        self._wait_until_stored()

    def terminal_event(self, state: str, *, cause: Mapping[str, Any]) -> None:
        """Post the runner's last event: `state` is finished, failed or stopped."""
        head = {
            "kind": "state",
            "attempt": self.attempt,
            "step": self.num_steps,
            "role": "runner",
            "rank": 0,
            "t": self.clock,
        }
        word = {**head, "state": state, "cause": cause, "text": "", "meta": {"processes_left": 0}}
        self.post([cast(Event, word)])

    def step_events(self, step: int) -> list[Event]:
        """Return the events of one step: spans of three processes, metrics, samples, log lines."""
        found: list[Event] = []
        for phase, seconds, role in PHASES:
            length = int(seconds * NS)
            for who, rank in (("driver", 0), (role, 0), *([("policy", 1)] if role == "policy" else [])):
                found.append(
                    events.span(
                        phase,
                        start=self.clock,
                        duration=length,
                        attempt=self.attempt,
                        step=step,
                        role=who,
                        rank=rank,
                    )
                )
            self.clock += length
        values = {"reward/mean": self.reward + step / 200, "time/step_seconds": 0.95, "policy/entropy": 1.0}
        found.append(events.metric(values, attempt=self.attempt, step=step, t=self.clock))
        rng = random.Random(step)
        for group, index in itertools.product(range(2), range(2)):
            is_right = rng.random() < 0.5
            found.append(
                events.sample(
                    attempt=self.attempt,
                    step=step,
                    group=group,
                    index=index,
                    prompt=f"Step {step}: what is {group} plus {index}?",
                    completion=f"The answer is {group + index + (0 if is_right else 1)}",
                    expected=str(group + index),
                    reward=float(is_right),
                    rewards={"math": float(is_right)},
                    tokens=7,
                )
            )
        lines = [f"step {step} of the driver", f"needle {step}" if step % 5 == 0 else "hay"]
        logs = [
            events.log(lines, attempt=self.attempt, role="driver", step=step),
            events.log(
                [f"[rank 1] step {step}"], attempt=self.attempt, role="policy", rank=1, stream="stderr", step=step
            ),
        ]
        for log in logs:
            log["t"] = self.clock + NS // 100  # a driver tells of a step when it is over
        return [*found, *logs]


@pytest.fixture(scope="session")
def made_database(django_db_setup: None, django_db_blocker: object) -> Iterator[None]:
    """Make the test database where pytest-django has not: it makes only what the mark of a collected test asks for,
    and that mark would wrap these tests in transactions that the console's processes cannot see into.
    """
    del django_db_setup
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's loop runs in this thread; nothing here awaits
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        if connection.settings_dict["NAME"] == connection.creation._get_test_db_name():
            yield
            return
        setup_databases(verbosity=0, interactive=False, aliases={"default"}, keepdb=True)
    yield


@pytest.fixture(scope="module")
def console_cluster() -> dict[str, str]:
    """Return where the console of a module looks for Ray: nowhere. A module that needs a cluster has its own of it."""
    return {"RAY_ADDRESS": "http://127.0.0.1:9"}


class Consoles:
    """Web and ingest, started once for all modules that look for Ray in the same place."""

    def __init__(self, valkey: Valkey) -> None:
        self._valkey = valkey
        self._running: dict[tuple[tuple[str, str], ...], tuple[str, list[subprocess.Popen[bytes]]]] = {}

    def start(self, cluster: Mapping[str, str]) -> str:
        """Return where one answers, and ingest is at work."""
        key = tuple(sorted(cluster.items()))
        if not self._valkey.is_running:
            self._valkey.start()
        if key not in self._running:
            (port,) = free_block(1, seed=f"live console of process {os.getpid()}")
            url = f"http://127.0.0.1:{port}"
            settings = {"PITWALL_PORT": str(port), "PITWALL_PUBLIC_URL": url}
            settings["PITWALL_STATIC_ROOT"] = str(collected_statics())
            environment = {**service_environment(self._valkey.url), **settings, **cluster}
            processes = [
                subprocess.Popen(manage(name), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for name in ("web", "ingest")
            ]
            self._running[key] = url, processes
        url, (web, ingest) = self._running[key]
        _wait_for(f"{url}/signin", web)
        _wait_for_ingest(self._valkey, ingest, began=time.time())
        return url

    def stop(self) -> None:
        """End all of them."""
        processes = [process for _, both in self._running.values() for process in both]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


@pytest.fixture(scope="session")
def consoles(made_database: None, _valkey_server: Valkey) -> Iterator[Consoles]:
    """Make consoles for the tests of this session."""
    del made_database
    made = Consoles(_valkey_server)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def live_console(
    consoles: Consoles, django_db_blocker: object, console_cluster: dict[str, str]
) -> Iterator[LiveConsole]:
    """Let the tests of one module have a console and a project; what they write is deleted afterwards."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        project = make_project()
        user = make_user("watcher", project=project)
        try:
            yield LiveConsole(url=consoles.start(console_cluster), project=project, user=user)
        finally:
            Attempt.objects.filter(run__project=project).delete()
            project.delete()
            user.delete()


def _wait_for(url: str, web: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert web.poll() is None, f"web has ended with {web.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    pytest.fail(f"{url} did not answer within {START_SECONDS} s")


def _wait_for_ingest(valkey: Valkey, ingest: "subprocess.Popen[bytes]", *, began: float) -> None:
    """Return once it is at work. What it said before `began` may be of a time when Valkey was another."""
    with valkey.client() as asking:

        def is_at_work() -> bool:
            assert ingest.poll() is None, f"ingest has ended with {ingest.returncode}"
            return ingest_status(asking).seen_at > began

        wait_until(is_at_work, START_SECONDS, what="ingest did not come to work")
