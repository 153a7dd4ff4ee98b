"""How the ranks of test_ranks are run: what may not change what they learn."""

import os
from typing import Any

BY_TOKENS = {"train.dynamic_batch": True, "train.max_tokens_per_gpu": 180}
EVERY_VARIANT = "PITWALL_EVERY_VARIANT"  # set by `make proof-exactness`
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
KEPT = (
    *("0", "1", "2", "3", "one rank", "moved 3", "tokens", "packed", "host 3"),
    *(f"bfloat16 {name}" for name in ("2", "3", "half masters 2")),
)
"""What `make test` looks at."""
VARIANTS = {name: knobs for name, knobs in ALL_VARIANTS.items() if name in KEPT or os.environ.get(EVERY_VARIANT)}
BREAKS = ("0", "2", "3", "host", "host 3", *(f"bfloat16 {name}" for name in ("2", "3", "host", "half masters 2")))


def looked_at(*names: str) -> list[str]:
    """Return those of the variants that are run."""
    return [name for name in names if name in VARIANTS]
