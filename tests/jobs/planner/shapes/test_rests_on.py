"""What a count rests on, and what overrules it."""

from typing import Any

import pytest

from jobs.planner.shapes.config_values import ShapeUnreadable
from jobs.planner.shapes.model_shape import ModelShape, read_shape
from jobs.planner.shapes.said import doubts, parameters_text
from tests.jobs.planner.shapes.hub_configs import HUB_CONFIGS

_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
_NEW = {**_LLAMA, "model_type": "brandnew", "architectures": ["BrandNewForCausalLM"]}


def _held(config: dict[str, Any], elements: int, kind: str = "BF16") -> ModelShape:
    return read_shape({**config, "safetensors": {"parameters": {kind: elements}}})


def test_a_known_type_is_exact_and_says_nothing() -> None:
    shape = read_shape(_LLAMA)
    assert (shape.is_exact, doubts(shape), parameters_text(shape)) == (True, (), "6,738,415,616")


def test_an_unknown_type_is_about_right_and_names_the_keys_that_nobody_understood() -> None:
    shape = read_shape({**_NEW, "num_bells": 3, "whistles": {"loud": True}, "rope_theta": 1e6, "unused": None})
    assert not shape.is_exact
    assert parameters_text(shape) == "about 6.7 B"
    assert "'brandnew' is not known" in doubts(shape)[0]
    assert doubts(shape)[1] == "These keys of its config were not understood: num_bells, whistles."


def test_layers_that_are_not_modelled_are_named_though_the_count_is_exact() -> None:
    shape = read_shape(HUB_CONFIGS["ibm-granite/granite-4.0-h-small"])
    assert shape.is_exact
    assert doubts(shape) == ("Memory and time of some layers are estimated as if they were attention: Mamba-2.",)


@pytest.mark.parametrize(("kind", "reason"), [("bert", "encoder made to decode"), ("bart", "an encoder and a decoder")])
def test_a_type_of_transformers_that_is_not_described_is_refused_by_name(kind: str, reason: str) -> None:
    with pytest.raises(ShapeUnreadable, match=reason) as refused:
        read_shape({**_NEW, "model_type": kind})
    assert refused.value.key == "model_type"


@pytest.mark.parametrize(
    "name",
    ["LlamaForSequenceClassification", "LlamaModel", "LlamaForCausalLMEagle3", "LlavaLlamaForCausalLM", "Medusa"],
)
def test_another_class_than_the_decoder_of_its_type_is_said(name: str) -> None:
    shape = read_shape({**_LLAMA, "architectures": [name]})
    said = f"Its architectures name '{name}': counted as 'llama' with a head for its vocabulary."
    assert (shape.is_exact, doubts(shape)) == (False, (said,))


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["LLaMAForCausalLM"]},  # as early conversions write it
        {"architectures": ["LlamaModel"], "tie_word_embeddings": True},  # no head of its own that could be missing
        {"architectures": []},
        {"architectures": None},
    ],
)
def test_its_own_class_is_known_however_it_is_written(config: dict[str, Any]) -> None:
    assert read_shape({**_LLAMA, **config}).is_exact


def test_a_size_that_its_class_does_not_have_is_said() -> None:
    """A model may call itself kimi_linear, as Kimi K3 does, and have sizes that nobody knows."""
    config = HUB_CONFIGS["moonshotai/Kimi-Linear-48B-A3B-Instruct"]
    assert read_shape({**config, "use_something": True, "num_beams": 4, "mtp_hidden_size": 64}).is_exact
    assert read_shape({**config, "own_num_attention_heads": config["num_attention_heads"]}).is_exact
    shape = read_shape({**config, "shared_expert_hidden_size": 1024})
    assert doubts(shape)[:1] == ("These keys of its config were not understood: shared_expert_hidden_size.",)


def test_a_decoder_that_stands_alone_under_the_type_of_the_whole_is_said_to() -> None:
    whole = HUB_CONFIGS["Qwen/Qwen3-VL-2B-Instruct"]
    shape = read_shape({**whole["text_config"], "model_type": "qwen3_vl"})
    said = "wraps a decoder, but its config has no text_config: counted as 'qwen3_vl_text' alone."
    assert doubts(shape) == (f"Its model type 'qwen3_vl' {said}",)
    assert shape.parameters == read_shape(whole).parameters


def test_experts_that_are_missing_are_asked_for_by_the_names_that_a_type_takes() -> None:
    with pytest.raises(ShapeUnreadable, match=r"num_local_experts is missing \(also called n_routed_experts\)"):
        read_shape({**_LLAMA, "model_type": "deepseek_v3", "num_experts": 8})


def test_step_lists_its_layers_of_experts_in_a_text_and_heads_in_a_table() -> None:
    """As its hub has them; transformers makes of both what the longer keys say."""
    config = {
        "model_type": "step3p5",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_attention_groups": 2,
        "head_dim": 16,
        "vocab_size": 100,
        "moe_num_experts": 4,
        "moe_top_k": 2,
        "moe_intermediate_size": 32,
        "share_expert_dims": 32,
        "layer_types": ["full_attention", "sliding_attention"] * 2,
        "sliding_window": 8,
    }
    hub = {**config, "moe_layers_enum": "1, 3,", "attention_other_setting": {"num_attention_heads": 6}}
    long = {
        **config,
        "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
        "num_sliding_attention_heads": 6,
    }
    assert read_shape(hub) == read_shape(long)
    with pytest.raises(ShapeUnreadable, match="moe_layers_enum must be layers"):
        read_shape({**hub, "moe_layers_enum": "1-3"})


def test_headers_that_confirm_the_count_make_it_exact() -> None:
    counted = read_shape(_NEW)
    shape = _held(_NEW, counted.parameters)
    assert (shape.parameters, shape.is_exact, shape.is_confirmed, doubts(shape)) == (counted.parameters, True, True, ())
    twice = _held({**_NEW, "tie_word_embeddings": True}, counted.parameters)  # the head is written beside the embedding
    assert twice.parameters == counted.parameters - 32000 * 4096


def test_headers_overrule_another_count_to_the_last_parameter() -> None:
    shape = _held(_NEW, 5_000_000_001)
    assert (shape.parameters, shape.is_confirmed) == (5_000_000_001, True)
    assert sum(layer.total for layer in shape.layers) < 4_800_000_000
    assert "count 5,000,000,001 parameters" in doubts(shape)[-1]


def test_packed_weights_leave_the_count_alone() -> None:
    shape = _held(_LLAMA, 900_000_000, "I32")
    assert (shape.parameters, shape.is_exact) == (read_shape(_LLAMA).parameters, True)
    assert "are packed" in doubts(shape)[0]


def test_what_a_sequence_keeps_is_said_layer_by_layer() -> None:
    granite = read_shape(HUB_CONFIGS["ibm-granite/granite-4.0-h-small"]).layers
    assert [layer.has_cache for layer in granite[:10]] == [False] * 5 + [True] + [False] * 4
    # Of Mamba-2 a state of 128 per channel of 128 heads of 64, and three tokens of what the convolution sees.
    assert granite[0].state == 128 * 64 * 128 + (128 * 64 + 2 * 128) * 3
    assert (granite[5].cache, granite[5].state) == (2 * 8 * 128, 0)
    falcon = read_shape(HUB_CONFIGS["tiiuae/Falcon-H1-0.5B-Instruct"]).layers[0]
    assert (falcon.has_cache, falcon.state > 0) == (True, True)
    sparse = read_shape(HUB_CONFIGS["deepseek-ai/DeepSeek-V3.2"]).layers[0]
    assert sparse.cache == 512 + 64 + 128  # the latent, its rotated part, and one key of the indexer
    blocks = read_shape(HUB_CONFIGS["nvidia/Nemotron-H-8B-Base-8K"]).layers
    assert [(layer.kind, layer.has_cache, layer.state > 0) for layer in blocks[6:8]] == [
        ("Mamba-2", False, True),
        ("attention", True, False),
    ]


def test_layers_that_share_keys_and_values_keep_none() -> None:
    layers = read_shape(HUB_CONFIGS["google/gemma-3n-E4B-it (text)"]).layers
    assert [layer.has_cache for layer in layers] == [True] * 20 + [False] * 15
