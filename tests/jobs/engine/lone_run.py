"""The program of test_critic and test_reward_model: a whole run of ALGORITHM in one process without Ray, and the same
run gone on with from its checkpoint in ranks whose state is spread otherwise. RUN_DIR; `found.json` gets the metrics of
each step.
"""

import json
import operator
import socket
import sys
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine import loop as loop_module
from jobs.engine.algorithm import load_algorithm
from jobs.engine.checkpoints.checkpoint import LoopState, open_checkpoint
from jobs.engine.checkpoints.resume import fingerprint
from jobs.engine.checkpoints.saving import Saver
from jobs.engine.command_inbox import CommandInbox
from jobs.engine.data.dataset import load_table
from jobs.engine.data.examples import render, usable
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.text import TextModel
from jobs.engine.loop import Loop, Material
from jobs.engine.roles.policy import Policy
from jobs.engine.roles.reward_model import RewardModel
from jobs.engine.rollouts.reward import open_reward
from jobs.engine.workers.worker_group import WorkerGroup

COMMON: dict[str, Any] = {
    "train.num_steps": 4,
    "eval.num_prompts": 4,
    "eval.every_steps": 0,
    "checkpoint.every_steps": 2,
}
KNOBS: dict[str, dict[str, Any]] = {
    "ppo": {
        "train.updates_per_rollout": 2,
        "rollout.prompts_per_step": 16,
        "rollout.samples_per_prompt": 1,
        "algorithm.critic_warmup_steps": 1,
    },
    "rm": {"train.batch_size": 8, "train.packing": True, "pairs.center_coefficient": 0.01},
}
AFTER: dict[str, dict[str, Any]] = {
    "ppo": {"memory.critic_zero_stage": "3", "train.packing": False},
    "rm": {"memory.zero_stage": "3", "train.packing": False},
}


class LoneWorker:
    """The policy's only rank, here; `part` is what it holds."""

    role, rank = "policy", 0

    def __init__(self, target: Any, part: str = "") -> None:
        self._target, self._part = target, part

    def call(self, method: str, *arguments: Any, step: int = -1, phase: str = "", **options: Any) -> Any:
        """Do it at once."""
        del step, phase
        return operator.attrgetter(f"{self._part}{method}")(self._target)(*arguments, **options)

    def held(self, role: str) -> "LoneWorker":
        """What the rank holds."""
        return LoneWorker(self._target, f"{role}.")


class LoneGroup:
    """As much of a worker group as a loop needs."""

    def __init__(self, policy: Policy) -> None:
        self.policies = [LoneWorker(policy)]
        self.generators: list[Any] = []
        self.reference = None
        self.by_role = {"policy": self.policies}
        self.trained = {"policy": self.policies}
        if policy.critic is not None:
            self.trained["critic"] = [self.policies[0].held("critic")]

    def gather(self, calls: Any, **_: Any) -> list[Any]:
        """They are done."""
        return list(calls)


def train(run_dir: Path, spec: RunSpec, policy: Policy, *, resumes: Path | None = None) -> dict[str, Any]:
    """Run to the last step; return each step's metrics."""
    reward = open_reward(spec.reward) if is_in(spec.algorithm, "rl") else None
    text = TextModel(model_folder(spec.model))
    table = load_table(spec.data, inputs_dir=run_dir)
    train, held_out = (usable(spec, render(spec, rows, text)) for rows in (table.train, table.held_out[:4]))
    workers = cast(WorkerGroup, LoneGroup(policy))
    report = Mock(**{"take_seconds.return_value": 0.0})
    report.phase_seconds = {}
    saver = Saver(spec=spec, run_dir=run_dir, workers=workers, report=report, data=fingerprint(train))
    state = LoopState(step=0, num_consumed=0)
    if resumes is not None:
        source = open_checkpoint(resumes, name="The checkpoint")
        source.check()
        source.restore(workers)
        state = source.state
    Loop(
        spec=spec,
        run_dir=run_dir,
        algorithm=load_algorithm(spec.algorithm),
        material=Material(text=text, train=train, held_out=held_out, reward=cast(Any, reward)),
        workers=workers,
        report=report,
        commands=CommandInbox(run_dir / "commands.jsonl"),
        saver=saver,
        state=state,
    ).run()
    steps: dict[str, dict[str, float]] = {}
    for call in report.metrics.call_args_list:
        steps.setdefault(str(call.kwargs["step"]), {}).update(call.args[0])
    return steps


def spec_of(algorithm: str, knobs: dict[str, Any]) -> RunSpec:
    """Return a run whose only worker holds all roles."""
    hardware = {"layout": "colocated", "policy_ranks": 1}
    return parse_spec(
        {"algorithm": algorithm, "hardware": hardware, "knobs": COMMON | KNOBS[algorithm] | knobs},
    )


def main() -> None:
    """Train, and go on from the middle in ranks that are new."""
    run_dir, algorithm = Path(sys.argv[1]), sys.argv[2]
    for name in ("EngineCaptures", "HangWatch"):
        setattr(loop_module, name, Mock())
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    place: dict[str, Any] = {"rank": 0, "world_size": 1, "host": "127.0.0.1", "port": port, "device": "cpu"}
    before, after = spec_of(algorithm, {}), spec_of(algorithm, AFTER[algorithm])
    trained = RewardModel if is_in(algorithm, "scalar") else Policy
    first, second = (trained(spec=spec, **place) for spec in (before, after))
    found = {
        "whole": train(run_dir / "a1", before, first),
        "resumed": train(run_dir / "a2", after, second, resumes=run_dir / "a1" / "checkpoints" / "step-2"),
    }
    (run_dir / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
