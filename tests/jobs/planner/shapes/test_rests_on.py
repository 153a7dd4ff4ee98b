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
