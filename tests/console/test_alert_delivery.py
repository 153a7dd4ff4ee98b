"""A worker that is killed while it sends: nothing is forgotten, and what comes twice is told as what came before."""

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from console.celery import _broker
from jobs.alerts import outbox
from jobs.alerts.channel_list import make_channel
from jobs.alerts.incidents import apply
from jobs.alerts.sighting import Sighting
from jobs.models import AlertMessage, AlertRule
from tests.batches import manage, service_environment
from tests.jobs.alerts.watchman import Receiver
from tests.rows import make_project, make_user
from tests.services import Valkey
from tests.waiting import wait_until

NUM_ALERTS = 12
NUM_KILLS = int(os.environ.get("ALERT_KILLS", "1"))  # each is a start of a worker, which takes seconds
SEED = int(os.environ.get("ALERT_SEED", "20"))


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.WEBHOOK_HOSTS = ["127.0.0.1"]
    receiver = Receiver()
    receiver.seconds = 0.05  # to answer, so that a kill comes in between
    thread = threading.Thread(target=receiver.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def states() -> Counter[str]:
    return Counter(AlertMessage.objects.values_list("state", flat=True))


@pytest.fixture
def _tasks_go_to_workers() -> Iterator[None]:
    """Let tasks leave this process."""
    conf = outbox.deliver_task.app.conf
    conf.task_always_eager = False
    yield
    conf.task_always_eager = True


@pytest.mark.proof
@pytest.mark.usefixtures("_tasks_go_to_workers")
@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
def test_killed_workers_forget_nothing_and_what_comes_twice_has_the_same_key(
    valkey: Valkey, receiver: Receiver, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = AlertRule.objects.create(project=make_project(), kind="lost_contact", name="Lost")
    channel, _secret = make_channel(
        kind="webhook", name="hook", address=receiver.url, actor=make_user(), project=rule.project
    )
    rule.channels.add(channel)
    asked: list[int] = []
    monkeypatch.setattr(outbox, "ask_worker", asked.append)
    data = {"what": "lost_contact", "name": "demo", "minutes": 2}
    sightings = [Sighting(rule=rule, object_id=str(n), is_on=True, data=data) for n in range(NUM_ALERTS)]
    apply(sightings, rules=[rule], now=timezone.now())
    chance = random.Random(SEED)
    environment = service_environment(valkey.url) | {
        "PITWALL_WEBHOOK_HOSTS": "127.0.0.1",
        "PITWALL_SECRET_KEY": settings.SECRET_KEY,
    }
    workers = []
    try:
        for _ in range(NUM_KILLS):
            worker = start_worker(environment, tmp_path)
            workers.append(worker)
            before = len(receiver.requests)
            _send_to_workers(valkey)
            wait_until(partial(_has_come, receiver, before), 60, "no worker sent anything")
            time.sleep(chance.uniform(0, 0.1))
            worker.send_signal(signal.SIGKILL)
            worker.wait(30)
            # The lease of what it held is over at once, which takes 90 s in life.
            AlertMessage.objects.filter(state="sending").update(lease_until=timezone.now() - timedelta(seconds=1))
        workers.append(start_worker(environment, tmp_path))
        _send_to_workers(valkey)
        wait_until(lambda: states() == {"sent": NUM_ALERTS}, 60, lambda: str(states()))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(30)

    raw = Counter(receiver.keys)
    assert len(raw) == NUM_ALERTS, "each incident has come, under a key of its own"
    repeats = [body["id"] for _headers, body in receiver.requests if body["is_repeat"]]
    assert sum(raw.values()) - NUM_ALERTS <= len(repeats), "what came twice says so"
    assert len(repeats) <= 4 * NUM_KILLS, "at most what four threads had in their hands"


def _has_come(receiver: Receiver, before: int) -> bool:
    return len(receiver.requests) > before


def start_worker(environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start `manage.py worker`."""
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(manage("worker"), env=environment, stdout=log, stderr=log)


def _send_to_workers(valkey: Valkey) -> None:
    """Put every message that is not out into the queue, as the reconciler's sweep does."""
    app = outbox.deliver_task.app
    with app.connection_for_write(url=_broker(valkey.url)) as connection:
        for pk in AlertMessage.objects.exclude(state="sent").values_list("pk", flat=True):
            outbox.deliver_task.apply_async(kwargs={"message_id": pk}, connection=connection, retry=False)
