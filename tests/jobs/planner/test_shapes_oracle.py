"""Shapes against the models themselves: transformers builds each family on the meta device, and we count the same."""

from typing import Any

import pytest

from jobs.planner.shapes.model_shape import read_shape

pytestmark = pytest.mark.engine

_DENSE = {
    "num_hidden_layers": 4,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}
_MIXTURE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
_ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 2}
_LATENT = {
    "num_key_value_heads": 6,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_DELTA = {
    "head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}

# Values as a config.json has them, beside those of _DENSE; None takes a value away.
_FAMILIES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "llama", {}),
    ("llama tied", "llama", {"tie_word_embeddings": True, "head_dim": 24}),
    ("llama biased", "llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": None}),
    ("granite", "granite", {"attention_bias": True}),
    ("smollm3", "smollm3", {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    ("seed_oss", "seed_oss", {"head_dim": 16}),
    ("mistral", "mistral", {"sliding_window": 64}),
    ("mistral head", "mistral", {"sliding_window": "null", "head_dim": 32}),
    ("mixtral", "mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    ("qwen2", "qwen2", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}),
    ("qwen2 unused window", "qwen2", {"use_sliding_window": False, "sliding_window": 64, "max_window_layers": 2}),
    ("qwen2_moe", "qwen2_moe", {**_MIXTURE, "shared_expert_intermediate_size": 48}),
    (
        "qwen2_moe every second",
        "qwen2_moe",
        {**_MIXTURE, "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2},
    ),
    ("qwen3", "qwen3", {"head_dim": 32}),
    ("qwen3 biased", "qwen3", {"head_dim": 32, "attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3_moe", "qwen3_moe", {**_MIXTURE, "head_dim": 32, "decoder_sparse_step": 1, "mlp_only_layers": [1]}),
    ("qwen3_5", "qwen3_5_text", {**_DELTA}),
    ("qwen3_5_moe", "qwen3_5_moe_text", {**_MIXTURE, **_DELTA, "shared_expert_intermediate_size": 48}),
    ("gemma", "gemma", {"head_dim": 32}),
    ("gemma2", "gemma2", {"head_dim": 32, "sliding_window": 64}),
    ("gemma3", "gemma3_text", {"head_dim": 32, "sliding_window": 64, "sliding_window_pattern": 3}),
    ("phi", "phi", {}),
    ("phi normed", "phi", {"qk_layernorm": True, "num_key_value_heads": None}),
    ("phi3", "phi3", {"sliding_window": 64, "pad_token_id": 0}),
    ("gpt_neox", "gpt_neox", {"num_key_value_heads": None}),
    ("gpt_neox unbiased", "gpt_neox", {"num_key_value_heads": None, "attention_bias": False}),
    ("stablelm", "stablelm", {}),
    ("stablelm 2", "stablelm", {"use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True}),
    ("falcon old", "falcon", {"multi_query": True, "new_decoder_architecture": False, "parallel_attn": True}),
    ("falcon serial", "falcon", {"multi_query": False, "parallel_attn": False, "bias": True}),
    ("falcon new", "falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 128}),
    ("olmo2", "olmo2", {}),
    ("olmo3", "olmo3", {"sliding_window": 64}),
    ("gpt_oss", "gpt_oss", {"head_dim": 16, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 64}),
    ("deepseek_v2", "deepseek_v2", {**_ROUTED, **_LATENT}),
    ("deepseek_v2 lite", "deepseek_v2", {**_ROUTED, **_LATENT, "q_lora_rank": "null"}),
    ("deepseek_v3", "deepseek_v3", {**_ROUTED, **_LATENT, "first_k_dense_replace": 2}),
    ("deepseek_v3 biased", "deepseek_v3", {**_ROUTED, **_LATENT, "attention_bias": True, "q_lora_rank": "null"}),
    ("glm4_moe", "glm4_moe", {**_ROUTED, "head_dim": 32, "use_qk_norm": True, "first_k_dense_replace": 1}),
    ("glm4_moe air", "glm4_moe", {**_ROUTED, "head_dim": 32, "attention_bias": True, "first_k_dense_replace": 1}),
    (
        "llama4",
        "llama4_text",
        {
            "head_dim": 32,
            "intermediate_size_mlp": 200,
            "num_local_experts": 8,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 64,
        },
    ),
    (
        "lfm2",
        "lfm2",
        {"layer_types": ["conv", "full_attention", "conv", "conv"], "conv_bias": True, "block_multiple_of": 32},
    ),
    (
        "granitemoehybrid",
        "granitemoehybrid",
        {
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 48,
            "mamba_n_heads": 6,
            "mamba_d_head": 32,
            "mamba_d_state": 16,
        },
    ),
    (
        "deepseek_v32",
        "deepseek_v32",
        {**_ROUTED, **_LATENT, "index_n_heads": 4, "index_head_dim": 16, "mlp_layer_types": None},
    ),
    ("minimax_m2", "minimax_m2", {"head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2}),
]


def _values(own: dict[str, Any]) -> dict[str, Any]:
    merged = {key: value for key, value in {**_DENSE, **own}.items() if value is not None}
    return {key: None if value == "null" else value for key, value in merged.items()}


def _model(model_type: str, values: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **values))


@pytest.mark.parametrize(("model_type", "own"), [case[1:] for case in _FAMILIES], ids=[case[0] for case in _FAMILIES])
def test_we_count_what_transformers_builds(model_type: str, own: dict[str, Any]) -> None:
    values = _values(own)
    model = _model(model_type, values)
    elements = {name: parameter.numel() for name, parameter in model.named_parameters()}
    experts = sum(number for name, number in elements.items() if ".experts." in name)
    shape = read_shape({"model_type": model_type, **values})
    assert shape.parameters == sum(elements.values())
    assert sum(layer.experts for layer in shape.layers) == experts
    if experts:
        unused = experts - experts * shape.experts_per_token // shape.experts
        assert shape.active_parameters == sum(elements.values()) - unused
    for index, layer in enumerate(shape.layers):
        where = (f"model.layers.{index}.", f"gpt_neox.layers.{index}.", f"transformer.h.{index}.")
        assert layer.total == sum(number for name, number in elements.items() if name.startswith(where))
        assert layer.largest_matrix <= max(elements.values())
    # What transformers itself would write as config.json says the same in other words.
    written = model.config.to_dict()
    again = read_shape(written)
    assert (again.parameters, again.active_parameters) == (shape.parameters, shape.active_parameters)
    assert [layer.has_cache for layer in again.layers] == [layer.has_cache for layer in shape.layers]
    assert [layer.window > 0 for layer in again.layers] == [layer.window > 0 for layer in shape.layers]


@pytest.mark.parametrize(("model_type", "own"), [case[1:] for case in _FAMILIES], ids=[case[0] for case in _FAMILIES])
def test_a_nested_text_config_reads_the_same(model_type: str, own: dict[str, Any]) -> None:
    inner = {"model_type": model_type, **_values(own)}
    nested = read_shape({"model_type": "a_tower_and_text", "text_config": inner})
    assert nested == read_shape(inner)
