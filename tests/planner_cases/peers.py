"""What DeepSpeed's and accelerate's own estimators say of a case, called in their packages.

DeepSpeed's knows ZeRO stages over plain data parallelism and full training: it is asked for those, with exact counts.
accelerate's has one number for a model, whatever it is divided over: it is asked for every full training.
Bytes of one device, None for what an estimator has no way to be told.
"""

import contextlib
import io
import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from jobs.planner.job import Training
from tests.planner_cases.load import Case


def deepspeed_bytes(case: Case) -> float | None:
    """Return what deepspeed.runtime.zero says for the case's stage, devices and offload."""
    if case.job is None or not _is_plain(case.job.policy):
        return None
    policy, fleet = case.job.policy, case.job.fleet
    nodes = -(-policy.layout.num_devices // fleet.devices_per_node)
    devices = min(policy.layout.num_devices, fleet.devices_per_node)
    on_host = policy.offload.optimizer > 0
    with contextlib.redirect_stdout(io.StringIO()):
        from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs
    model = policy.model
    if policy.layout.shards == 3:
        largest = max(model.embedding, *(layer.largest_matrix for layer in model.layers))
        _, device, _ = estimate_zero3_model_states_mem_needs(
            model.parameters, largest, devices, nodes, cpu_offload=on_host, cpu_offload_params=policy.offload.params
        )
        return float(device)
    _, device = estimate_zero2_model_states_mem_needs(model.parameters, devices, nodes, cpu_offload=on_host)
    return float(device)


def accelerate_bytes(case: Case) -> float | None:
    """Return what `accelerate estimate-memory` prints as the peak of training with Adam in bfloat16."""
    if case.job is None or case.job.policy.method != "full":
        return None
    from accelerate.commands.estimate import estimate_training_usage

    return float(max(estimate_training_usage(_size(json.dumps(dict(case.config))), "bfloat16").values()))


@cache
def _size(config: str) -> int:
    """Return the bytes of a model in fp32, as accelerate counts them on the meta device."""
    import torch
    from accelerate.utils import calculate_maximum_sizes
    from transformers import AutoModelForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(_config(json.loads(config)), dtype="float32")
    total, _ = calculate_maximum_sizes(model)
    return int(total)


def _config(values: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    plain = {key: value for key, value in values.items() if key not in ("quantization_config", "auto_map")}
    return AutoConfig.for_model(**plain)


def _is_plain(policy: Training) -> bool:
    layout = policy.layout
    divided = (layout.tensor, layout.pipeline, layout.context, layout.ulysses, layout.expert)
    is_full = policy.method == "full" and policy.family != "megatron"
    return is_full and layout.shards > 0 and all(size == 1 for size in divided)
