"""FLOPs against numbers worked out by hand, and parameters of adapters."""

import pytest

from jobs.planner.job import Layout, Training
from jobs.planner.memory.lora import adapter_elements, adapter_parameters
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.flops import (
    forward_flops,
    head_flops,
    layer_flops,
    mean_context,
    training_flops,
)

LLAMA = shape_of("llama-3.1-8b")
DEEPSEEK = shape_of("deepseek-v3")


def training(**changes: object) -> Training:
    return Training(model=LLAMA, layout=Layout(), family="fsdp", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("document", "window", "seen"),
    [
        (1, 0, 1.0),
        (4, 0, (1 + 2 + 3 + 4) / 4),
        (4, 8, (1 + 2 + 3 + 4) / 4),
        (6, 2, (1 + 2 + 2 + 2 + 2 + 2) / 6),
        (5, 3, (1 + 2 + 3 + 3 + 3) / 5),
        (0, 0, 0.0),
    ],
)
def test_a_token_sees_what_came_before_it(document: int, window: int, seen: float) -> None:
    assert mean_context(document, window) == pytest.approx(seen)


def test_a_dense_model_multiplies_with_every_parameter_but_the_embedding() -> None:
    # Llama-3.1-8B: 32 layers of 2*4096*4096 + 2*4096*1024 + 3*4096*14336 + 2*4096, head 128256*4096, final norm 4096.
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    products = 2 * (32 * layer + 128256 * 4096 + 4096)
    attention = 32 * 4 * 4096 * (8192 + 1) / 2
    assert forward_flops(LLAMA, 1, 8192) == pytest.approx(products + attention, rel=1e-12)
    assert products == 2 * LLAMA.matmul_parameters


def test_packed_documents_see_themselves_alone() -> None:
    long, short = (forward_flops(LLAMA, 16384, document) for document in (16384, 512))
    assert long - short == pytest.approx(16384 * 32 * 4 * 4096 * (16384 - 512) / 2)


def test_of_experts_only_those_that_a_token_is_sent_to_count() -> None:
    model = shape_of("qwen3-30b-a3b")
    flops = layer_flops(model.layers[0], model, 1)
    assert flops.experts == 2 * 8 * 3 * 2048 * 768
    assert forward_flops(model, 1, 1) == pytest.approx(2 * model.matmul_parameters + 48 * 4 * 4096)


def test_latent_attention_works_with_its_heads_sizes() -> None:
    # DeepSeek-V3: 128 heads, queries and keys of 128 + 64, values of 128; scores 2*192 and values 2*128 per position.
    flops = layer_flops(DEEPSEEK.layers[0], DEEPSEEK, 4096)
    assert flops.attention == pytest.approx(128 * (2 * 192 + 2 * 128) * (4096 + 1) / 2)


def test_windows_bound_attention() -> None:
    gemma = shape_of("gemma-2-9b")  # every other layer looks back 4096 tokens
    growth = forward_flops(gemma, 1, 131072) - forward_flops(gemma, 1, 65536)
    near = 4096 - 4096 * 4095 / (2 * 131072) - (4096 - 4096 * 4095 / (2 * 65536))
    width = 4 * gemma.attention_width
    assert growth == pytest.approx(21 * width * 65536 / 2 + 21 * width * near)


def test_training_is_three_passes_and_recomputation_one_more() -> None:
    t = training(checkpointing="full")
    forward, head = forward_flops(LLAMA, 1000, 2048), 1000 * head_flops(LLAMA)
    attention = 1000 * 32 * layer_flops(LLAMA.layers[0], LLAMA, 2048).attention
    assert training_flops(t, 1000, 2048) == pytest.approx(3 * forward)
    assert training_flops(t, 1000, 2048, executed=True) == pytest.approx(4 * forward - head + attention / 2)


def test_frozen_weights_have_no_gradient() -> None:
    t = training(method="lora", lora_rank=16)
    attention = 1000 * 32 * layer_flops(LLAMA.layers[0], LLAMA, 2048).attention
    expected = 2 * forward_flops(LLAMA, 1000, 2048) + attention + 6 * adapter_parameters(t) * 1000
    assert training_flops(t, 1000, 2048) == pytest.approx(expected)


def test_a_scalar_head_costs_nothing_to_speak_of() -> None:
    assert head_flops(LLAMA, is_scalar=True) == 4 * 4096
    assert head_flops(LLAMA) == 2 * (128256 * 4096 + 4096)


def test_adapters_of_all_linear_layers() -> None:
    # About 42 M at rank 16 on an 8B model.
    sides = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert adapter_elements(LLAMA, 16, ["all-linear"]) == 16 * 32 * sides == 41_943_040


def test_adapters_of_named_targets() -> None:
    # litgpt's LoRA of rank 8 on queries and values of Llama-2-7B trains 4.19 M parameters.
    assert adapter_elements(shape_of("llama-2-7b"), 8, ["q_proj", "v_proj"]) == 8 * 32 * 2 * 8192 == 4_194_304


def test_every_expert_has_an_adapter_of_its_own() -> None:
    model = shape_of("qwen3-30b-a3b")
    assert adapter_elements(model, 4, ["down_proj"]) == 4 * 48 * 128 * (768 + 2048)


def test_adapters_of_latent_attention() -> None:
    kv = (7168 + 576) + (512 + 128 * (128 + 128))
    assert adapter_elements(DEEPSEEK, 1, ["kv_b_proj"]) == 61 * kv


def test_full_training_has_no_adapter() -> None:
    assert adapter_parameters(training()) == 0
    assert adapter_parameters(training(method="lora", lora_rank=8, adapter_parameters=123)) == 123
