"""How ranks are run in the tests of ranks: what may not change what they learn, and which of it a test runs."""

import importlib.util
import os
from collections.abc import Collection, Mapping
from typing import Any

BY_TOKENS = {"train.dynamic_batch": True, "train.max_tokens_per_gpu": 180}
EVERY_VARIANT = "PITWALL_EVERY_VARIANT"  # set by `make proof-exactness` and `make proof-tests`
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
"""In which the layouts of the roles are held against each other, and syncs of weights are looked at."""
BREAKS = ("0", "2", "3", "host", "host 3", *(f"bfloat16 {name}" for name in ("2", "3", "host", "half masters 2")))


def looked_at(*names: str) -> list[str]:
    """Return those of the variants that are run."""
    return [name for name in names if name in VARIANTS]


ALL_ADAPTER_CASES: dict[str, dict[str, Any]] = {
    "ZeRO-3": {"memory.zero_stage": "3"},
    "ZeRO-0": {"memory.zero_stage": "0"},
    "ZeRO-2": {"memory.zero_stage": "2", "train.micro_batch_size": 1},
    "DoRA ZeRO-2": {"memory.zero_stage": "2", "lora.dora": True},
    "bfloat16 ZeRO-3": {"memory.zero_stage": "3", "memory.precision": "bfloat16"},
    "bfloat16 ZeRO-2": {"memory.zero_stage": "2", "memory.precision": "bfloat16"},
    **(
        {"4 bits ZeRO-2": {"memory.zero_stage": "2", "quantization.load_in_4bit": True}}
        if importlib.util.find_spec("bitsandbytes")
        else {}
    ),
    "resumed": {"memory.zero_stage": "2"},
}
ADAPTER_CASES = {
    2: shortened(ALL_ADAPTER_CASES, ("ZeRO-3", "bfloat16 ZeRO-2", "4 bits ZeRO-2")),
    1: shortened(ALL_ADAPTER_CASES, ("ZeRO-2", "4 bits ZeRO-2", "resumed")),
}
"""By how many ranks there are."""

BESIDE = "beside the policy"
ADAPTERS_3, RESUMED = "adapters 3", "adapters resumed"
ADAPTERS = {"lora.rank": 4, "train.packing": False}
BY_FEWER_TOKENS = BY_TOKENS | {"train.max_tokens_per_gpu": 60}
ALL_CRITICS_OF_TWO: dict[str, dict[str, Any]] = {
    "0": {"memory.zero_stage": "0", "train.packing": False},
    "2": {"memory.zero_stage": "2", "train.packing": False},
    "3": {"memory.critic_zero_stage": "3", "train.packing": False},
    "micro": {"train.micro_batch_size": 3, "train.packing": False},
    "packed": {"memory.critic_zero_stage": "3", **BY_FEWER_TOKENS},
    "bfloat16 2": {"memory.precision": "bfloat16", "train.packing": False},
    "bfloat16 3": {"memory.precision": "bfloat16", "memory.critic_zero_stage": "3"},
    BESIDE: {"memory.zero_stage": "2", "memory.critic_zero_stage": "3", "train.packing": False},
    "adapters 2": ADAPTERS | {"memory.zero_stage": "2"},
    ADAPTERS_3: ADAPTERS | {"memory.critic_zero_stage": "3"},
}
ALL_CRITICS_OF_ONE: dict[str, dict[str, Any]] = {
    "one rank": {"train.packing": False},
    "adapters, one rank": ADAPTERS | {"memory.zero_stage": "0"},
    RESUMED: ADAPTERS | {"memory.zero_stage": "2"},
}
CRITICS_OF_TWO = shortened(ALL_CRITICS_OF_TWO, ("0", "packed", "bfloat16 3", BESIDE, ADAPTERS_3))
CRITICS_OF_ONE = shortened(ALL_CRITICS_OF_ONE, ("adapters, one rank", RESUMED))
ALL_PREFERENCES: dict[int, dict[str, dict[str, Any]]] = {
    2: {"2": {"memory.zero_stage": "2", "train.packing": False}, "3": {"memory.zero_stage": "3", **BY_FEWER_TOKENS}},
    1: {"0": {"memory.zero_stage": "0", "train.packing": False}},
}
PREFERENCES = {num_ranks: shortened(variants, ("3", "0")) for num_ranks, variants in ALL_PREFERENCES.items()}
"""By how many ranks there are, how policies that hold their reference learn from pairs and from labels."""
