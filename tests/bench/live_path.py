"""Emitted to received, measured: `python -m tests.bench.live_path`.

A real Valkey, `manage.py web` and `manage.py ingest`; one runner that ships a batch every 100 ms through the ingest
endpoint, as jobs.runner does; 20 real websocket clients that follow it. Each metric carries the moment it was emitted,
on the clock that the clients read too (one machine). The wait for the runner's next 100 ms window is part of the
number.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import orjson
from websockets.asyncio.client import connect

from tests.bench.stage import ROOT, Result, environment, print_table
from tests.bench.watched_run import make_watched_run

COMMAND = "python -m tests.bench.live_path"
VIEWERS = 20
WINDOW_SECONDS = 0.1  # of the runner
EMIT_SECONDS = 0.02  # a metric this often: the worst place in a window counts as well as the best


def main() -> None:
    """Start everything, measure, print the table, stop everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=18300)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--viewers", type=int, default=VIEWERS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(make_watched_run()))
        return
    from tests.services import Valkey

    with tempfile.TemporaryDirectory(prefix="pw-bench-vk-") as folder:
        valkey = Valkey(Path(folder))
        valkey.start()
        children: list[subprocess.Popen[bytes]] = []
        try:
            with environment(redis_url=valkey.url) as env:
                argv = [sys.executable, "-m", "tests.bench.live_path", "--inside"]
                made = json.loads(subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True).stdout)
                Path(env["PITWALL_DATA_DIR"], "static").mkdir(exist_ok=True)
                for command in (["web", "--port", str(given.port)], ["ingest"]):
                    children.append(subprocess.Popen([sys.executable, "manage.py", *command], cwd=ROOT, env=env))
                try:
                    delays = asyncio.run(_measure(f"127.0.0.1:{given.port}", made, given.seconds, given.viewers))
                finally:
                    for child in children:
                        child.terminate()
                    for child in children:
                        child.wait(timeout=60)
        finally:
            valkey.kill()
    _report(delays, given.viewers)


async def _measure(host: str, made: dict[str, str], seconds: float, viewers: int) -> list[float]:
    """Return the delay of every metric at every viewer, in ms."""
    await _until_it_answers(host)
    delays: list[float] = []
    over = asyncio.Event()
    ready = asyncio.Semaphore(0)
    watching = [asyncio.create_task(_watch(host, made, delays, ready)) for _ in range(viewers)]
    for _ in range(viewers):
        await ready.acquire()
    queue: list[dict[str, Any]] = []
    emitting = asyncio.create_task(_emit(queue, over))
    shipping = asyncio.create_task(_ship(host, made, queue, over))
    await asyncio.sleep(2)  # what starts up late is not the subject
    delays.clear()
    await asyncio.sleep(seconds)
    over.set()
    await asyncio.gather(emitting, shipping)
    for task in watching:
        task.cancel()
    results = await asyncio.gather(*watching, return_exceptions=True)
    failed = [r for r in results if isinstance(r, Exception)]
    if failed:
        raise failed[0]
    return delays


async def _until_it_answers(host: str) -> None:
    async with httpx.AsyncClient(timeout=60) as client, asyncio.timeout(60):
        while True:
            try:
                await client.get(f"http://{host}/healthz")
                return
            except httpx.TransportError:
                await asyncio.sleep(0.1)


async def _emit(queue: list[dict[str, Any]], over: asyncio.Event) -> None:
    step = 0
    while not over.is_set():
        step += 1
        head = {"kind": "metric", "attempt": 1, "step": step, "role": "driver", "rank": 0, "t": time.time_ns()}
        queue.append({**head, "values": {f"metric/{i}": step + i / 7 for i in range(20)}})
        await asyncio.sleep(EMIT_SECONDS)


async def _ship(host: str, made: dict[str, str], queue: list[dict[str, Any]], over: asyncio.Event) -> None:
    url = f"http://{host}/ingest/{made['run']}/1/events"
    number = 0
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {made['token']}"}, timeout=60) as client:
        while not over.is_set():
            began = time.monotonic()
            batch, queue[:] = list(queue), []
            if batch:
                number += 1
                answer = await client.post(url, content=orjson.dumps({"batch": number, "events": batch}))
                assert answer.status_code == 200, answer.text
                assert answer.json()["expect"] == number + 1, answer.text
            await asyncio.sleep(max(0.0, WINDOW_SECONDS - (time.monotonic() - began)))


async def _watch(host: str, made: dict[str, str], delays: list[float], ready: asyncio.Semaphore) -> None:
    headers = {"Cookie": made["cookie"], "Origin": f"http://{host}"}
    last = 0
    async with connect(
        f"ws://{host}/ws/runs/{made['run']}?after=0", additional_headers=headers, compression=None
    ) as feed:
        async for text in feed:
            received = time.time_ns()
            message = orjson.loads(text)
            if message["type"] == "heartbeat" and last == 0:
                ready.release()
            if message["type"] != "frame":
                continue
            assert message["seq"] == last + 1, f"frame {message['seq']} after {last}"
            last = message["seq"]
            delays += [(received - int(t)) / 1e6 for lane in message["metrics"] for t in lane["t"]]


def _report(delays: list[float], viewers: int) -> None:
    ordered = sorted(delays)
    spread = (ordered[0], ordered[-1])
    p95, p99 = (ordered[int(len(ordered) * share)] for share in (0.95, 0.99))
    what = f"metric emitted to received, {viewers} viewers"
    rows = [
        (f"{what}, p50", statistics.median(ordered)),
        (f"{what}, p95", p95),
        (f"{what}, p99", p99),
    ]
    print_table([Result(what=name, median=value, spread=spread, unit="ms", command=COMMAND) for name, value in rows])
    machine = f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    print(f"{len(ordered):,} deliveries on {machine}; none missing, none twice.")


if __name__ == "__main__":
    main()
