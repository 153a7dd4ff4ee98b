"""One of each fault on one running stack; `make proof-faults` does all, at three moments each."""

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from tests.journeys.retrying import END_SECONDS, RetriedRun
from tests.proofs.faults import trainer
from tests.proofs.faults.case import SLOW, Outcome, evaluate, strike
from tests.proofs.faults.stack import CAN_MOUNT, Stack, mount, running_stack, until
from tests.proofs.faults.target import BY_NAME, Scene, Target
from tests.proofs.faults.viewer import Viewer
from tests.services import own_environment

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.faults]

OUTAGE_SECONDS = 2.0
KNOBS = {"train.num_steps": 8, "rollout.prompts_per_step": 4, "rollout.samples_per_prompt": 4, "eval.num_prompts": 0}
SMALL: dict[str, Any] = {"hardware": {"policy_ranks": 1}, "profile": {"nsys_ready": "off"}}  # its workers start warm
SFT = {"algorithm": "sft", "knobs": {"train.num_steps": 400, "eval.num_prompts": 0}}  # all of them are ended
GRPO = {"knobs": KNOBS | {"algorithm.kl_coefficient": 0.0}}
# What the run goes through, one after the other. That web, ingest and Redis are killed is in
# tests/jobs/runner/test_with_console.py; all others are in `make proof-faults`.
SURVIVED = ("worker", "flushall", "database-full", "web-stopped", "console")
# What ends a run beside a runner that is killed; that vLLM is, is in tests/journeys/test_two_nodes.py.
ENDED_BY = {"checkpoint-disk": SFT | SMALL} if CAN_MOUNT else {}


@pytest.fixture(scope="module")
def stack(warm_environment: dict[str, str]) -> Iterator[Stack]:
    """A console to break."""
    with running_stack(own_environment() | warm_environment) as running:
        yield running


class Act:
    """A run, a page that watches it, and what is to come of it."""

    def __init__(self, stack: Stack, name: str, spec: dict[str, Any]) -> None:
        target = BY_NAME[name]
        self.target: Target = replace(target, outage=min(target.outage, OUTAGE_SECONDS))
        self.scene = Scene(stack, stack.launch(spec | {"name": name}))
        self.viewer = Viewer(url=stack.url, run=self.scene.run, cookie=stack.http.cookies["pitwall_session"])
        self.outcome = Outcome(target=name, moment="", seed="", text="")
        if self.target.has_disk:
            self.scene.disk.mkdir(parents=True, exist_ok=True)
            mount(self.scene.disk, mib=32)

    def is_ready(self) -> bool:
        """Whether what is to be hit is there."""
        if self.target.has_disk:
            return trainer.steps_done(self.scene.run_dir) > 0
        return trainer.worker(self.scene.run, self.scene.run_dir, self.target.name) is not None

    def evaluate(self, *, hit_at: float | None = None) -> list[str]:
        """Return what is not as it must be once the run has ended; `hit_at`: that was to be soon after this."""
        evaluate(self.scene, self.target, self.outcome, self.viewer)
        self.viewer.close()
        if hit_at is not None:
            ended_at = datetime.fromisoformat(self.scene.stack.header(self.scene.run)["ended_at"]).timestamp()
            self.outcome.expect(ended_at - hit_at < END_SECONDS, f"it took {ended_at - hit_at:.0f} s to end")
        return [f"{self.target.name}: {problem}" for problem in self.outcome.problems]


@pytest.mark.slow("two runs, each loses another part of itself")
def test_who_takes_a_part_of_a_run_ends_it_or_it_is_retried_and_nothing_is_left(stack: Stack) -> None:
    retried = RetriedRun(stack)  # whose runner is killed
    acts = [Act(stack, name, spec) for name, spec in ENDED_BY.items()]
    hit_at: dict[str, float] = {}

    def hit_who_is_ready() -> bool:
        if not retried.lost and retried.is_ready():
            retried.hit()
        for act in acts:
            if act.target.name not in hit_at and act.is_ready():
                hit_at[act.target.name] = time.time()
                act.target.hit(act.scene)
        return len(hit_at) == len(acts) and bool(retried.lost)

    until(hit_who_is_ready, seconds=400, what="everything was there to be hit")

    assert [problem for act in acts for problem in act.evaluate(hit_at=hit_at[act.target.name])] == []
    retried.evaluate()


@pytest.mark.slow("one run under every fault of the console")
def test_a_run_goes_through_everything_that_happens_to_the_console(stack: Stack) -> None:
    # Steps enough for all of them: a fault that comes after the run's end proves nothing.
    long = {"knobs": GRPO["knobs"] | {"train.num_steps": 8}}
    act = Act(stack, "console", long | SMALL | SLOW)
    until(lambda: trainer.worker(act.scene.run, act.scene.run_dir, "policy"), seconds=180, what="its worker came")

    for name in SURVIVED:
        if name != "database-full" or CAN_MOUNT:
            short = replace(BY_NAME[name], outage=min(BY_NAME[name].outage, OUTAGE_SECONDS))
            strike(act.scene, short, act.outcome)

    assert act.evaluate() == []
    assert act.viewer.num_cuts >= 2, "the page lost its line and came back"


@pytest.mark.slow("Ray is started twice")
def test_a_lost_cluster_ends_its_runs(stack: Stack) -> None:
    act = Act(stack, "ray", SFT | SMALL)
    until(lambda: trainer.runner(act.scene.run), seconds=180, what="its runner came")

    strike(act.scene, act.target, act.outcome)

    assert act.evaluate() == []
