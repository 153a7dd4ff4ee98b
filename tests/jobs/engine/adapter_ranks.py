"""The program of test_adapter_ranks: policy ranks with adapters, without Ray. Arguments: RUN_DIR, rank, ranks, port.

For each case that is run it takes three steps of GRPO on the same batch, and writes what it measured to
`<case> x<ranks>.pt`. The state of the first is saved, and the last case goes on from it.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts
from jobs.engine.roles.policy import Policy
from jobs.engine.roles.reference import Reference
from tests.jobs.engine.peaks import batches_of
from tests.jobs.engine.rank_variants import ADAPTER_CASES

NUM_STEPS, PART_BYTES = 3, 1 << 20
SIZES: dict[str, Any] = {
    "rollout.prompts_per_step": 2,
    "rollout.samples_per_prompt": 4,
    "rollout.max_prompt_tokens": 16,
    "rollout.max_new_tokens": 16,
    "lora.rank": 4,
}


def spec_of(case: str, *, ranks: int) -> RunSpec:
    """The spec of a case."""
    hardware = {"layout": "shared", "policy_ranks": ranks}
    return parse_spec({"algorithm": "grpo", "hardware": hardware, "knobs": SIZES | ADAPTER_CASES[ranks][case]})


def main() -> None:
    """Go through the cases."""
    run_dir, rank, ranks, port = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    for case in ADAPTER_CASES[ranks]:  # each in the group of the first, which a process can form once
        spec = spec_of(case, ranks=ranks)
        place = {"host": "127.0.0.1", "port": port, "device": "cpu"}
        policy = Policy(spec=spec, rank=rank, world_size=ranks, **place)
        folder = run_dir / "state"
        folder.mkdir(exist_ok=True)
        found = _learned(policy, spec, rank, saves_to=folder if case == "ZeRO-3" and ranks == 2 else None)
        if case == "resumed":
            policy.begin_load()
            policy.load_parts(str(folder), ["weights", "exp_avg", "exp_avg_sq"], PART_BYTES)
            policy.finish_load(NUM_STEPS)
            found["after resume"] = policy.logprobs(batches_of(spec)[1])
            found["next"] = _step(policy, spec, rank)
        if rank == 0:
            torch.save(found, run_dir / f"{case} x{ranks}.pt")
    policy.close()


def _learned(policy: Policy, spec: RunSpec, rank: int, *, saves_to: Path | None) -> dict[str, Any]:
    _, whole = batches_of(spec)
    told = [_step(policy, spec, rank) for _ in range(NUM_STEPS)]
    found: dict[str, Any] = {
        "told": told,
        "reference": policy.reference_logprobs(whole),
        "policy": policy.logprobs(whole),
        "weights": {name: value.clone() for name, value in policy._weights()},
        "readings": policy.readings(),
        "share": policy.trained_share(),
        "metadata": policy.weight_metadata(),
        "adapters": policy.export_adapters(),
    }
    if rank == 0:
        found["base"] = Reference(spec=spec, device="cpu").logprobs(whole)
    if saves_to is not None:
        found["parts"] = policy.save_parts(str(saves_to), PART_BYTES)
        found["state"] = policy.state_metadata()
        found["next"] = _step(policy, spec, rank)
    return found


def _step(policy: Policy, spec: RunSpec, rank: int) -> tuple[dict[str, float], float]:
    shares, whole = batches_of(spec)
    counts = [Counts(num_tokens=whole.num_trained_tokens, num_sequences=whole.num_sequences)]
    (update,) = policy.update([shares[rank]], counts, 1e-2)
    return dict(update.shares), update.grad_norm


if __name__ == "__main__":
    main()
