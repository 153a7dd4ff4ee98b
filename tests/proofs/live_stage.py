"""The stage of the proof of the live path: real Valkey, database, web, ingest; a runner's side that emits and ships."""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.bench.stage import ROOT, environment
from tests.bench.watched_run import make_watched_run
from tests.proofs.live_points import NAMES, SERIES, event
from tests.services import Valkey, durable_postgres

WINDOW_SECONDS = 0.1  # a runner ships so often
TICK_SECONDS = 0.02  # points are emitted evenly, so often
MOST_EVENTS = 2000  # of one batch, as the runner cuts them
CAUGHT_UP = 3  # batches that may be on their way while nothing is wrong
START_SECONDS = 60.0


@dataclass(slots=True)
class Console:
    """Web and ingest on one database. `kill_ingest` and `start_ingest` are what a crash and a supervisor do."""

    host: str
    env: dict[str, str]
    web: subprocess.Popen[bytes]
    ingest: subprocess.Popen[bytes]

    def kill_ingest(self) -> None:
        """End it without a chance to tidy up."""
        self.ingest.send_signal(signal.SIGKILL)
        self.ingest.wait()

    def start_ingest(self) -> None:
        """Start another one."""
        self.ingest = subprocess.Popen([sys.executable, "manage.py", "ingest"], cwd=ROOT, env=self.env)

    def make_run(self) -> dict[str, str]:
        """Return a new run, its token, and the cookie of somebody who may see it."""
        argv = [sys.executable, "-m", "tests.proofs.live_stage"]
        made = subprocess.run(argv, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, check=True)
        found: dict[str, str] = json.loads(made.stdout)
        return found


@contextmanager
def console(database: str, *, port: int) -> Iterator[Console]:
    """Start everything on `database` (sqlite or postgres, with fsync); stop it all afterwards."""
    with tempfile.TemporaryDirectory(prefix="pw-live-") as folder, _database(database) as database_url:
        valkey = Valkey(Path(folder))
        valkey.start()
        children: list[subprocess.Popen[bytes]] = []
        try:
            with environment(redis_url=valkey.url, database_url=database_url) as env:
                env["PITWALL_SOCKETS_OF_PERSON"] = env["PITWALL_SOCKETS_OF_RUN"] = "1000"  # one person is all viewers
                Path(env["PITWALL_DATA_DIR"], "static").mkdir(exist_ok=True)
                web = [sys.executable, "manage.py", "web", "--port", str(port)]
                children.append(subprocess.Popen(web, cwd=ROOT, env=env))
                ingest = subprocess.Popen([sys.executable, "manage.py", "ingest"], cwd=ROOT, env=env)
                started = Console(host=f"127.0.0.1:{port}", env=env, web=children[0], ingest=ingest)
                try:
                    yield started
                finally:
                    for child in (*children, started.ingest):
                        child.terminate()
                    for child in (*children, started.ingest):
                        child.wait(timeout=20)
        finally:
            valkey.kill()


@contextmanager
def _database(name: str) -> Iterator[str]:
    if name == "sqlite":
        yield ""
        return
    with durable_postgres() as server:
        yield server.url


@dataclass(slots=True)
class Runner:
    """The runner's side of the wire: emits at a rate, ships every 100 ms; a batch goes once the ingest endpoint has
    taken it."""

    console: Console
    made: dict[str, str]
    rate: int  # points a second
    step: int = 0
    batch: int = 0
    durable_through: int = 0
    waiting: list[dict[str, Any]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def emit(self) -> None:
        """Emit evenly until it is over. Being late is made up for, so that the rate is what was asked for."""
        began, emitted = time.monotonic(), 0
        while not self.over.is_set():
            due = int((time.monotonic() - began) * self.rate / SERIES)
            for _ in range(due - emitted):
                self.step += 1
                self.waiting.append(event(self.step))
            emitted = due
            await asyncio.sleep(TICK_SECONDS)

    async def ship(self) -> None:
        """Ship windows until it is over and everything that was emitted is durable."""
        async with _client(self.made) as client:
            while not (self.over.is_set() and not self.waiting and self.durable_through == self.batch):
                began = time.monotonic()
                batch, self.waiting[:MOST_EVENTS] = self.waiting[:MOST_EVENTS], []
                if batch:
                    self.batch += 1
                    await self._post(client, {"batch": self.batch, "events": batch})
                else:
                    await self._post(client, {"batch": 0, "events": []})
                if self.batch - self.durable_through <= CAUGHT_UP:
                    self.caught_up.set()
                await asyncio.sleep(max(0.0, WINDOW_SECONDS - (time.monotonic() - began)))

    async def _post(self, client: httpx.AsyncClient, body: dict[str, Any]) -> None:
        """Post until the ingest endpoint has taken it: 503 and a cut connection are tried again, as the runner does."""
        content = orjson.dumps(body)
        while True:
            try:
                answer = await client.post(address(self.console, self.made), content=content)
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            if answer.status_code == 503:
                await asyncio.sleep(0.1)
                continue
            assert answer.status_code == 200, answer.text
            said = answer.json()
            self.durable_through = max(self.durable_through, said["durable_through"])
            if not body["batch"] or said["expect"] == body["batch"] + 1:
                return
            assert said["expect"] == body["batch"], (
                f"the ingest endpoint expects {said['expect']}, this is {body['batch']}"
            )


async def durable_rate(console: Console, *, batches: int, events: int) -> float:
    """Return the points a second that go from the runner's POST into the database, at full speed."""
    made = await asyncio.to_thread(console.make_run)
    bodies = [
        orjson.dumps({"batch": n + 1, "events": [event(n * events + i + 1) for i in range(events)]})
        for n in range(batches)
    ]
    async with _client(made) as client:
        began = time.perf_counter()
        for body in bodies:
            answer = await client.post(address(console, made), content=body)
            assert answer.status_code == 200, answer.text
        while answer.json()["durable_through"] < batches:
            answer = await client.post(address(console, made), content=b'{"batch": 0, "events": []}')
        return batches * events * SERIES / (time.perf_counter() - began)


async def points_stored(console: Console, made: dict[str, str]) -> list[int]:
    """Return how many points of each series the console says it has."""
    async with httpx.AsyncClient(headers={"Cookie": made["cookie"]}, timeout=60) as client:
        query = {"points": 100, "metrics": ",".join(made["names"])}
        answer = await client.get(f"http://{console.host}/api/runs/{made['run']}/series", params=query)
        answer.raise_for_status()
        return [series["of"] for series in answer.json()["series"]]


async def until_it_answers(console: Console) -> None:
    """Return once the web process serves."""
    async with httpx.AsyncClient() as client, asyncio.timeout(START_SECONDS):
        while True:
            try:
                await client.get(f"http://{console.host}/healthz")
                return
            except httpx.TransportError:
                await asyncio.sleep(0.1)


def address(console: Console, made: dict[str, str]) -> str:
    """Return the runner's ingest endpoint of the run."""
    return f"http://{console.host}/ingest/{made['run']}/1/events"


@asynccontextmanager
async def _client(made: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {made['token']}"}
    async with httpx.AsyncClient(headers=headers, timeout=30) as client:
        yield client


if __name__ == "__main__":
    print(json.dumps({**make_watched_run(), "names": NAMES}))
