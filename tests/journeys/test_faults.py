"""One of each fault on one running stack; `make proof-faults` does all, at three moments each."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.journeys.retrying import RetriedRun
from tests.proofs.faults import trainer
from tests.proofs.faults.case import SLOW, Outcome, evaluate, strike
from tests.proofs.faults.stack import CAN_MOUNT, Stack, running_stack, until
from tests.proofs.faults.target import BY_NAME, Scene, Target
from tests.proofs.faults.viewer import Viewer
from tests.services import own_environment

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.faults]

OUTAGE_SECONDS = 2.0
KNOBS = {"train.num_steps": 8, "rollout.prompts_per_step": 4, "rollout.samples_per_prompt": 4, "eval.num_prompts": 0}
SMALL: dict[str, Any] = {"hardware": {"policy_ranks": 1}, "profile": {"nsys_ready": "off"}}  # its workers start warm
GRPO = {"knobs": KNOBS | {"algorithm.kl_coefficient": 0.0}}
# What the run goes through, one after the other. That web, ingest and Redis are killed is in
# tests/jobs/runner/test_with_console.py, a cluster that is lost in tests/jobs/processes/test_reconcile.py; all others
# are in `make proof-faults`.
SURVIVED = ("worker", "flushall", "database-full", "web-stopped", "console")


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

    def evaluate(self) -> list[str]:
        """Return what is not as it must be once the run has ended."""
        evaluate(self.scene, self.target, self.outcome, self.viewer)
        self.viewer.close()
        return [f"{self.target.name}: {problem}" for problem in self.outcome.problems]


@pytest.mark.slow("a run of two attempts")
def test_a_run_that_loses_its_runner_and_a_checkpoint_starts_again_by_itself(stack: Stack) -> None:
    run = RetriedRun(stack)
    until(run.is_ready, seconds=180, what="it had two checkpoints")

    run.hit()

    run.evaluate()


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
