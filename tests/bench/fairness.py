"""One person floods, another works: `python -m tests.bench.fairness`, with a gate.

A real `manage.py web`. A viewer asks for twelve layouts at once, again and again, each on another number of nodes near
4,096 so that nothing is answered from memory; meanwhile somebody else asks for their account, one request after the
other, as a page does. The exit code is 1 if that takes longer than it may.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.bench.stage import ROOT, Result, environment, print_table

COMMAND = "make bench-fairness"
PARALLEL = 12
MOST_MS = 300.0
"""The 95th percentile of the other person's request, while the flood lasts."""
LEAST_REQUESTS = 40
START_SECONDS = 60.0


def main() -> None:
    """Start a console, measure before and under the flood, print the table; the exit code says whether it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=18320)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(_made_people()))
        return
    with environment() as env:
        argv = [sys.executable, "-m", "tests.bench.fairness", "--inside"]
        people = json.loads(subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True).stdout)
        web = subprocess.Popen([sys.executable, "manage.py", "web", "--port", str(given.port)], cwd=ROOT, env=env)
        try:
            calm, flooded, answers = _measure(f"http://127.0.0.1:{given.port}", people, given.seconds, web)
        finally:
            web.terminate()
            web.wait(timeout=60)
    sys.exit(_report(calm, flooded, answers))


def _made_people() -> dict[str, str]:
    import django

    django.setup()
    from console.sign_in.api_token import make_token
    from tests.rows import make_project, make_user

    project = make_project("pit")
    tokens = {
        name: make_token(user=make_user(name, project=project, role="viewer"), name="bench")[1]
        for name in ("flooding", "working")
    }
    return {"project": project.slug, **tokens}


def _measure(
    url: str, people: dict[str, str], seconds: float, web: "subprocess.Popen[bytes]"
) -> tuple[list[float], list[float], Counter[int]]:
    """Return the ms of each of the other's requests, before and under the flood, and what the flood was answered."""
    over = threading.Event()
    answers: Counter[int] = Counter()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {people['working']}"}, timeout=60) as working:
        _wait_until_it_answers(working, web)
        _ask(working, seconds=2)
        calm = _ask(working, seconds=seconds / 4)
        with ThreadPoolExecutor(PARALLEL) as threads:
            flood = [threads.submit(_flood, url, people, number, over, answers) for number in range(PARALLEL)]
            try:
                flooded = _ask(working, seconds=seconds)
            finally:
                over.set()
            for each in flood:
                each.result()
    return calm, flooded, answers


def _wait_until_it_answers(client: httpx.Client, web: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if web.poll() is not None:
            sys.exit(f"The web process ended with {web.returncode}.")
        try:
            client.get("/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.1)
    sys.exit(f"The web process did not answer within {START_SECONDS:.0f} s.")


def _ask(client: httpx.Client, *, seconds: float) -> list[float]:
    """Return the ms of each request for the account until so many seconds are over, and at least LEAST_REQUESTS."""
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times) < LEAST_REQUESTS:
        began = time.perf_counter()
        client.get("/api/account").raise_for_status()
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    return times


def _flood(url: str, people: dict[str, str], number: int, over: threading.Event, answers: Counter[int]) -> None:
    from jobs.catalog.recipe import recipes

    spec = dict(recipes()["verl-grpo-qwen3-8b"].raw)
    nodes = 4096 - number
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {people['flooding']}"}, timeout=300) as client:
        while not over.is_set():
            body: dict[str, Any] = {"spec": spec, "limit": 100}
            body["what_if"] = {"accelerator": "h200", "nodes": nodes, "devices_per_node": 8}
            answers[client.post(f"/api/projects/{people['project']}/plan/layouts", json=body).status_code] += 1
            nodes -= PARALLEL


def _report(calm: list[float], flooded: list[float], answers: Counter[int]) -> int:
    """Print the numbers; return 0 if the gate holds."""
    held = _high(flooded) <= MOST_MS
    if not answers[200]:
        print(f"The flood was answered {dict(answers)}: no layout was searched, so this says nothing.")
    rows = [
        Result(what=what, median=value, spread=(min(all_), max(all_)), unit="ms", command=COMMAND)
        for what, value, all_ in (
            ("account, alone, median", statistics.median(calm), calm),
            ("account, alone, 95 %", _high(calm), calm),
            ("account, under a flood, median", statistics.median(flooded), flooded),
            ("account, under a flood, 95 %", _high(flooded), flooded),
        )
    ]
    print_table(rows)
    print(f"The flood was answered {dict(answers)}. {len(flooded)} requests under it; load {os.getloadavg()[0]:.1f}.")
    print(f"{'holds' if held else 'DOES NOT HOLD'}: 95 % within {MOST_MS:.0f} ms under a flood of {PARALLEL}")
    return 0 if held and answers[200] else 1


def _high(values: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


if __name__ == "__main__":
    main()
