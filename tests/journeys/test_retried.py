"""A run whose runner is killed, and whose newest checkpoint is lost, starts again by itself.

That parts of the console are killed under a run is in tests/jobs/runner/test_with_console.py, a Redis that forgets
everything in tests/jobs/test_ingest_process.py, a cluster that is lost in tests/jobs/processes/test_reconcile.py; all
faults, at three moments each, are in `make proof-faults`.
"""

import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.journeys.conftest import Stack, wait_for_line
from tests.links import use
from tests.proofs.faults import points, trainer
from tests.waiting import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.engine]

STEPS = 40  # so quick that fewer may be over before the second checkpoint is noticed
END_SECONDS = 400.0  # for the first attempt's end to be told; other runs load meanwhile
SPEC: dict[str, Any] = {
    "name": "retried",
    "algorithm": "sft",
    "hardware": {"policy_ranks": 1},
    "profile": {"nsys_ready": "off"},
    "policy": {"retries": 1, "retry_on": "cluster"},
    "knobs": {
        "train.num_steps": STEPS,
        "checkpoint.every_steps": 2,
        "checkpoint.keep": STEPS,
        "eval.num_prompts": 0,
    },
}


class RetriedRun:
    """The run, which checkpoint of its first attempt was taken away (`lost`), and the one before it (`origin`)."""

    def __init__(self, http: httpx.Client, runs: Path) -> None:
        answer = http.post("/api/runs", json=SPEC)
        assert answer.status_code == 201, answer.text
        self.id = str(answer.json()["run"]["id"])
        self.run_dir = runs / self.id / "a1"
        self.lost = self.origin = 0
        self.hit_at = 0.0
        self._http = http

    def get(self, what: str = "") -> dict[str, Any]:
        """Return what the API says of the run."""
        found: dict[str, Any] = self._http.get(f"/api/runs/{self.id}{what}").raise_for_status().json()
        return found

    def saved(self) -> list[int]:
        """Return the steps whose checkpoints the trainer has told of."""
        told = [e for e in trainer.events(self.run_dir) if e["kind"] == "artifact"]
        return sorted(e["step"] for e in told if e["artifact"] == "checkpoint")

    def hit(self) -> None:
        """Kill the runner, and the trainer with it; take away the newest checkpoint that they told of."""
        runner = trainer.runner(self.id)
        assert runner is not None, "the run was over before it could be hit"
        doomed = trainer.processes(self.id)  # not those that come then to clean up, and to go on
        self.hit_at = time.time()
        runner.kill()
        assert psutil.wait_procs(doomed, timeout=200)[1] == []
        *_, self.origin, self.lost = self.saved()
        shutil.rmtree(self.run_dir / "checkpoints" / f"step-{self.lost}")


@pytest.fixture
def http(stack: Stack) -> Iterator[httpx.Client]:
    """A person who has signed in."""
    wait_for_line(stack, "Ray is ready", seconds=300)
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        use(client, stack.signin_link())
        client.get("/")
        client.headers["X-CSRFToken"] = client.cookies["csrftoken"]
        yield client


@pytest.mark.proof
@pytest.mark.slow("a run of three attempts")
def test_a_run_that_loses_its_runner_and_a_checkpoint_starts_again_by_itself(http: httpx.Client, stack: Stack) -> None:
    run = RetriedRun(http, stack.data_dir / "runs")
    wait_until(lambda: len(run.saved()) >= 2, 600, "two checkpoints were not told of")

    run.hit()

    wait_until(lambda: run.get()["state"] == "finished", 900, "the run did not finish")
    header = run.get()
    began = [(a["number"], a["state"], a["resume_attempt"], a["resume_step"]) for a in header["attempts"]]
    assert began == [(1, "failed", None, 0), (2, "failed", 1, run.lost), (3, "finished", 1, run.origin)]
    assert [a["is_automatic"] for a in header["attempts"]] == [False, True, True]
    killed, seeking = (a["cause"] for a in header["attempts"][:2])
    assert (killed["side"], "runner was killed" in killed["text"]) == ("cluster", True)
    assert datetime.fromisoformat(header["attempts"][0]["ended_at"]).timestamp() - run.hit_at < END_SECONDS
    gone = f"checkpoint {run.lost} of attempt 1 is not on this node"
    assert seeking["text"].startswith(gone)
    told = [event["text"] for event in run.get("/events")["events"] if event["attempt"] == 3]
    said = f"from checkpoint {run.origin} instead of {run.lost}, attempt 3: {gone}"
    assert any(said in text for text in told), told
    (loss,) = run.get("/series?metrics=loss/sft&history=clean")["series"]
    assert loss["x"] == list(range(1, STEPS + 1))
    found = points.compare(http, run.id, run.run_dir)
    assert found.pop("points") > 0
    assert set(found.values()) == {0}, found  # lost, doubled, invented, changed
    assert header["cleanup"]["processes_left"] == 0
    wait_until(lambda: not trainer.processes(run.id), 120, "processes of an attempt were left")
