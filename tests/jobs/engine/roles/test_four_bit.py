"""Bases in 4 bits: against the same model with the unpacked weights, by which all that is sent and exported goes."""

import importlib.util
import sys
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, Qwen3MoeConfig

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.problem import RunProblem
from jobs.engine.roles.adapters import (
    AdapterConfig,
    TrainedShare,
    adapter_parameters,
    add_adapters,
    linear_layers,
    whole_weights,
    without_adapters,
)
from jobs.engine.roles.four_bit import pack_base
from jobs.engine.roles.head import score_counted_tokens
from tests.jobs.engine.roles.test_adapters import logprobs, merged, moved
from tests.jobs.engine.roles.test_head import batch_of
from tests.jobs.engine.roles.test_packed_attention import CONFIGS, LENGTHS, model_of

needs_it = pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
types = pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
ADAPTERS = AdapterConfig(rank=4, alpha=8, targets="q_proj, up_proj")


def spec_of(**knobs: Any) -> RunSpec:
    return parse_spec({"algorithm": "sft", "knobs": {"lora.rank": 4, "quantization.load_in_4bit": True, **knobs}})


def packed(dtype: torch.dtype = torch.float32, **knobs: Any) -> Any:
    """Return a random model in 4 bits with adapters that have moved, of which some layers have none."""
    model = model_of(CONFIGS["qwen2"], dtype=dtype)
    score_counted_tokens(model)
    pack_base(model, linear_layers(model), spec_of(**knobs), device="cpu")
    add_adapters(model, ADAPTERS, seed=1)
    return moved(model)


def plain_copy(model: Any) -> Any:
    """Return the same model with the same adapters, whose base has the values that unpacking gives, not packed."""
    plain = model_of(CONFIGS["qwen2"])
    with without_adapters(model), torch.no_grad():
        for weight in whole_weights(model):
            base = type(weight)(name=weight.name, parameters=weight.parameters[:1])
            plain.get_parameter(weight.name).copy_(base.value())
    score_counted_tokens(plain)
    add_adapters(plain, ADAPTERS, seed=1)
    theirs = adapter_parameters(plain)
    with torch.no_grad():
        for name, parameter in adapter_parameters(model).items():
            theirs[name].copy_(parameter)
    return plain


@needs_it
@types
def test_what_is_sent_and_exported_says_what_the_policy_says(dtype: torch.dtype, bound: float) -> None:
    model = packed(dtype)

    torch.testing.assert_close(logprobs(merged(model, dtype=dtype)), logprobs(model), atol=bound, rtol=0)
    assert {weight.dtype for weight in whole_weights(model)} == {dtype}
    assert all(weight.num_bytes == weight.value().nbytes for weight in whole_weights(model))


@needs_it
@pytest.mark.parametrize("is_double", [True, False])
def test_adapters_learn_by_the_gradients_that_they_have_beside_the_unpacked_base(is_double: bool) -> None:
    model = packed(**{"quantization.double_quantization": is_double})
    plain, batch = plain_copy(model), batch_of(LENGTHS)

    for each in (model, plain):
        each(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B)[0].sum().backward()

    theirs = adapter_parameters(plain)
    for name, parameter in adapter_parameters(model).items():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, atol=1e-4, rtol=1e-4)
    assert [name for name, p in model.named_parameters() if p.grad is not None] == list(theirs)


@needs_it
def test_the_base_is_rounded_takes_an_eighth_and_stays_as_it_is() -> None:
    model, original = packed(), model_of(CONFIGS["qwen2"])
    score_counted_tokens(original)
    with without_adapters(model):
        off, exact = logprobs(model), logprobs(original)
    before = {name: p.clone() for name, p in model.named_parameters()}
    model.eval()
    logprobs(model)
    for weight in whole_weights(model):
        weight.value()

    assert 1e-4 < (off - exact).abs().mean() < 0.1
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    name = next(name for name in before if name.endswith("q_proj.base_layer.weight"))
    whole = original.get_parameter(name.replace(".base_layer", ""))
    assert before[name].nbytes * 8 == whole.nbytes
    share = TrainedShare.of(model)
    assert share is not None
    assert share.num_all - share.num_trained == sum(p.numel() for p in original.parameters())


def test_without_the_knob_nothing_is_packed_and_nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    model = model_of(CONFIGS["qwen2"])
    layers = linear_layers(model)

    pack_base(model, layers, spec_of(**{"quantization.load_in_4bit": False}), device="cpu")

    assert linear_layers(model) == layers


def test_where_the_library_is_missing_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    model = model_of(CONFIGS["qwen2"])

    with pytest.raises(RunProblem, match=r"bitsandbytes, which is not installed on node .* Install it there") as caught:
        pack_base(model, linear_layers(model), spec_of(), device="cpu")

    assert caught.value.field == "knobs.quantization.load_in_4bit"


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (
            Qwen3MoeConfig(
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=1,
                moe_intermediate_size=64,
                num_experts=8,
                vocab_size=64,
            ),
            "experts",
        ),
        (GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64), "Conv1D"),
    ],
)
def test_models_of_which_little_would_be_packed_are_refused(config: Any, kind: str) -> None:
    model = AutoModelForCausalLM.from_config(config)

    with pytest.raises(RunProblem, match=rf"Much of this model \({kind}\) is no linear layer"):
        pack_base(model, linear_layers(model), spec_of(), device="cpu")
