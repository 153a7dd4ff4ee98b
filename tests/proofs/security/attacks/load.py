"""M4: one viewer's expensive questions, and another person's page meanwhile."""

import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.site import Site

PARALLEL = 12
QUESTIONS = 40
P95_SECONDS = 0.3


@attack("M4")
def a_viewer_searches_layouts_twelve_at_once(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Each for another cluster of thousands of nodes; somebody else asks /api/account all the while."""
    is_over = threading.Event()
    statuses: list[int] = []

    def flood(number: int) -> None:
        question: dict[str, Any] = {"accelerator": "h200", "nodes": 4096 - number, "devices_per_node": 8}
        with site.client(headers={"Authorization": scene["tokens"]["viewer"]}) as client:
            while not is_over.is_set():
                body = {"spec": {}, "what_if": question}
                statuses.append(client.post("/api/projects/theirs/plan/layouts", json=body).status_code)
                question["nodes"] -= PARALLEL

    with site.client(headers={"Authorization": scene["tokens"]["editor"]}) as client:
        calm = _p95(client)
        threads = [threading.Thread(target=flood, args=(number,), daemon=True) for number in range(PARALLEL)]
        for thread in threads:
            thread.start()
        try:
            p95 = _p95(client)
        finally:
            is_over.set()
    for thread in threads:
        thread.join(180)
    load = os.getloadavg()[0]
    told = f"p95 of the other {p95:.2f} s ({calm:.2f} s before, load of the machine {load:.0f})"
    told += f"; {len(statuses)} searches, {statuses.count(429)} refused"
    holds = p95 < P95_SECONDS
    return outcome("twelve layout searches at once", stopped_by=told, got="" if holds else told)


def _p95(client: httpx.Client) -> float:
    """Return how many seconds nearly all of another person's questions take."""
    times = []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        client.get("/api/account").raise_for_status()
        times.append(time.perf_counter() - began)
        time.sleep(0.05)
    return sorted(times)[int(len(times) * 0.95) - 1]
