"""How the ranks of test_ranks are run: what may not change what they learn. Which variants a test runs."""

import os
from collections.abc import Collection, Mapping
from typing import Any

BY_TOKENS = {"train.dynamic_batch": True, "train.max_tokens_per_gpu": 180}
EVERY_VARIANT = "PITWALL_EVERY_VARIANT"  # set by `make proof-exactness`
HAS_EVERY = bool(os.environ.get(EVERY_VARIANT))


def shortened(variants: Mapping[str, dict[str, Any]], kept: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the variants that are run: all of them in the proof, else those that are kept."""
    return {name: value for name, value in variants.items() if HAS_EVERY or name in kept}


ALL_VARIANTS: dict[str, dict[str, Any]] = {
    "0": {"memory.zero_stage": "0", "train.packing": False},
    "1": {"memory.zero_stage": "1"},
    "2": {"memory.zero_stage": "2"},
    "micro": {"memory.zero_stage": "2", "train.micro_batch_size": 3},
    "recompute": {"memory.zero_stage": "1", "memory.gradient_checkpointing": True},
    "3": {"memory.zero_stage": "3"},
    "one rank": {"memory.zero_stage": "2"},
    "moved 0": {"memory.zero_stage": "0", "train.packing": False},
    "moved 2": {"memory.zero_stage": "2"},
    "moved 3": {"memory.zero_stage": "3"},
    "tokens": {"memory.zero_stage": "3", "train.packing": False, **BY_TOKENS},
    "packed": {"memory.zero_stage": "2", "memory.gradient_checkpointing": True, "train.packing": True, **BY_TOKENS},
    "packed, one rank": {"memory.zero_stage": "2", "train.packing": True, **BY_TOKENS},
    "host": {"memory.zero_stage": "2", "memory.adam_offload": True, "train.micro_batch_size": 3},
    "host 3": {"memory.zero_stage": "3", "memory.adam_offload": True, "memory.zero_param_offload": True},
    **{
        f"bfloat16 {name}": {"memory.precision": "bfloat16", **knobs}
        for name, knobs in {
            "0": {"memory.zero_stage": "0"},
            "2": {"memory.zero_stage": "2"},
            "3": {"memory.zero_stage": "3"},
            "micro": {"memory.zero_stage": "2", "train.micro_batch_size": 1},
            "one rank": {"memory.zero_stage": "2", "train.micro_batch_size": 1},
            "packed": {"memory.zero_stage": "3", "train.packing": True, **BY_TOKENS},
            "host": {"memory.zero_stage": "2", "memory.adam_offload": True, "train.micro_batch_size": 1},
            "host 3": {"memory.zero_stage": "3", "memory.adam_offload": True, "train.micro_batch_size": 1},
            "half masters 2": {"memory.zero_stage": "2", "memory.master_precision": "bfloat16"},
            "half masters 3": {"memory.zero_stage": "3", "memory.master_precision": "bfloat16"},
        }.items()
    },
}
KEPT = ("0", "2", "3", "moved 3", "packed", "host 3", "bfloat16 3", "bfloat16 half masters 3")
"""What `make test` looks at."""
VARIANTS = shortened(ALL_VARIANTS, KEPT)
STEPS = 5 if HAS_EVERY else 4
PRECISIONS = ("float32", "bfloat16") if HAS_EVERY else ("float32",)
"""In which the layouts of the roles are held against each other."""
BREAKS = ("0", "2", "3", "host", "host 3", *(f"bfloat16 {name}" for name in ("2", "3", "host", "half masters 2")))


def looked_at(*names: str) -> list[str]:
    """Return those of the variants that are run."""
    return [name for name in names if name in VARIANTS]
