"""Programs of test_ranks: arguments `stages` or `gaps`, and RUN_DIR; writes what it measured to `found.json`."""

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from torch import Tensor

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.advantages import over_tokens
from jobs.engine.algorithm import Counts, load_algorithm
from jobs.engine.batch import Batch, make_batch, share_out
from jobs.engine.data.dataset import load_table
from jobs.engine.data.examples import Example, render, usable
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.text import TextModel
from jobs.engine.device import load_device
from jobs.engine.logprob_gap import gap_sums
from jobs.engine.micro_batches import Cut
from jobs.engine.role_calls import policy_scores
from jobs.engine.roles.trained_model import Update
from jobs.engine.roles.weights import WeightSync
from jobs.engine.rollouts.reward import open_reward
from jobs.engine.rollouts.rollout import Rollout, roll_out
from jobs.engine.rollouts.scoring import score_rollout
from jobs.engine.session import ROLE_CLASSES
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.rank_variants import BREAKS, PRECISIONS, STEPS, VARIANTS


def make_workers(
    spec: RunSpec, run_dir: Path, on_answer: Callable[..., None] = lambda worker, answer: None
) -> WorkerGroup:
    """Place the spec's actors."""
    return WorkerGroup(spec, load_device("cpu"), log_dir=str(run_dir / "log"), on_answer=on_answer, check=lambda: None)


def start_policies(workers: WorkerGroup, spec: RunSpec, role: str = ROLE_CLASSES["policy"]) -> list[Any]:
    """Start building every policy rank."""
    host, port = workers.address_of(workers.policies[0])
    size = len(workers.policies)
    return [
        p.start(role, spec=spec, rank=p.rank, world_size=size, host=host, port=port, device="cpu")
        for p in workers.policies
    ]


def stages(run_dir: Path, base: dict[str, Any]) -> dict[str, Any]:
    """A few steps of SFT for each variant, on two ranks but where it says one: losses, gradient norms, readings; then a
    step whose gradient is not finite, and what it did. At the end GRPO in each layout of the roles (`placed`).
    """
    spec = parse_spec(base)
    text = TextModel(model_folder(spec.model))
    examples = usable(spec, render(spec, load_table(spec.data, inputs_dir=run_dir).train[:160], text))
    hardware = {num_ranks: {"layout": "split", "policy_ranks": num_ranks} for num_ranks in (1, 2)}
    groups = {n: make_workers(parse_spec(base | {"hardware": of}), run_dir / f"x{n}") for n, of in hardware.items()}
    found = {}
    for variant, changes in VARIANTS.items():
        num_ranks = 1 if variant.endswith("one rank") else 2
        of_variant = parse_spec(base | {"hardware": hardware[num_ranks], "knobs": base["knobs"] | changes})
        workers = groups[num_ranks]
        is_moved = variant.startswith("moved")
        role = "MovedPolicy" if is_moved else "WatchedPolicy"
        workers.gather(start_policies(workers, of_variant, f"tests.jobs.engine.faulty:{role}"))
        losses, norms, micros = [], [], []
        for step in range(STEPS):
            part = examples[step * 32 : step * 32 + 32]
            batch = make_batch([(e.tokens, e.is_trained) for e in part], pad_id=text.pad_id)
            if is_moved:
                for method in ("states_off", "weights_off", "back"):
                    workers.gather([p.call(method) for p in workers.policies])
            told = _learn(workers, batch, step=step)
            micros.append([len(Cut.of(of_variant).rows(batch.lengths_B[share])) for share in _shares(workers, step)])
            losses.append(sum(t.shares["loss/sft"] for t in told))
            norms.append(told[0].grad_norm)
        readings = workers.gather([p.call("readings") for p in workers.policies])
        found[variant] = {"losses": losses, "norms": norms, "readings": readings, "micros": micros}
        if variant in BREAKS:
            found[variant]["broken"] = _broken_step(workers, batch)
    found |= placed(run_dir, text, alone=groups[1], pair=groups[2])
    for workers in groups.values():
        workers.close()
    return found


def _shares(workers: WorkerGroup, step: int) -> list[Tensor]:
    """Each rank's share of the step."""
    shares = share_out(32, num_updates=1, num_ranks=len(workers.policies), seed=str(step))
    return [share for (share,) in shares]


def placed(run_dir: Path, text: TextModel, *, alone: WorkerGroup, pair: WorkerGroup) -> dict[str, Any]:
    """Three steps of GRPO on the same samples, once for each layout of the roles in each of PRECISIONS: what was told.

    The samples are those that one colocated rank draws; `drawn` has the tokens of the first step, and those that two
    ranks draw instead.
    """
    spec = _placed_spec("colocated", "float32", num_ranks=1)
    prompts = usable(spec, render(spec, load_table(spec.data, inputs_dir=run_dir).train[:24], text))
    alone.gather(start_policies(alone, spec))
    given = [_rollout(alone, prompts, step=step) for step in range(3)]
    batches = [_with_advantages(rollout, spec, text) for rollout in given]
    found: dict[str, Any] = {"drawn": {"one rank": [r.tokens for r in given[0].responses]}}
    for precision in PRECISIONS:
        wants = {"spec": _placed_spec("split", precision), "device": "cpu"}
        alone.gather([alone.policies[0].start(ROLE_CLASSES["reference"], **wants)])
        for layout in ("split", "shared", "colocated"):
            pair.gather(start_policies(pair, _placed_spec(layout, precision)))
            steps = []
            for step, batch in enumerate(batches):
                if layout == "colocated":  # which must change nothing of what is learned
                    drawn = _rollout(pair, prompts, step=step)
                    found["drawn"].setdefault("two ranks", [r.tokens for r in drawn.responses])
                scores_BL = _reference_scores(batch, step=step, apart=alone if layout == "split" else None, ranks=pair)
                told = _learn(pair, replace(batch, reference_logprobs_BL=scores_BL), step=step)
                shares = {name: sum(each.shares[name] for each in told) for name in told[0].shares}
                steps.append(shares | {"policy/grad_norm": told[0].grad_norm})
            found[f"{precision} {layout}"] = steps
    return found


def _placed_spec(layout: str, precision: str, *, num_ranks: int = 2) -> RunSpec:
    knobs = {"rollout.prompts_per_step": 8, "rollout.samples_per_prompt": 4, "memory.precision": precision}
    hardware = {"policy_ranks": num_ranks, "layout": layout}
    return parse_spec({"algorithm": "grpo", "hardware": hardware, "knobs": knobs})


def _rollout(workers: WorkerGroup, prompts: list[Example], *, step: int) -> Rollout:
    examples = prompts[step * 8 : step * 8 + 8]
    return roll_out(workers, examples, samples_per_prompt=4, seed=0, step=step)


def _with_advantages(rollout: Rollout, spec: RunSpec, text: TextModel) -> Batch:
    scored = score_rollout(rollout, reward=open_reward(spec.reward), text=text, samples_per_prompt=4)
    rewards_B = torch.tensor([score.total for score in scored.scores])
    batch = replace(rollout.batch(pad_id=text.pad_id), rewards_B=rewards_B)
    advantages = load_algorithm(spec.algorithm).advantages
    assert advantages is not None
    return replace(batch, advantages_BL=advantages(batch, spec).advantages_BL)


def _reference_scores(batch: Batch, *, step: int, apart: WorkerGroup | None, ranks: WorkerGroup) -> torch.Tensor:
    """Return the frozen model's log-probabilities as the loop gets them: [B, L]."""
    if apart is not None:
        scores_BL: torch.Tensor = apart.gather([apart.policies[0].call("logprobs", batch)])[0]
        return scores_BL
    shares = share_out(32, num_updates=1, num_ranks=2, seed=str(step))
    return policy_scores(ranks, "reference_logprobs", batch, shares, step=step, phase="reference")


def _learn(workers: WorkerGroup, batch: Batch, *, step: int, num_tokens: float | None = None) -> list[Update]:
    """One optimizer step on the batch; `num_tokens` stands in for how many tokens count."""
    counts = [Counts(num_tokens=num_tokens or batch.num_trained_tokens, num_sequences=32)]  # type: ignore[arg-type]
    calls = [
        p.call("update", [batch.rows(share)], counts, 1e-3, step=step)
        for p, share in zip(workers.policies, _shares(workers, step), strict=True)
    ]
    return [updates[0] for updates in workers.gather(calls)]


def _broken_step(workers: WorkerGroup, batch: Batch) -> dict[str, Any]:
    """A step whose loss is not a number, and the two around it: what was told, and whether weights are finite."""
    before = workers.gather([p.call("evaluate", batch) for p in workers.policies])
    told = _learn(workers, batch, step=STEPS, num_tokens=math.nan)
    after = workers.gather([p.call("evaluate", batch) for p in workers.policies])
    is_finite = workers.gather([p.call("has_finite_weights") for p in workers.policies])
    again = _learn(workers, batch, step=STEPS + 1)
    return {
        "is_skipped": [t.is_skipped for t in told],
        "norm": told[0].grad_norm,
        "is_unchanged": before == after,
        "is_finite": is_finite,
        "is_skipped_again": [t.is_skipped for t in again],
        "norm_again": again[0].grad_norm,
    }


class SyncBench:
    """One policy rank, one rollout engine, one prompt longer than a block of the prefix cache."""

    def __init__(self, run_dir: Path, spec: RunSpec) -> None:
        self.text = TextModel(model_folder(spec.model))
        question = "Ana has 12 pens and gets 5 more. How many pens now? " * 12
        (tokenized,) = self.text.tokenize([self.text.prompt([{"role": "user", "content": question}])])
        ids = tuple(tokenized.tokens)
        self.example = Example(
            row=0, prompt=question, answer="17", segments=(), tokens=ids, is_trained=(False,) * len(ids)
        )
        self.workers = make_workers(spec, run_dir)
        (self.generator,), (self.policy,) = self.workers.generators, self.workers.policies
        vllm = self.generator.start(
            "tests.jobs.engine.faulty:SwitchableGenerator", spec=spec, device="cpu", eos_ids=self.text.eos_ids
        )
        self.workers.gather([vllm, *start_policies(self.workers, spec)])
        self.weights = WeightSync(self.workers)
        self.weights.connect()
        self.weights.sync(step=0)
        self.number = 0

    def gap(self, *, learns: bool = False) -> dict[str, float]:
        """Draw four completions and compare log-probabilities; with `learns`, take a step on them afterwards."""
        self.number += 1
        rollout = roll_out(self.workers, [self.example], samples_per_prompt=4, seed=0, step=self.number)
        batch = rollout.batch(pad_id=self.text.pad_id)
        (logprobs,) = self.workers.gather([self.policy.call("logprobs", batch)])
        if learns:
            advantages_BL = over_tokens(torch.tensor([1.0, -1.0, 0.5, -0.5]), batch.mask_BL)
            batch = replace(batch, advantages_BL=advantages_BL, old_logprobs_BL=logprobs)
            counts = [Counts(num_tokens=batch.num_trained_tokens, num_sequences=4)]
            self.workers.gather([self.policy.call("update", [batch], counts, 3e-3)])
        assert batch.rollout_logprobs_BL is not None
        return gap_sums(batch.rollout_logprobs_BL, logprobs, batch.mask_BL).metrics()

    def sync(self, finish: str) -> None:
        """A sync that ends with another method of the generator."""
        self.workers.gather([self.generator.call("start_update")])
        metadata = self.weights._metadata
        self.workers.gather([self.generator.call("receive_update", metadata), self.policy.call("send_weights")])
        self.workers.gather([self.generator.call(finish)])


def gaps(run_dir: Path, base: dict[str, Any]) -> dict[str, Any]:
    """The gap after good and bad syncs, the policy having learned before each, in each precision; in bfloat16, where
    gaps vary, after ten good ones more.
    """
    return {
        precision: _gaps(
            run_dir / precision, base | {"knobs": base["knobs"] | {"memory.precision": precision}}, num_healthy=healthy
        )
        for precision, healthy in (("float32", 0), ("bfloat16", 10))
        if precision in PRECISIONS
    }


def _gaps(run_dir: Path, base: dict[str, Any], *, num_healthy: int) -> dict[str, Any]:
    bench = SyncBench(run_dir, parse_spec(base))
    found: dict[str, Any] = {"prompt_tokens": len(bench.example.tokens)}
    found |= {"start": bench.gap(learns=True), "skipped": bench.gap()}
    for number, (fault, finish) in enumerate(
        (("stale_cache", "finish_without_reset"), ("stale_head", "finish_without_head")), 1
    ):
        bench.weights.sync(step=number)
        found[f"before_{fault}"] = bench.gap(learns=True)
        bench.sync(finish)
        found[fault] = bench.gap()
    bench.weights.sync(step=3)
    found["end"] = bench.gap()
    found["healthy"] = []
    for step in range(4, 4 + num_healthy):
        found["healthy"].append(bench.gap(learns=True))
        bench.weights.sync(step=step)
    bench.workers.close()
    return found


def main() -> None:
    """Run one of the two on the spec in the run directory."""
    run_dir = Path(sys.argv[2])
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    measure: Callable[[Path, dict[str, Any]], dict[str, Any]] = {"stages": stages, "gaps": gaps}[sys.argv[1]]
    found = measure(run_dir, json.loads((run_dir / "spec.json").read_text()))
    (run_dir / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
