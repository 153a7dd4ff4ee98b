"""The program of test_critic_ranks, a process for each rank: RUN_DIR, RANK, how many there are, PORT.

Each learns by its own share of the same batches, once for each variant that is run, critics and policies that learn
preferences; `rank-<RANK>-of-<N>.json` gets what it says. The state of ADAPTERS_3 is saved, and RESUMED goes on from it.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch, make_batch, share_out
from jobs.engine.micro_batches import of_units, sequences_per_sample
from jobs.engine.roles.critic import Critic
from jobs.engine.roles.policy import Policy
from tests.jobs.engine.rank_variants import ADAPTERS_3, BESIDE, CRITICS_OF_ONE, CRITICS_OF_TWO, PREFERENCES, RESUMED

NUM_STEPS, NUM_SEQUENCES, PART_BYTES = 3, 16, 1 << 20


def batch_of(step: int) -> Batch:
    """Return random sequences of 6 to 24 tokens, of which all but three count, and what they should have said."""
    random = torch.Generator().manual_seed(step)
    lengths = torch.randint(6, 25, (NUM_SEQUENCES,), generator=random).tolist()
    rows = [torch.randint(1, 500, (n,), generator=random).tolist() for n in lengths]
    batch = make_batch([(row, [i > 2 for i in range(len(row))]) for row in rows], pad_id=0)
    returns_BL = torch.rand(batch.mask_BL.shape, generator=random)
    return replace(
        batch,
        returns_BL=torch.where(batch.mask_BL, returns_BL, 0.0),
        is_desirable_B=torch.rand(NUM_SEQUENCES, generator=random) > 0.4,
        reference_points_B=torch.full((NUM_SEQUENCES,), 0.1 * step),
    )


def learned(
    critic: Critic, *, rank: int, world_size: int, first: int = 0, num: int = NUM_STEPS
) -> list[dict[str, Any]]:
    """Return what this rank says of each step: its shares of metrics and of the mean value, the gradient's norm."""
    told = []
    for step in range(first, first + num):
        whole = batch_of(step)
        counts = Counts.of(whole)
        shares = share_out(NUM_SEQUENCES, num_updates=1, num_ranks=world_size, seed=str(step))
        mine = whole.rows(shares[rank][0])
        values_BL = critic.values(mine)
        (update,) = critic.update([replace(mine, values_BL=values_BL)], [counts], 1e-3)
        mean = float(values_BL[mine.mask_BL].sum()) / counts.num_tokens
        told.append({"shares": {**update.shares, "value/mean": mean}, "norm": update.grad_norm})
    return told


def preferred(policy: Policy, spec: RunSpec, *, rank: int, world_size: int) -> list[dict[str, Any]]:
    """Return what this rank says of each step of learning preferences against the reference that it holds."""
    told, unit = [], sequences_per_sample(spec)
    for step in range(NUM_STEPS):
        whole = batch_of(step)
        shares = share_out(NUM_SEQUENCES // unit, num_updates=1, num_ranks=world_size, seed=str(step))
        mine = whole.rows(of_units(shares[rank][0], unit))
        scored = replace(mine, reference_logprobs_BL=policy.reference_logprobs(mine))
        (update,) = policy.update([scored], [Counts.of(whole)], 1e-3)
        told.append({"shares": {**update.shares}, "norm": update.grad_norm})
    return told


def main() -> None:
    """Run every variant in this process; they share the group of processes, which ends with the last."""
    run_dir, rank, world_size, port = Path(sys.argv[1]), *map(int, sys.argv[2:])
    place: dict[str, Any] = {"rank": rank, "world_size": world_size, "host": "127.0.0.1", "port": port, "device": "cpu"}
    hardware = {"layout": "colocated", "policy_ranks": world_size}
    found = {}
    for variant, knobs in (CRITICS_OF_TWO if world_size == 2 else CRITICS_OF_ONE).items():
        spec = parse_spec({"algorithm": "ppo", "hardware": hardware, "knobs": knobs})
        policy = Policy(spec=spec, **place) if variant == BESIDE else None
        critic = Critic(spec=spec, **place) if policy is None else policy.critic
        assert critic is not None
        state = run_dir / "state"
        if variant == RESUMED:
            critic.begin_load()
            critic.load_parts(str(state), ["weights", "exp_avg", "exp_avg_sq"], PART_BYTES)
            critic.finish_load(NUM_STEPS)
            found[variant] = learned(critic, rank=rank, world_size=world_size, first=NUM_STEPS, num=1)
        else:
            found[variant] = learned(critic, rank=rank, world_size=world_size)
        if variant == ADAPTERS_3:
            state.mkdir(exist_ok=True)
            critic.save_parts(str(state), PART_BYTES)
            names = critic.state_metadata()["names"]
            (run_dir / "trained.json").write_text(json.dumps([names, critic.readings()["optimizer_bytes"]]))
            found["went on"] = learned(critic, rank=rank, world_size=world_size, first=NUM_STEPS, num=1)
        critic.leave()
    for algorithm in ("dpo", "kto"):
        for variant, knobs in PREFERENCES[world_size].items():
            hardware = {"layout": "shared", "policy_ranks": world_size}
            spec = parse_spec({"algorithm": algorithm, "hardware": hardware, "knobs": knobs})
            policy = Policy(spec=spec, **place)
            found[f"{algorithm} {variant}"] = preferred(policy, spec, rank=rank, world_size=world_size)
            policy.leave()
    (run_dir / f"rank-{rank}-of-{world_size}.json").write_text(json.dumps(found))
    # Left to the interpreter, gloo's threads are sometimes still running when they are torn down, which aborts.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
