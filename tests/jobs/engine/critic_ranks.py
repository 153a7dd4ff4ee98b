"""The program of test_critic_ranks: RUN_DIR; the critic alone on one rank and on two, in each ZeRO stage, and beside
the policy in its ranks, learns from the same batches; `found.json` gets what was told of each step.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from torch import Tensor

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.batch import Batch, make_batch, share_out
from jobs.engine.role_calls import scores_of, start_scores, start_update, update_metrics
from jobs.engine.session import ROLE_CLASSES
from jobs.engine.workers.worker_group import WorkerGroup
from tests.jobs.engine.ranks import make_workers, start_policies

NUM_STEPS = 3
VARIANTS: dict[str, dict[str, Any]] = {
    "0": {"memory.zero_stage": "0", "train.packing": False},
    "2": {"memory.zero_stage": "2", "train.packing": False},
    "3": {"memory.critic_zero_stage": "3", "train.packing": False},
    "micro": {"train.micro_batch_size": 3, "train.packing": False},
    "packed 3": {"train.dynamic_batch": True, "train.max_tokens_per_gpu": 60, "memory.critic_zero_stage": "3"},
    "one rank": {"train.packing": False},
    **{
        f"bfloat16 {name}": {"memory.precision": "bfloat16", **knobs}
        for name, knobs in {"2": {"train.packing": False}, "3": {"memory.critic_zero_stage": "3"}}.items()
    },
    "beside": {"memory.zero_stage": "2", "memory.critic_zero_stage": "3", "train.packing": False},
}


def batch_of(step: int) -> Batch:
    """Return 16 random sequences of 6 to 24 tokens, of which all but three count, and what they should have said."""
    random = torch.Generator().manual_seed(step)
    lengths = torch.randint(6, 25, (16,), generator=random).tolist()
    rows = [torch.randint(1, 500, (n,), generator=random).tolist() for n in lengths]
    batch = make_batch([(row, [i > 2 for i in range(len(row))]) for row in rows], pad_id=0)
    returns_BL = torch.rand(batch.mask_BL.shape, generator=random)
    return replace(batch, returns_BL=torch.where(batch.mask_BL, returns_BL, 0.0))


def start_critics(workers: WorkerGroup, spec: Any) -> list[Any]:
    """Start a critic in each actor of the policy: a critic with devices of its own."""
    return start_policies(workers, spec, ROLE_CLASSES["critic"])


def learned(workers: WorkerGroup, ranks: Any) -> list[dict[str, float]]:
    """Return what the loop would tell of each step: values, then an update by the same shares."""
    told = []
    for step in range(NUM_STEPS):
        batch = batch_of(step)
        shares = share_out(16, num_updates=1, num_ranks=len(ranks), seed=str(step))
        started = start_scores(ranks, "values", batch, shares, step=step, phase="old_logprobs")
        values_BL: Tensor = scores_of(workers, started, batch, shares)
        batch = replace(batch, values_BL=values_BL)
        updates = workers.gather(start_update(ranks, batch, shares, learning_rate=1e-3, step=step))
        mean = float(values_BL[batch.mask_BL].mean())
        told.append(update_metrics(updates, learning_rate=1e-3, prefix="value") | {"value/mean": mean})
    return told


def main() -> None:
    """Run every variant in the same processes."""
    run_dir = Path(sys.argv[1])
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    groups: dict[int, WorkerGroup] = {}
    found = {}
    for variant, knobs in VARIANTS.items():
        count = 1 if variant == "one rank" else 2
        hardware = {"layout": "colocated", "policy_ranks": count}
        spec = parse_spec({"algorithm": "ppo", "hardware": hardware, "knobs": knobs})
        if count not in groups:
            groups[count] = make_workers(spec, run_dir / f"x{count}")
        workers = groups[count]
        is_beside = variant == "beside"
        workers.gather((start_policies if is_beside else start_critics)(workers, spec))
        found[variant] = learned(workers, workers.trained["critic"] if is_beside else workers.policies)
    for workers in groups.values():
        workers.close()
    (run_dir / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
