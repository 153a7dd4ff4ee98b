"""Viewers of the proof of the live path, in one process of their own: `python -m tests.proofs.live_viewers`.

Reads its orders as JSON lines: first {"host", "run", "cookie", "viewers", "flapping", "slow", "seed"}, later
{"last": seq}; prints {"ready": true} once all follow, then what they saw. Each viewer checks that frames come in order,
none missing, none twice; the points of a frame are checked when the first viewer sees it, and all others must get that
very text.
"""

import asyncio
import json
import random
import re
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.proofs.live_points import SERIES, wrong_values

_SEQ = re.compile(r'^\{"type":"frame","seq":(\d+)')
AWAY_SECONDS = (0.05, 1.0)  # a flapping viewer stays away this long
HERE_SECONDS = (0.5, 3.0)
SLOW_SECONDS = 1.0  # a slow viewer takes so long over each message
LATEST_SECONDS = 30.0  # to see the last frame after it is known


@dataclass(slots=True)
class Ledger:
    """Every frame as the first viewer got it: its text, and when its points were emitted (Unix ns)."""

    texts: dict[int, str] = field(default_factory=dict)
    emitted: dict[int, np.ndarray] = field(default_factory=dict)
    num_steps: int = 0
    wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def check(self, seq: int, text: str) -> None:
        """Check the points of a new frame, or that a known one came as the same text."""
        known = self.texts.get(seq)
        if known is not None:
            if known != text:
                self.wrong += 1
                self.problems.append(f"frame {seq} came as two different texts")
            return
        self.texts[seq] = text
        times: list[int] = []
        for lane in orjson.loads(text)["metrics"]:
            steps = np.asarray(lane["steps"])
            if not (steps == np.arange(self.num_steps + 1, self.num_steps + 1 + len(steps))).all():
                self.wrong += len(steps) * SERIES
                self.problems.append(f"frame {seq} has steps {steps[0]} to {steps[-1]} after {self.num_steps}")
            self.num_steps = int(steps[-1])
            self.wrong += wrong_values(steps, lane["values"])
            times += [int(t) for t in lane["t"]]
        self.emitted[seq] = np.asarray(times, np.int64)


@dataclass(slots=True)
class Viewer:
    """One browser. `seen`: (frame, when received, since when this connection stands), in the order of arrival."""

    number: int
    kind: str  # steady, flapping or slow
    last: int = 0
    gaps: int = 0
    duplicates: int = 0
    resets: int = 0
    connections: int = 0
    is_ready: bool = False
    seen: list[tuple[int, int, int]] = field(default_factory=list)


class Audience:
    """All viewers of the process."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        self.ledger = Ledger()
        others = orders["viewers"] - orders["flapping"] - orders["slow"]
        kinds = ["flapping"] * orders["flapping"] + ["slow"] * orders["slow"] + ["steady"] * others
        self.viewers = [Viewer(number=number, kind=kind) for number, kind in enumerate(kinds)]
        self.final: int | None = None  # the last frame there will be

    async def run(self) -> None:
        """Follow until every viewer has seen the last frame, or time is over; print what they saw."""
        tasks = [asyncio.create_task(self._follow(viewer)) for viewer in self.viewers]
        while not all(viewer.is_ready for viewer in self.viewers):
            await asyncio.sleep(0.02)
            self._raise(tasks)
        print(json.dumps({"ready": True}), flush=True)
        order = json.loads(await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline))
        self.final = int(order["last"])
        end = time.monotonic() + LATEST_SECONDS
        while time.monotonic() < end and any(viewer.last < self.final for viewer in self.viewers):
            await asyncio.sleep(0.02)
            self._raise(tasks)
        for task in tasks:
            task.cancel()
        print(json.dumps(self._report(order)), flush=True)

    def _raise(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and task.exception():
                raise task.exception()  # type: ignore[misc]  # it is one

    async def _follow(self, viewer: Viewer) -> None:
        chance = random.Random(self.orders["seed"] + viewer.number)
        host = self.orders["host"]
        headers = {"Cookie": self.orders["cookie"], "Origin": f"http://{host}"}
        while self.final is None or viewer.last < self.final:
            address = f"ws://{host}/ws/runs/{self.orders['run']}?after={viewer.last}"
            flaps = viewer.kind == "flapping"
            stay = chance.uniform(*HERE_SECONDS) if flaps and self.final is None else None
            try:
                async with connect(address, additional_headers=headers, compression=None, max_size=None) as feed:
                    viewer.connections += 1
                    await self._read(viewer, feed, stay)
                    if stay is not None and chance.random() < 0.5:
                        feed.transport.abort()  # as a lost network does; the other half closes properly
            except (ConnectionClosed, InvalidHandshake, OSError) as error:
                if not flaps:
                    self.ledger.problems.append(f"viewer {viewer.number} lost its connection: {error!r}")
            if stay is not None:
                await asyncio.sleep(chance.uniform(*AWAY_SECONDS))

    async def _read(self, viewer: Viewer, feed: ClientConnection, stay: float | None) -> None:
        since = time.time_ns()
        try:
            async with asyncio.timeout(stay):
                async for text in feed:
                    received = time.time_ns()
                    if viewer.kind == "slow" and viewer.is_ready and self.final is None:
                        await asyncio.sleep(SLOW_SECONDS)
                    found = _SEQ.match(str(text))
                    if found:
                        self._take(viewer, int(found[1]), str(text), received, since)
                        if viewer.last == self.final:
                            return
                        continue
                    kind = orjson.loads(text)["type"]
                    viewer.resets += kind == "reset"
                    viewer.is_ready = viewer.is_ready or kind == "heartbeat"
        except TimeoutError:
            return

    def _take(self, viewer: Viewer, seq: int, text: str, received: int, since: int) -> None:
        if seq <= viewer.last:
            viewer.duplicates += 1
            return
        viewer.gaps += seq - viewer.last - 1
        viewer.last = seq
        self.ledger.check(seq, text)
        viewer.seen.append((seq, received, since))

    def _report(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return counts, and the delays of points: of travels that touched no outage, by viewers who were there."""
        killed, recovered, begin = order.get("killed", 0), order.get("recovered", 0), order["begin"]
        delays: dict[str, list[np.ndarray]] = {kind: [] for kind in ("steady", "flapping", "slow")}
        for viewer in self.viewers:
            for seq, received, since in viewer.seen:
                emitted = self.ledger.emitted[seq]
                counts = (emitted >= max(begin, since)) & ~((emitted < recovered) & (received > killed))
                delays[viewer.kind].append((received - emitted[counts]) / 1e6)
        points = [sum(len(self.ledger.emitted[seq]) for seq, _r, _s in v.seen) * SERIES for v in self.viewers]
        return {
            "gaps": sum(v.gaps for v in self.viewers) + sum(max(0, (self.final or 0) - v.last) for v in self.viewers),
            "duplicates": sum(v.duplicates for v in self.viewers),
            "resets": sum(v.resets for v in self.viewers),
            "wrong": self.ledger.wrong,
            "problems": self.ledger.problems[:10],
            "points_least": min(points),
            "points_most": max(points),
            "connections": sum(v.connections for v in self.viewers),
            "flapping": _percentiles(delays["flapping"]),
            "all": _percentiles(delays["steady"] + delays["flapping"]),  # who is slow waits for nobody but himself
        }


def _percentiles(parts: list[np.ndarray]) -> dict[str, float]:
    every = np.concatenate(parts) if parts else np.zeros(0)
    if not len(every):
        return {}
    p50, p95, p99 = np.percentile(every, [50, 95, 99])
    return {"n": len(every) * SERIES, "p50": p50, "p95": p95, "p99": p99, "max": float(every.max())}


if __name__ == "__main__":
    asyncio.run(Audience(json.loads(sys.stdin.readline())).run())
