"""One of each fault on one running stack; `make proof-faults` does all, at three moments each."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.proofs.faults import trainer
from tests.proofs.faults.case import SLOW, Outcome, judge, strike
from tests.proofs.faults.stack import CAN_MOUNT, Stack, mount, running_stack, until
from tests.proofs.faults.target import BY_NAME, Scene, Target
from tests.proofs.faults.viewer import Viewer

pytestmark = [pytest.mark.stack, pytest.mark.engine]

OUTAGE_SECONDS = 2.0
KNOBS = {"train.num_steps": 8, "rollout.prompts_per_step": 4, "rollout.samples_per_prompt": 4, "eval.num_prompts": 0}
SMALL: dict[str, Any] = {"hardware": {"policy_ranks": 1}}
SFT = {"algorithm": "sft", "knobs": {"train.num_steps": 8, "eval.num_prompts": 0}}
GRPO = {"knobs": KNOBS | {"algorithm.kl_coefficient": 0.0}}
# What the run goes through, one after the other.
SURVIVED = (
    "web",
    "worker",
    "ingest",
    "reconcile",
    "redis",
    "flushall",
    "connection",
    "database-full",
    "web-stopped",
    "redis-stopped",
    "policy-stopped",
    "console",
)
ENDED_BY = {
    "runner": SFT | SMALL,
    "policy": SFT | SMALL,
    "vllm": GRPO | SMALL,
    "reference": {"knobs": KNOBS} | SMALL,
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A console to break."""
    with running_stack() as running:
        yield running


class Act:
    """A run, a page that watches it, and what is to come of it."""

    def __init__(self, stack: Stack, name: str, spec: dict[str, Any]) -> None:
        target = BY_NAME[name]
        self.target: Target = replace(target, outage=min(target.outage, OUTAGE_SECONDS))
        self.scene = Scene(stack, stack.launch(spec | {"name": name}))
        self.viewer = Viewer(url=stack.url, run=self.scene.run, cookie=stack.http.cookies["pitwall_session"])

    def strike(self, target: Target | None = None) -> Outcome:
        outcome = Outcome(target=self.target.name, moment="", seed="", text="")
        strike(self.scene, target or self.target, outcome)
        return outcome

    def judge(self, outcome: Outcome) -> Outcome:
        judge(self.scene, self.target, outcome, self.viewer)
        self.viewer.close()
        return outcome


def test_who_takes_a_part_of_a_run_ends_it_with_its_cause_and_nothing_is_left(stack: Stack) -> None:
    acts = [Act(stack, name, spec) for name, spec in ENDED_BY.items()]
    for act in acts:
        name, scene = act.target.name, act.scene
        found = (
            (lambda scene=scene: trainer.runner(scene.run) and (scene.run_dir / "events.jsonl").exists())
            if name == "runner"
            else (lambda scene=scene, name=name: trainer.worker(scene.run, scene.run_dir, name))
        )
        until(found, seconds=90, what=f"{name} came")

    outcomes = [act.strike() for act in acts]

    for act, outcome in zip(acts, outcomes, strict=True):
        assert act.judge(outcome).problems == [], f"{act.target.name}: {outcome}"


@pytest.mark.skipif(not CAN_MOUNT, reason="needs the right to mount a small disk")
def test_a_full_disk_ends_the_run_and_says_so(stack: Stack) -> None:
    act = Act(stack, "checkpoint-disk", SFT | SMALL)
    act.scene.disk.mkdir(parents=True, exist_ok=True)
    mount(act.scene.disk, mib=32)
    until(lambda: trainer.steps_done(act.scene.run_dir), seconds=90, what="a step came")

    assert act.judge(act.strike()).problems == []


def test_a_run_goes_through_everything_that_happens_to_the_console(stack: Stack) -> None:
    act = Act(stack, "console", GRPO | SMALL | SLOW)
    outcome = Outcome(target="", moment="", seed="", text="")
    until(lambda: trainer.worker(act.scene.run, act.scene.run_dir, "policy"), seconds=60, what="its worker came")

    for name in SURVIVED:
        if name != "database-full" or CAN_MOUNT:
            outcome = act.strike(replace(BY_NAME[name], outage=min(BY_NAME[name].outage, OUTAGE_SECONDS)))

    assert act.judge(outcome).problems == []
    assert act.viewer.num_cuts >= 2, "the page lost its line and came back"


def test_a_lost_cluster_ends_its_runs_and_the_next_one_starts_on_the_new_head(stack: Stack) -> None:
    act = Act(stack, "ray", SFT | SMALL)
    until(lambda: trainer.runner(act.scene.run), seconds=60, what="its runner came")

    assert act.judge(act.strike()).problems == []
    after = stack.launch(SFT | SMALL)
    until(lambda: stack.header(after)["state"] in ("running", "finished"), seconds=60, what="another run trained")
