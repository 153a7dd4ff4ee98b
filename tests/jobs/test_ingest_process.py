"""The real ingest process, killed and left without Redis: afterwards every batch is there, once."""

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import AsyncClient

from jobs.models import Attempt, Frame, LogChunk, Run
from jobs.runs.launch import ingest_token
from jobs.telemetry.series import read_series
from profiling import events as make
from tests.batches import manage, metric, service_environment
from tests.rows import make_run
from tests.services import Valkey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]

BATCHES = 40
PATIENCE_SECONDS = 180


class Shipper:
    """A runner in miniature: sends what is expected, comes back after 503, is done when all is durable."""

    def __init__(self, run: Run) -> None:
        self.client = AsyncClient()
        self.headers = {"Authorization": f"Bearer {ingest_token(run.pk, 1)}"}
        self.path = f"/ingest/{run.pk}/1/events"
        self.next, self.durable, self.refused = 1, 0, 0

    async def ship(self, last: int) -> None:
        """Ship the batches through `last`, but wait for nothing to become durable."""
        while self.next <= last:
            await self._post(self.next)

    async def settle(self, last: int) -> None:
        """Ship and repeat until everything is durable."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.durable < last:
                await self._post(self.next if self.next <= last else 0)
                await asyncio.sleep(0.02)

    async def _post(self, number: int) -> None:
        batch_events: list[Any] = []
        if number:
            batch_events = [metric(number, loss=float(number)), make.log([f"line {number}"], attempt=1, role="driver")]
        body = {"batch": number, "events": batch_events}
        answer = await self.client.post(self.path, body, content_type="application/json", headers=self.headers)
        if answer.status_code == 503:
            self.refused += 1
            await asyncio.sleep(0.05)
            return
        said = answer.json()
        assert answer.status_code == 200, said
        assert said["durable_through"] >= self.durable
        self.durable, self.next = said["durable_through"], said["expect"]
        assert self.next > self.durable


class Process:
    """`manage.py ingest`."""

    def __init__(self, valkey: Valkey) -> None:
        self.environment = service_environment(valkey.url)
        self.child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.child = subprocess.Popen(manage("ingest"), env=self.environment)

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.child is not None
        self.child.send_signal(number)
        code = self.child.wait(timeout=240)
        self.child = None
        return code


@pytest.fixture
def process(valkey: Valkey) -> Iterator[Process]:
    process = Process(valkey)
    yield process
    if process.child is not None:
        process.kill()


@pytest.fixture
def run() -> Run:
    return make_run(state="running")


@pytest.fixture
def shipper(run: Run, valkey: Valkey) -> Shipper:
    return Shipper(run)


def check(run: Run) -> None:
    """Every batch is there, once, in order, and frames are numbered without a hole."""
    everything = [float(i) for i in range(1, BATCHES + 1)]
    assert read_series(run_id=run.pk, names=["loss"], num_points=1000).series[0].y.tolist() == everything
    frames = Frame.objects.filter(run=run).order_by("seq").values_list("seq", "batch")
    assert list(frames) == [(i, i) for i in range(1, BATCHES + 1)]
    lines = LogChunk.objects.order_by("first_line").values_list("first_line", "text")
    assert list(lines) == [(i, f"line {i + 1}") for i in range(BATCHES)]
    assert Attempt.objects.get(run=run).durable_batch == BATCHES


async def test_killed_in_the_middle_it_stores_every_batch_once(run: Run, shipper: Shipper, process: Process) -> None:
    process.start()
    await shipper.settle(5)
    for last in range(BATCHES // 2, BATCHES + 1, BATCHES // 2):
        await shipper.settle(last - 10)  # it works
        await shipper.ship(last)  # and has ten more in its hands
        process.kill()
        process.start()

    await shipper.settle(BATCHES)

    await asyncio.to_thread(check, run)


async def test_a_restart_of_redis_costs_nothing_and_sigterm_leaves_nothing_behind(
    run: Run, shipper: Shipper, process: Process, valkey: Valkey
) -> None:
    process.start()
    await shipper.settle(5)
    valkey.kill()
    shipping = asyncio.create_task(shipper.ship(30))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not shipper.refused:
            await asyncio.sleep(0.01)
    valkey.start()

    await shipping
    await shipper.settle(BATCHES - 10)

    assert process.child is not None
    assert process.child.poll() is None  # the same process all the time
    assert process.kill(signal.SIGTERM) == 0

    process.start()
    await shipper.settle(BATCHES)
    await asyncio.to_thread(check, run)


async def test_what_a_wiped_redis_lost_is_sent_again(
    run: Run, shipper: Shipper, process: Process, valkey: Valkey
) -> None:
    process.start()
    await shipper.settle(10)
    process.kill()
    await shipper.ship(30)  # these are in Redis only
    valkey.wipe()
    valkey.start()
    process.start()

    await shipper.settle(BATCHES)

    await asyncio.to_thread(check, run)
