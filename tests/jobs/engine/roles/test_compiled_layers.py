"""Compiled layers: the same losses and gradients, one compilation for all layers, none while tokens are drawn."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from jobs.engine.roles.adapters import AdapterConfig, adapter_parameters, add_adapters, without_adapters
from jobs.engine.roles.compiled_layers import compile_layers, uncompiled
from tests.jobs.engine.roles.test_adapters import moved

# Dynamo itself looks at .grad of what it traces.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")

TOKENS_BL = torch.arange(24).view(2, 12) % 20


@pytest.fixture(autouse=True)
def _without_what_others_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _model(*, num_layers: int = 3, has_checkpointing: bool = False) -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        attn_implementation="sdpa",
    )
    model = Qwen2ForCausalLM(config).train()
    if has_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def _losses_and_gradients(model: Any) -> list[torch.Tensor]:
    losses = []
    for width in (12, 7, 9):
        logits_BLV = model(input_ids=TOKENS_BL[:, :width], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits_BLV[:, :-1].flatten(0, 1), TOKENS_BL[:, 1:width].flatten())
        loss.backward()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("has_checkpointing", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_compiled_layers_learn_the_same(*, has_checkpointing: bool) -> None:
    plain, compiled = (_model(has_checkpointing=has_checkpointing) for _ in range(2))
    assert compile_layers(compiled, backend="aot_eager") == 3
    torch.testing.assert_close(_losses_and_gradients(compiled), _losses_and_gradients(plain), rtol=1e-4, atol=1e-6)


def test_compiled_layers_with_adapters_say_the_same_and_are_their_base_without() -> None:
    base, plain, compiled = (_model(num_layers=1) for _ in range(3))
    for model in (plain, compiled):
        add_adapters(model, AdapterConfig(rank=2, alpha=4, targets="all-linear"), seed=1)
        moved(model)
    compile_layers(compiled, backend="eager")

    def says(model: Any) -> torch.Tensor:
        logits_BLV: torch.Tensor = model(input_ids=TOKENS_BL, use_cache=False).logits
        return logits_BLV

    for model in (compiled, plain):
        says(model).logsumexp(-1).sum().backward()
    with torch.no_grad(), without_adapters(compiled):
        off = says(compiled)

    theirs = adapter_parameters(plain)
    for name, parameter in adapter_parameters(compiled).items():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(off, says(base), rtol=1e-4, atol=1e-6)
    assert (says(compiled) - off).abs().max() > 1e-3  # they are on again


def test_layers_and_varying_shapes_share_what_is_compiled() -> None:
    graphs = []

    def count(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    model = _model(num_layers=12)  # more than the 8 times that torch compiles one function before it gives up
    compile_layers(model, backend=count)
    _losses_and_gradients(model)
    assert len(graphs) == 2  # the first shape, then any

    with uncompiled(), torch.no_grad():
        model.eval()(input_ids=TOKENS_BL[:, :3], use_cache=True)
    assert len(graphs) == 2


def test_a_model_without_named_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear does not say which of its modules are layers"):
        compile_layers(torch.nn.Linear(2, 2))
