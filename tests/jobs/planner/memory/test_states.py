"""States of training, bytes of what a rank holds throughout, against numbers worked out by hand."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Layout, Offload
from jobs.planner.memory.phases import (
    _peaks,
    checkpoint_bytes,
    export_bytes,
)
from jobs.planner.memory.stages import layer_share, stage_share, stages_of
from jobs.planner.memory.states import transients_of
from jobs.planner.shapes.known import shape_of
from tests.jobs.planner.trainings import held, only_stage, training

K = shipped_constants()
GIB = 2**30


# Model states: bytes per parameter of a 7.6 billion model on 8 devices (docs/develop/planner-formulas.md).


@pytest.mark.parametrize(
    ("shards", "weights", "gradients", "optimizer"),
    [(0, 2, 2, 12), (1, 2, 2, 12 / 8), (2, 2, 2 / 8, 12 / 8), (3, 2 / 8, 2 / 8, 12 / 8)],
)
def test_each_stage_of_zero_shards_one_more_of_the_states(
    shards: int, weights: float, gradients: float, optimizer: float
) -> None:
    t = training("qwen2.5-7b", Layout(num_devices=8, shards=shards), family="deepspeed")
    found, elements = held(t), 7_615_616_512
    assert found.weights == pytest.approx(weights * elements)
    assert found.gradients == pytest.approx(gradients * elements)
    assert found.optimizer == pytest.approx(optimizer * elements)


@pytest.mark.parametrize(
    ("changes", "per_parameter"),
    [
        ({"gradient_bytes": 4.0}, 18),
        ({"weight_bytes": 4.0, "gradient_bytes": 4.0, "has_master": False}, 16),
        ({"optimizer": "adam_bf16", "has_master": False}, 8),
        ({"optimizer": "adam_8bit", "has_master": False}, 6),
        ({"optimizer": "sgd", "has_master": False}, 8),
        ({"optimizer_in_backward": True}, 14),
        ({"offload": Offload(optimizer=1.0)}, 4),
        ({"offload": Offload(optimizer=0.5)}, 10),
        ({"offload": Offload(params=True)}, 0),
        ({"family": "deepspeed", "offload": Offload(optimizer=1.0)}, 2),
        ({"family": "deepspeed", "offload": Offload(params=True)}, 14),
        ({"family": "deepspeed", "optimizer": "adam_bf16", "master_bytes": 2.0, "gradient_bytes": 4.0}, 12),
        ({"step_buffer_bytes": 6.0}, 22),
        ({"family": "megatron", "gradient_bytes": 4.0, "offload": Offload(optimizer=1.0)}, 6),
    ],
)
def test_bytes_per_parameter_by_scheme(changes: dict[str, object], per_parameter: float) -> None:
    found = held(training(**changes))  # type: ignore[arg-type]
    total = found.weights + found.gradients + found.optimizer
    assert total == pytest.approx(per_parameter * 8_030_261_248)


@pytest.mark.parametrize(("shards", "gradients"), [(2, 4), (3, 0)])
def test_zero_2_leaves_sums_that_are_wider_than_the_weights_on_the_device(shards: int, gradients: float) -> None:
    layout, offload = Layout(num_devices=8, shards=shards), Offload(optimizer=1.0)
    found = held(training(family="deepspeed", layout=layout, gradient_bytes=4.0, offload=offload))
    assert found.gradients == pytest.approx(gradients * 8_030_261_248 / 8)


def test_muon_has_one_momentum_for_matrices_and_two_for_the_vocabulary() -> None:
    vocabulary = 2 * 128_256 * 4096 + 4096
    found = held(training(optimizer="muon"))
    assert found.optimizer == pytest.approx(8 * 8_030_261_248 + 4 * vocabulary)


def test_distributed_data_parallelism_has_flat_buckets_from_its_start_and_gradients_beside_them() -> None:
    # PyTorch, csrc/distributed/c10d/reducer.cpp: initialize_buckets makes them with the reducer
    alone, many = (training(family="plain", layout=Layout(num_devices=number)) for number in (1, 2))
    elements = 2 * 8_030_261_248
    assert held(many).gradients == held(alone).gradients == elements
    at_loss, *_, in_step = _peaks(many, only_stage(many), K)
    at_loss_alone, *_, in_step_alone = _peaks(alone, only_stage(alone), K)
    assert (at_loss_alone["gradients"], at_loss["gradients"]) == (0, elements)
    assert (in_step_alone["gradients"], in_step["gradients"]) == (elements, 2 * elements)


def test_gradients_that_are_not_scattered_are_whole_and_as_wide_as_they_are_added_up() -> None:
    layout = Layout(num_devices=8, shards=3)
    flat = training(family="fsdp", layout=layout, keeps_gradients=True, num_micro_batches=2)
    by_tensor, stages = replace(flat, is_sharded_by_tensor=True), replace(flat, family="deepspeed")
    assert held(flat).gradients == pytest.approx(2 * 8_030_261_248)
    assert held(by_tensor).gradients == held(stages).gradients == pytest.approx(4 * 8_030_261_248)
    one = replace(flat, num_micro_batches=1)  # there is nothing to add up
    assert held(one).gradients == held(replace(one, keeps_gradients=False)).gradients


# Adapters.


def test_an_adapter_of_rank_16_takes_16_bytes_of_each_of_its_42_million_elements() -> None:
    t = training(method="lora", lora_rank=16)
    found, base = held(t), 2 * 8_030_261_248
    assert found.trained.total == 41_943_040
    assert found.weights + found.gradients + found.optimizer == pytest.approx(base + 16 * 41_943_040)
    four = held(replace(t, num_adapters=4))
    assert four.optimizer == pytest.approx(4 * found.optimizer)
    assert checkpoint_bytes(replace(t, num_adapters=4)) == 4 * checkpoint_bytes(t) == 4 * 14 * 41_943_040


def test_a_frozen_base_in_fp32_takes_twice_what_one_in_bf16_does() -> None:
    narrow, wide = (held(training(method="lora", lora_rank=16, base_bytes=size)) for size in (2.0, 4.0))
    assert wide.weights - narrow.weights == pytest.approx(2 * 8_030_261_248)


def test_a_named_number_of_adapter_elements_takes_the_place_of_the_estimated() -> None:
    t = training(method="lora", lora_rank=16, adapter_parameters=1_000_000)
    assert held(t).trained.total == pytest.approx(1_000_000)
    assert export_bytes(t) == 2_000_000


def test_a_quantized_base_packs_matrices_and_leaves_the_vocabulary_and_norms() -> None:
    matrices = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    rest = 8_030_261_248 - matrices
    t = training(method="qlora", lora_rank=16, base_bytes=0.5625, layout=Layout(), family="plain")
    assert held(t).weights == pytest.approx(0.5625 * matrices + 2 * rest + 2 * 41_943_040)
    gathered = transients_of(t, only_stage(t), held(t), K).gathered
    assert gathered == 2 * 4096 * 14336  # one matrix at a time is unpacked
    assert held(replace(t, ends_bytes=4.0)).weights - held(t).weights == pytest.approx(2 * rest)


def test_a_sharded_quantized_base_is_gathered_packed() -> None:
    t = training(method="qlora", lora_rank=16, base_bytes=0.5, layout=Layout(num_devices=8, shards=3))
    found = transients_of(t, only_stage(t), held(t), K)
    layer, norms = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336, 2 * 4096
    ends = 2 * (2 * 128_256 * 4096 + 4096)
    assert found.gathered == pytest.approx(2 * (0.5 * layer + 2 * norms) + ends + 2 * 4096 * 14336)


def test_adapters_of_experts_divide_by_expert_parallelism() -> None:
    whole = training("qwen3-30b-a3b", Layout(num_devices=8), method="lora", lora_rank=8)
    divided = replace(whole, layout=Layout(num_devices=8, expert=8))
    assert held(divided).trained.experts == held(whole).trained.experts / 8 > 0
    assert held(divided).trained.dense == held(whole).trained.dense


# What a rank holds.


def test_experts_divide_by_expert_parallelism_and_not_by_tensor_parallelism() -> None:
    model = shape_of("qwen3-30b-a3b")
    layer = model.layers[0]
    share = layer_share(layer, Layout(num_devices=8, tensor=2, expert=4))
    assert share.experts == layer.experts / 4 == 128 * 3 * 2048 * 768 / 4
    assert share.dense == (layer.attention + layer.mlp) / 2 + layer.replicated


def test_states_of_experts_are_sharded_over_the_ranks_that_hold_the_same() -> None:
    # 16 devices, 8 expert ranks: 2 hold the same experts, 16 the rest.
    t = training("qwen3-30b-a3b", Layout(num_devices=16, expert=8, shards=1), family="megatron", gradient_bytes=4.0)
    experts = 48 * 128 * 3 * 2048 * 768
    dense = 30_532_122_624 - experts
    assert held(t).optimizer == pytest.approx(12 * (dense / 16 + experts / 8 / 2))
    assert held(t).gradients == pytest.approx(4 * (dense + experts / 8))


def test_context_parallel_ranks_share_states() -> None:
    t = training(layout=Layout(num_devices=8, context=4, shards=1), family="megatron")
    assert held(t).optimizer == pytest.approx(12 * 8_030_261_248 / 8)


def test_hybrid_sharding_divides_within_its_group_alone() -> None:
    t = training(layout=Layout(num_devices=64, shards=3, shard_group=8))
    assert held(t).weights == pytest.approx(2 * 8_030_261_248 / 8)


def test_the_ends_of_a_pipeline_hold_the_vocabulary_and_a_tied_model_holds_it_twice() -> None:
    model, layout = shape_of("qwen3-0.6b"), Layout(num_devices=4, pipeline=4)
    shares = [stage_share(stage, model, layout).total for stage in stages_of(model, layout)]
    assert sum(shares) == 596_049_920 + 151_936 * 1024
    assert shares[1] == shares[2] == sum(layer.total for layer in model.layers[:7])
    assert shares[0] - shares[1] == 151_936 * 1024
    assert shares[3] - shares[1] == 151_936 * 1024 + 1024


@pytest.mark.parametrize(
    ("layout", "sizes"),
    [
        (Layout(pipeline=1), [61]),
        (Layout(pipeline=4), [16, 15, 15, 15]),
        (Layout(pipeline=16, first_stage_layers=3, last_stage_layers=2), [3, *[4] * 14, 2]),
    ],
)
def test_layers_are_spread_over_stages(layout: Layout, sizes: list[int]) -> None:
    assert [stage.num_layers for stage in stages_of(shape_of("deepseek-v3"), layout)] == sizes


@pytest.mark.parametrize(
    ("virtual", "micro_batches", "in_flight"),
    [(1, 8, [4, 3, 2, 1]), (1, 2, [2, 2, 2, 1]), (2, 8, [5.5, 4.5, 3.5, 2.5]), (2, 1, [1, 1, 1, 1])],
)
def test_early_stages_hold_more_micro_batches(virtual: int, micro_batches: int, in_flight: list[float]) -> None:
    # Interleaved, the first stage holds 1 + (p - 1) / (p v) times as much: 4 * (1 + 3 / 8) = 5.5.
    layout = Layout(num_devices=4, pipeline=4, virtual=virtual)
    found = stages_of(shape_of("llama-3.1-8b"), layout, micro_batches)
    assert [stage.in_flight for stage in found] == in_flight
