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


@pytest.mark.parametrize("has_checkpointing", [False, True])
def test_compiled_layers_learn_the_same(*, has_checkpointing: bool) -> None:
    plain, compiled = (_model(has_checkpointing=has_checkpointing) for _ in range(2))
    assert compile_layers(compiled, backend="aot_eager") == 3
    torch.testing.assert_close(_losses_and_gradients(compiled), _losses_and_gradients(plain), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("has_magnitudes", [False, True])
def test_compiled_layers_with_adapters_learn_the_same_and_are_their_base_without(*, has_magnitudes: bool) -> None:
    config = AdapterConfig(rank=2, alpha=4, targets="all-linear", has_magnitudes=has_magnitudes)
    base = _model()
    plain, compiled = (_model() for _ in range(2))
    for model in (plain, compiled):
        add_adapters(model, config, seed=1)
        moved(model)
    compile_layers(compiled, backend="aot_eager")

    learned, expected = (_losses_and_gradients(model) for model in (compiled, plain))
    with torch.no_grad(), without_adapters(compiled):
        off = compiled(input_ids=TOKENS_BL, use_cache=False).logits
    with torch.no_grad():
        on, base_says = (m(input_ids=TOKENS_BL, use_cache=False).logits for m in (compiled, base))

    kept = [(a, b) for a, b in zip(learned, expected, strict=True) if b is not None]
    assert len(kept) == 3 + len(adapter_parameters(plain))
    for mine, theirs in kept:
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(off, base_says, rtol=1e-4, atol=1e-6)
    assert (on - off).abs().max() > 1e-3


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
