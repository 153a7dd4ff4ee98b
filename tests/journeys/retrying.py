"""A run that starts again by itself: its runner is killed, and the checkpoint to go on from is taken away."""

import shutil
import time
from datetime import datetime
from typing import Any

import psutil

from tests.proofs.faults import points, trainer
from tests.proofs.faults.stack import Stack, until
from tests.proofs.faults.target import Scene

STEPS = 40  # so quick that fewer may be over before the second checkpoint is noticed
END_SECONDS = 180.0  # for the first attempt's end to be told; other runs load meanwhile
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

    def __init__(self, stack: Stack) -> None:
        self.scene = Scene(stack, stack.launch(SPEC))
        self.lost = self.origin = 0
        self.hit_at = 0.0

    def is_ready(self) -> bool:
        """Whether it has two checkpoints."""
        return len(self._saved()) >= 2

    def hit(self) -> None:
        """Kill the runner, and the trainer with it; take away the newest checkpoint that they told of."""
        runner = trainer.runner(self.scene.run)
        assert runner is not None, "the run was over before it could be hit"
        doomed = trainer.processes(self.scene.run)  # not those that come then to clean up, and to go on
        self.hit_at = time.time()
        runner.kill()
        assert psutil.wait_procs(doomed, timeout=60)[1] == []
        *_, self.origin, self.lost = self._saved()
        shutil.rmtree(self.scene.run_dir / "checkpoints" / f"step-{self.lost}")

    def evaluate(self) -> None:
        """Wait for its end and hold against it all that must be so."""
        stack, run = self.scene.stack, self.scene.run
        until(lambda: stack.header(run).get("state") == "finished", seconds=400, what=f"{run} finished", every=0.2)
        header = stack.header(run)
        began = [(a["number"], a["state"], a["resume_attempt"], a["resume_step"]) for a in header["attempts"]]
        assert began == [(1, "failed", None, 0), (2, "failed", 1, self.lost), (3, "finished", 1, self.origin)]
        assert [a["is_automatic"] for a in header["attempts"]] == [False, True, True]
        killed, seeking = (a["cause"] for a in header["attempts"][:2])
        assert (killed["side"], "runner was killed" in killed["text"]) == ("cluster", True)
        assert datetime.fromisoformat(header["attempts"][0]["ended_at"]).timestamp() - self.hit_at < END_SECONDS
        gone = f"checkpoint {self.lost} of attempt 1 is not on this node"
        assert seeking["text"].startswith(gone)
        told = [event["text"] for event in self._get("events")["events"] if event["attempt"] == 3]
        said = f"from checkpoint {self.origin} instead of {self.lost}, attempt 3: {gone}"
        assert any(said in text for text in told), told
        (loss,) = self._get("series?metrics=loss/sft&history=clean")["series"]
        assert loss["x"] == list(range(1, STEPS + 1))
        found = points.compare(stack.http, run, self.scene.run_dir)
        assert found.pop("points") > 0
        assert set(found.values()) == {0}, found  # lost, doubled, invented, changed
        assert header["cleanup"]["processes_left"] == 0
        until(lambda: not trainer.processes(run), seconds=30, what="no process of any attempt is left", every=0.5)

    def _get(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = (
            self.scene.stack.http.get(f"/api/runs/{self.scene.run}/{what}").raise_for_status().json()
        )
        return found

    def _saved(self) -> list[int]:
        """Return the steps whose checkpoints the trainer has told of."""
        told = [e for e in trainer.events(self.scene.run_dir) if e["kind"] == "artifact"]
        return sorted(e["step"] for e in told if e["artifact"] == "checkpoint")
