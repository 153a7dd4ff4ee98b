"""How engines cut their caches: what they keep of a token, counted by hand."""

from typing import Any

import pytest

from jobs.catalog.model import models
from jobs.planner.constant import shipped_constants
from jobs.planner.job import Engine
from jobs.planner.serving.engine_memory import engine_memory
from jobs.planner.serving.kv_cache import token_bytes
from jobs.planner.shapes.model_shape import read_shape
from tests.jobs.planner.hardware import H100
from tests.jobs.planner.shapes.hub_configs import HUB_CONFIGS


@pytest.mark.parametrize("element_bytes", [1, 2])
def test_an_indexer_keeps_its_keys_in_8_bits_whatever_the_cache_has(element_bytes: int) -> None:
    """DeepSeek-V3.2: a latent of 512 and 64 of positions, beside them 128 keys and a float32 scale for all of them."""
    shape = read_shape(HUB_CONFIGS["deepseek-ai/DeepSeek-V3.2"])
    assert token_bytes(shape.layers, 1, element_bytes) == 61 * (576 * element_bytes + 128 + 4)


def test_sglang_has_room_for_layers_that_use_the_keys_and_values_of_others() -> None:
    """Gemma 3n: 35 layers of which 15 have no keys of their own, every fifth without a window."""
    shape = read_shape(HUB_CONFIGS["google/gemma-3n-E4B-it (text)"])
    per_layer = 2 * 2 * 256 * 2
    share = shipped_constants().engine.sglang_window_share
    served = Engine(model=shape, name="sglang", kv_cache_bytes=10**10)
    weight = (7 + 28 * share) * per_layer
    assert engine_memory(served, H100, shipped_constants()).kv_tokens == int(10**10 // weight)
    assert token_bytes(shape.layers, 1, 2) == 20 * per_layer  # what vLLM and Transformers keep


def _mixture(**quantization: Any) -> Any:
    return read_shape({**models()["kimi-k2"].config, "quantization_config": quantization})


_FOUR_BITS = {
    "quant_method": "compressed-tensors",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": -1}}},
}


@pytest.mark.parametrize(
    ("ignore", "reaches"),
    [
        (["lm_head", r"re:.*self_attn.*", "re:.*shared_experts.*"], "experts"),
        (["lm_head", *(f"model.layers.{index}.self_attn*" for index in range(61))], "experts"),
        ([r"re:^model\.layers\..*\.self_attn\.o_proj$"], "experts"),
        (["language_model.model.layers.60.self_attn.o_proj"], "experts"),
        (["lm_head", "model.layers.0.self_attn*"], "layers"),  # of one layer alone
        (["re:.*self_attn.*", "re:.*mlp.*"], "layers"),  # nothing would be left
        (["re:(.*self_attn.*|lm_head)"], "layers"),  # more than such a pattern can say
        ([], "layers"),
    ],
)
def test_modules_that_stay_as_they_were_are_told_by_their_list(ignore: list[str], reaches: str) -> None:
    assert _mixture(**_FOUR_BITS, ignore=ignore).quantizes == reaches


def test_a_mixed_checkpoint_has_the_bytes_of_each_of_its_parts() -> None:
    """Modelopt's MIXED_PRECISION: attention in 8 bits, MLPs in 4 with 8 bits of scale for 16 of them."""
    dense = models()["qwen3-8b"].config
    listed = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": listed}
    shape = read_shape({**dense, "quantization_config": mixed})
    attention, mlp = (sum(getattr(layer, part) for layer in shape.layers) for part in ("attention", "mlp"))
    wide = read_shape(dense).checkpoint_bytes()
    assert wide - shape.checkpoint_bytes() == pytest.approx(attention * 1 + mlp * (2 - 4.5 / 8), abs=1)
    routed = {**listed, "model.layers.0.mlp.experts": {"quant_algo": "NVFP4"}}
    assert _mixture(**{**mixed, "quantized_layers": routed}).expert_bytes == 4.5 / 8
    assert _mixture(**mixed).expert_bytes == 2.0  # experts that are not listed stay as they were


def test_experts_may_have_a_type_of_their_own() -> None:
    """DeepSeek-V4: 8 bits, experts 4 bits with 8 bits of scale for 32 of them."""
    config = {**models()["kimi-k2"].config, "quantization_config": {"quant_method": "fp8"}}
    wide, narrow = read_shape(config), read_shape({**config, "expert_dtype": "fp4"})
    assert wide.checkpoint_bytes() - narrow.checkpoint_bytes() == round(wide.expert_parameters * (1 - 4.25 / 8))
