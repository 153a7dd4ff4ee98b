"""From the click to a recording, and from its end to something to see: `python -m tests.bench.recording`.

A real console and a real GRPO run (two policy ranks, vLLM, a reference). A click is a POST through the API, as the
page's; `recording` is what the console says, so the way to the trainer and back is in it. Something to see is the first
tile of the first file that was imported. The last recording holds half a million ranges of nsys, which are planted in
one policy rank.
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from profiling.launch_nsys import problem_of_install
from tests.bench.stage import Result, print_table
from tests.journeys.conftest import Stack, start_stack, stop_stack, wait_for_line
from tests.journeys.other_trainers import token_of
from tests.proofs.diagnosis import PLANTED

COMMAND = "python -m tests.bench.recording"
TIMES = 5
GOALS = {"click to recording": 3.0, "ranges: end to first view": 5.0}
WAIT_SECONDS = 180.0
LOOK_SECONDS = 0.02
STEPS_MEANWHILE = 2
MANY_RANGES = 500_000
SPEC: dict[str, Any] = {
    "name": "bench of recordings",
    "algorithm": "grpo",
    "knobs": {"train.num_steps": 5000, "eval.num_prompts": 0, "checkpoint.every_steps": 0},
}


class Site:
    """The API of a console, and the run that is recorded."""

    def __init__(self, stack: Stack) -> None:
        headers = {"Authorization": f"Bearer {token_of(stack)}"}
        self.http = httpx.Client(base_url=f"{stack.url}/api", headers=headers, trust_env=False, timeout=30)
        self.run = ""

    def send(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """POST, and return the answer."""
        key = {"Idempotency-Key": secrets.token_hex(8)}
        answer: dict[str, Any] = self.http.post(path, json=body, headers=key).raise_for_status().json()
        return answer

    def get(self, path: str) -> dict[str, Any]:
        """GET, and return the answer."""
        answer: dict[str, Any] = self.http.get(path).raise_for_status().json()
        return answer

    def launch(self) -> None:
        """Start the run and wait for its second step."""
        self.run = self.send("/runs", SPEC)["run"]["id"]
        until(lambda: self.step() >= STEPS_MEANWHILE)

    def step(self) -> int:
        """Return the step that is done."""
        return int(self.get(f"/runs/{self.run}")["step"])

    def capture(self, capture: str) -> dict[str, Any]:
        """Return a capture."""
        found = self.get(f"/runs/{self.run}/captures/{capture}")
        assert found["state"] != "failed", found["problem"]
        return found


def until(is_so: Callable[[], bool]) -> None:
    """Return when it is so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(LOOK_SECONDS)


def record(
    site: Site, tool: str, role: str, *, ranks: Sequence[int] = (), started: Callable[[], object] = bool
) -> tuple[float, float]:
    """Record two steps by time; return seconds from click to recording, and from ending it to the first view."""
    begin = time.monotonic()
    asked = {"tool": tool, "seconds": 300, "roles": [role], "ranks": list(ranks)}
    capture = site.send(f"/runs/{site.run}/captures", asked)["id"]
    until(lambda: site.capture(capture)["state"] == "recording")
    recording = time.monotonic() - begin
    started()
    step = site.step()
    until(lambda: site.step() >= step + STEPS_MEANWHILE)
    begin = time.monotonic()
    site.send(f"/runs/{site.run}/captures/{capture}/end")
    until(lambda: bool(site.capture(capture)["trace_url"]))
    trace = site.capture(capture)["trace_url"].rpartition("/")[2]
    until(lambda: any(layer["state"] == "ready" for layer in site.get(f"/traces/{trace}")["layers"]))
    layer = next(layer["id"] for layer in site.get(f"/traces/{trace}")["layers"] if layer["state"] == "ready")
    site.http.get(f"/traces/{trace}/layers/{layer}/tiles/24/0").raise_for_status()
    seen = time.monotonic() - begin
    until(lambda: site.capture(capture)["state"] == "ready")
    return recording, seen


def result(what: str, values: list[float]) -> Result:
    """Return one number as the table shows it."""
    ordered = sorted(values)
    spread = (ordered[0], ordered[-1])
    return Result(what=what, median=ordered[len(ordered) // 2], spread=spread, unit="s", command=COMMAND)


def measure(site: Site, count: int) -> list[Result]:
    """Record each kind of worker with each tool, the first time told apart: torch loads its profiler then."""
    found = []
    for tool in ("torch", "nsys") if not problem_of_install() else ("torch",):
        for role, who in (("policy", "trainer ranks"), ("vllm", "vLLM")):
            times = [record(site, tool, role) for _ in range(count + 1)]
            found += [
                result(f"record, {tool}, {who}: click to recording, the first time", [times[0][0]]),
                result(f"record, {tool}, {who}: click to recording", [one for one, _ in times[1:]]),
                result(f"record, {tool}, {who}: end to first view", [one for _, one in times]),
            ]
    return found


def measure_many(site: Site, switch: Path) -> list[Result]:
    """Record half a million ranges with nsys, and see that they all came."""
    if problem_of_install():
        return []
    _, seen = record(site, "nsys", "policy", ranks=[0], started=lambda: switch.write_text("many_ranges"))
    trace = site.get("/traces")["traces"][0]["id"]
    events = sum(layer["events"] or 0 for layer in site.get(f"/traces/{trace}")["layers"])
    assert events > MANY_RANGES, f"{events} events of {MANY_RANGES} came"
    return [result(f"record, nsys, {MANY_RANGES:,} ranges: end to first view", [seen])]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; the exit code is 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help="recordings of each kind to take the median of")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as folder:
        switch = Path(folder) / "planted"
        switch.touch()
        planted = {
            "PYTHONPATH": str(PLANTED),
            "PITWALL_PLANTED": str(switch),
            "PITWALL_PLANTED_RANGES": str(MANY_RANGES),
        }
        stack = start_stack(extra_env=planted)
        try:
            wait_for_line(stack, "Ray is ready", seconds=WAIT_SECONDS)
            site = Site(stack)
            site.launch()
            results = [*measure(site, given.times), *measure_many(site, switch)]
            site.send(f"/runs/{site.run}/stop")
            until(lambda: site.get(f"/runs/{site.run}")["state"] in ("stopped", "failed"))
        finally:
            stop_stack(stack)
    print_table(results)
    missed = [
        f"{one.what}: {one.median:.1f} s, asked {most:.0f} s"
        for one in results
        for what, most in GOALS.items()
        if one.what.endswith(what) and one.median > most
    ]
    if missed:
        sys.exit(f"Missed: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
