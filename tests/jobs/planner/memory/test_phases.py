"""Memory of training against numbers worked out by hand and published ones."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import FrozenModel, Head, Layout, Offload, Training
from jobs.planner.memory.activations import activations_of
from jobs.planner.memory.logits import scoring_logits, training_logits
from jobs.planner.memory.phases import (
    _peaks,
    checkpoint_bytes,
    checkpoint_memory,
    counted,
    export_bytes,
    frozen_memory,
    load_memory,
    overhead_bytes,
    resident_memory,
    scoring_memory,
    sync_memory,
    update_memory,
)
from jobs.planner.memory.stages import layer_share, stage_share, stages_of
from jobs.planner.memory.states import gathered_share, states_of, transients_of
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import read_shape
from tests.jobs.planner.hardware import H100
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


# Transients.


def test_full_sharding_gathers_two_layers_and_the_ends_and_scatters_a_layers_gradients() -> None:
    layer, ends = 218_112_000, 2 * 128_256 * 4096 + 4096
    t = training(layout=Layout(num_devices=8, shards=3), weight_bytes=4.0, gradient_bytes=4.0, has_master=False)
    found = transients_of(t, only_stage(t), held(t), K)
    assert found.gathered == 2 * (2 * layer + ends)
    assert found.in_backward == layer * (2 + 4) + (128_256 * 4096 + 4096) * (2 + 4)
    whole = transients_of(replace(t, resharded=False), only_stage(t), held(t), K)
    assert whole.gathered == 2 * 8_030_261_248
    assert transients_of(replace(t, head="chunked"), only_stage(t), held(t), K).at_loss == 2 * (128_256 * 4096 + 4096)


def test_a_tied_head_has_a_gradient_too() -> None:
    t = training("qwen3-0.6b", head="chunked")
    assert transients_of(t, only_stage(t), held(t), K).at_loss == 2 * 151_936 * 1024


def test_deepspeed_lets_weights_live_and_makes_its_bucket_whole() -> None:
    t = training(layout=Layout(num_devices=8, shards=3), family="deepspeed")
    found = transients_of(t, only_stage(t), held(t), K)
    assert found.gathered == 2 * 1e9
    assert found.buffers == 2 * 2 * 5e8
    assert transients_of(replace(t, bucket_bytes=10**6), only_stage(t), held(t), K).buffers == 2 * 10**6
    assert found.in_step == 4 * 1e9  # a group of parameters at a time
    second = replace(t, layout=replace(t.layout, shards=2))
    assert transients_of(second, only_stage(t), held(second), K).in_step == 4 * 8_030_261_248 / 8
    assert transients_of(second, only_stage(t), held(second), K).buffers == 2 * 5e8  # one alone
    adapters = replace(t, method="lora", lora_rank=8)  # 20,971,520 elements are trained, and the bucket is as large
    assert transients_of(adapters, only_stage(t), held(adapters), K).buffers == 2 * (5e8 + 20_971_520)
    none = replace(adapters, layout=replace(t.layout, shards=0))
    assert transients_of(none, only_stage(t), held(none), K).buffers == 2 * 20_971_520


def test_deepspeed_below_zero_3_has_gradients_in_the_backward_pass_alone() -> None:
    t = training(layout=Layout(num_devices=8, shards=2), family="deepspeed", sequence=8192, micro_batch=8)
    own = 2 * 8_030_261_248 / 8
    assert "gradients" not in resident_memory(t, H100, K).terms
    at_loss, in_last, in_first, _, in_step = _peaks(t, only_stage(t), K)
    assert at_loss["gradients"] == 0
    assert in_last["gradients"] == 2 * 5e8  # the bucket
    assert in_first["gradients"] == own + 2 * 5e8
    assert in_step["gradients"] == own
    summed = next(_peaks(replace(t, num_micro_batches=2), only_stage(t), K))
    assert summed["gradients"] == own


def test_zero_2_makes_room_for_wider_sums_with_the_first_gradient_also_where_a_rank_is_alone() -> None:
    t = training(layout=Layout(shards=2), family="deepspeed", gradient_bytes=4.0, checkpointing="none")
    _, in_last, in_first, *_ = _peaks(t, only_stage(t), K)
    assert in_last["gradients"] == in_first["gradients"] == 4 * 8_030_261_248 + 2 * 5e8


def test_the_first_layer_is_differentiated_beside_all_gradients_and_one_layers_activations() -> None:
    t = training(layout=Layout(), family="plain", checkpointing="full")
    at_loss, _, in_first, *_ = _peaks(t, only_stage(t), K)
    kept = activations_of(t, only_stage(t), K, width=2.0)
    assert at_loss["gradients"] == 0
    assert in_first["gradients"] == 2 * 8_030_261_248
    assert in_first["activations"] == pytest.approx(kept.stored / 32 + kept.working)


def test_counted_logits_take_the_place_of_the_usual_ones() -> None:
    model, tokens = shape_of("qwen2.5-0.5b"), 4096
    t = training("qwen2.5-0.5b", layout=Layout(), head="chunked", head_chunk=441, sequence=tokens, logit_bytes=20.0)
    assert training_logits(t, K) == 20 * 441 * model.vocab
    assert training_logits(replace(t, head="unfused"), K) == 20 * tokens * model.vocab
    assert scoring_logits(model, tokens, tensor=1, head="unfused", logit_bytes=14.0, constants=K) == (
        14 * tokens * model.vocab
    )


def test_adam_without_a_fused_kernel_copies_what_it_updates() -> None:
    t = training(optimizer="adam_bf16", has_master=False, has_fused_optimizer=False)
    assert transients_of(t, only_stage(t), held(t), K).in_step == 2 * 8_030_261_248
    fused = replace(t, has_fused_optimizer=True)
    assert transients_of(fused, only_stage(t), held(t), K).in_step == 0


def test_an_update_in_the_backward_pass_needs_the_gradient_of_one_unit() -> None:
    t = training(family="plain", layout=Layout(), optimizer_in_backward=True)
    assert transients_of(t, only_stage(t), held(t), K).in_backward == 2 * (128_256 * 4096 + 4096)


def test_autocast_keeps_its_casts_of_fp32_weights_of_layers_that_are_not_checkpointed() -> None:
    t = training(family="plain", layout=Layout(), weight_bytes=4.0)
    layer = layer_share(t.model.layers[0], t.layout).total
    assert transients_of(t, only_stage(t), held(t), K).gathered == 2 * layer
    kept = replace(t, checkpointing="none")
    assert transients_of(kept, only_stage(t), held(t), K).gathered == 2 * 8_030_261_248


def test_fsdp_under_autocast_gathers_what_it_holds() -> None:
    mixed = training(layout=Layout(num_devices=8, shards=3), weight_bytes=4.0, gradient_bytes=4.0)
    autocast = replace(mixed, mixed_precision="autocast")
    narrow, wide = (transients_of(t, only_stage(t), held(t), K) for t in (mixed, autocast))
    layer, ends = layer_share(mixed.model.layers[0], mixed.layout).total, 2 * 128_256 * 4096 + 4096
    assert narrow.gathered == 2 * (2 * layer + ends)
    assert wide.gathered == 4 * (2 * layer + ends) + 2 * layer  # and a cast
    assert wide.gathered_at_loss == 4 * (layer + ends)


def test_a_tied_matrix_has_two_gradients_and_their_sum_when_all_layers_are_done() -> None:
    t = training("qwen3-0.6b", layout=Layout(), family="plain")
    assert t.model.is_tied
    *_, at_embedding, in_step = _peaks(t, only_stage(t), K)
    assert at_embedding["gradients"] - in_step["gradients"] == 2 * 2 * 151_936 * 1024
    assert "logits" not in in_step
    assert at_embedding["activations"] == 0


def test_training_in_16_bits_alone_holds_nothing_wider() -> None:
    t = training(weight_bytes=4.0, gradient_bytes=4.0, mixed_precision="pure", family="plain", layout=Layout())
    found = held(t)
    assert found.weights + found.gradients + found.optimizer == 8 * 8_030_261_248


def test_products_in_fp8_keep_both_layouts_of_each_matrix_in_megatron() -> None:
    t = training(family="megatron", kernels="megatron", layout=Layout(num_devices=8, tensor=8))
    matrices = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) / 8
    fp8 = replace(t, compute="fp8")
    found = [next(_peaks(each, only_stage(t), K))["weights"] for each in (t, fp8)]
    assert found[1] - found[0] == pytest.approx(2 * matrices)


def test_what_the_allocator_holds_follows_its_setting_and_lengths() -> None:
    t = training(layout=Layout(), family="plain")
    found = {}
    for setting in ("expandable", "", "blocks"):
        found[setting] = update_memory(replace(t, allocator=setting), H100, K).total
    assert found["expandable"] < found[""] < found["blocks"]
    varied = replace(t, has_varied_lengths=True)
    assert update_memory(varied, H100, K).total > found[""]
    grows = replace(varied, allocator="expandable")  # segments that grow leave no gaps for other sizes
    assert update_memory(grows, H100, K).total == found["expandable"]


# Whole steps.

LLAMA_70B_12_LAYERS = read_shape(
    {
        "model_type": "llama",
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 12,
        "vocab_size": 128_256,
        "tie_word_embeddings": False,
    }
)


def test_a_megatron_step_is_the_sum_that_was_published() -> None:
    """12 layers of a 70B model on TP 2 and DP 4 with Megatron: 60.8 GiB by hand, 60.68 measured (SimuMax)."""
    t = Training(
        model=LLAMA_70B_12_LAYERS,
        layout=Layout(num_devices=8, tensor=2, shards=1),
        family="megatron",
        gradient_bytes=4.0,
        kernels="megatron",
        head="parallel",
        checkpointing="none",
        sequence=4096,
        num_micro_batches=8,
    )
    h, kv, f, v, tokens = 8192, 1024, 28672, 128_256, 4096
    matrices = 2 * h * h + 2 * h * kv + 3 * h * f
    rank = 12 * (matrices / 2 + 2 * h) + 2 * v * h / 2 + h
    states = rank * (2 + 4 + 12 / 4)
    saved = (4 * h + 3 * h + 3 * kv + 3 * f) / 2 * 12 * tokens * 2
    ends = (2 * h / 2 + 3 * h) * tokens * 2
    by_hand = states + saved + ends + 2 * matrices / 2 + 6 * tokens * v / 2
    memory = update_memory(t, H100, K)
    assert counted(memory, t.layout, "allocated", H100, K) == pytest.approx(by_hand, abs=16)
    assert by_hand / GIB == pytest.approx(60.68, rel=0.01)
    assert memory.terms["optimizer"] == pytest.approx(3 * rank, abs=1)
    assert memory.terms["weights"] == pytest.approx(2 * rank, abs=1)
    assert memory.terms["logits"] == 6 * tokens * v / 2


def test_the_fullest_stage_of_a_pipeline_counts() -> None:
    layout = Layout(num_devices=4, pipeline=4)
    t = training(layout=layout, family="megatron", kernels="megatron", head="parallel", checkpointing="none")
    early = replace(t, num_micro_batches=8, sequence=8192)
    assert "logits" not in update_memory(early, H100, K).terms  # the first stage, which holds four micro-batches
    late = replace(t, checkpointing="full", sequence=8192, micro_batch=4)
    assert update_memory(late, H100, K).terms["logits"] == 6 * 4 * 8192 * 128_256  # the last, which has the head


def test_the_optimizers_step_is_the_peak_where_little_is_computed() -> None:
    t = training(family="plain", layout=Layout(), optimizer="adam_bf16", has_master=False, sequence=16)
    memory = update_memory(replace(t, has_fused_optimizer=False), H100, K)
    states = (8 + 2) * 8_030_261_248
    assert counted(memory, t.layout, "allocated", H100, K) == pytest.approx(states, abs=8)
    assert "activations" not in memory.terms


def test_gradients_of_a_single_micro_batch_are_not_there_yet_when_the_loss_is_computed() -> None:
    one = training(sequence=65536, head="unfused", layout=Layout(num_devices=8, shards=3))
    two = replace(one, num_micro_batches=2)
    more = update_memory(two, H100, K).terms["gradients"] - update_memory(one, H100, K).terms.get("gradients", 0)
    assert more == pytest.approx(2 * 8_030_261_248 / 8, abs=1)


def test_what_a_source_counts() -> None:
    t = training(layout=Layout(num_devices=8, shards=3))
    memory = update_memory(t, H100, K)
    tensors = counted(memory, t.layout, "allocated", H100, K)
    assert counted(memory, t.layout, "reserved", H100, K) == pytest.approx(tensors * K.memory.allocator, abs=8)
    assert counted(memory, t.layout, "device", H100, K) == memory.total
    assert memory.total - counted(memory, t.layout, "reserved", H100, K) == overhead_bytes(t.layout, H100, K)


def test_processes_pay_for_each_way_in_which_they_are_divided() -> None:
    alone = overhead_bytes(Layout(), H100, K)
    assert alone == K.memory.context_bytes
    assert overhead_bytes(Layout(num_devices=8), H100, K) == alone + K.memory.communicator_bytes
    more = K.memory.further_communicator_bytes
    data = overhead_bytes(Layout(num_devices=8), H100, K)
    assert overhead_bytes(Layout(num_devices=8, tensor=8), H100, K) == data  # one group, as with data parallelism
    assert overhead_bytes(Layout(num_devices=8, tensor=4), H100, K) == data + more
    assert overhead_bytes(Layout(num_devices=16, tensor=4), H100, K) == data + 2 * more  # and the network
    experts = overhead_bytes(Layout(num_devices=8, expert=4), H100, K)
    assert experts == data + more + K.memory.expert_buffer_bytes


# Other phases.


def test_a_trainer_leaves_what_it_does_not_move_away() -> None:
    layout, states = Layout(num_devices=8, shards=3), 8_030_261_248 / 8
    t = training(layout=layout, weight_bytes=4.0, gradient_bytes=4.0, has_master=False)
    terms = resident_memory(t, H100, K).terms
    assert (terms["weights"], terms["optimizer"]) == (4 * states, 8 * states)
    assert "gradients" not in terms
    gone = Offload(params_between_phases=True, optimizer_between_phases=True)
    assert set(resident_memory(replace(t, offload=gone), H100, K).terms) == {"overhead"}
    fixed = replace(t, family="deepspeed")
    assert resident_memory(fixed, H100, K).terms["gradients"] == 4 * states
    moved = replace(fixed, offload=Offload(params_between_phases=True))
    assert "gradients" not in resident_memory(moved, H100, K).terms


def frozen(**changes: object) -> FrozenModel:
    """Return a reference of Llama 3.1 8B over eight devices."""
    fields: dict[str, object] = {"layout": Layout(num_devices=8, shards=3), **changes}
    return FrozenModel(role="reference", model=shape_of("llama-3.1-8b"), **fields)  # type: ignore[arg-type]


def test_a_reference_keeps_its_shard_or_nothing() -> None:
    assert frozen_memory(frozen(), H100, K).terms["weights"] == 2 * 8_030_261_248 / 8
    assert frozen_memory(frozen(layout=Layout(num_devices=8)), H100, K).terms["weights"] == 2 * 8_030_261_248
    assert frozen_memory(frozen(is_offloaded=True), H100, K).total == 0
    own = frozen_memory(frozen(is_offloaded=True, pool="reference"), H100, K)
    assert own.total == overhead_bytes(Layout(num_devices=8), H100, K)


def test_flat_parameters_have_gradients_as_a_whole_where_adapters_alone_are_trained() -> None:
    adapted = training(layout=Layout(num_devices=2, shards=3), method="lora", lora_rank=8)
    flat = replace(adapted, has_flat_gradients=True)
    kept = replace(flat, keeps_gradients=True, num_micro_batches=2)

    def gradients(t: Training) -> float:
        (stage,) = stages_of(t.model, t.layout)
        return states_of(t, stage).gradients

    assert gradients(adapted) < 2**27
    assert gradients(flat) == 2 * 8_030_261_248 / 2
    assert gradients(kept) == 2 * 8_030_261_248


def test_experts_that_no_other_rank_holds_are_used_where_they_are() -> None:
    layout = Layout(num_devices=8, shards=3, expert=8)
    alone = training("qwen3-30b-a3b", layout, keeps_gradients=True, num_micro_batches=2)
    (stage,) = stages_of(alone.model, layout)
    layer, share = alone.model.layers[0], stage_share(stage, alone.model, layout)
    dense = layer.attention + layer.mlp + layer.replicated
    assert layer_share(layer, layout).experts == layer.experts / 8
    for t, whole in (
        (alone, dense),
        (replace(alone, weight_bytes=4.0), dense + layer.experts / 8),  # they are cast
        (replace(alone, layout=replace(layout, expert=4)), dense + layer.experts / 4),  # two ranks divide them
    ):
        assert gathered_share(layer_share(t.model.layers[0], t.layout), t) == whole
    # What is gathered adds up its gradients whole and in fp32, experts do where they are.
    by_tensor = replace(alone, is_sharded_by_tensor=True)
    assert states_of(by_tensor, stage).gradients == pytest.approx(4 * share.dense + 2 * share.experts)


def test_weights_that_stay_whole_after_the_forward_pass_are_given_up_layer_by_layer() -> None:
    t = training(layout=Layout(num_devices=8, shards=3), resharded=False)
    (stage,) = stages_of(t.model, t.layout)
    passing = transients_of(t, stage, states_of(t, stage), K)
    unit, embedding = 218_112_000, 128_256 * 4096
    assert passing.gathered == passing.gathered_at_loss == 2 * 8_030_261_248
    assert passing.gathered_first == 2 * (2 * unit + embedding)


def test_ends_that_are_units_of_their_own_are_gathered_one_at_a_time() -> None:
    whole = training(layout=Layout(num_devices=8, shards=3), checkpointing="full")
    (stage,) = stages_of(whole.model, whole.layout)
    unit, ends = 218_112_000, 128_256 * 4096

    def gathered(t: Training) -> tuple[float, float]:
        passing = transients_of(t, stage, states_of(t, stage), K)
        return passing.gathered, passing.gathered_at_loss

    assert gathered(whole) == (2 * (2 * unit + 2 * ends + 4096), 2 * (unit + 2 * ends + 4096))
    assert gathered(replace(whole, has_sharded_ends=True)) == (2 * 2 * unit, 2 * (unit + ends + 4096))


def test_scoring_holds_weights_and_log_probabilities_of_all_tokens() -> None:
    def score(
        tokens: int, has_head: bool, head: Head = "unfused", layout: Layout | None = None, chunk: int = 0
    ) -> dict[str, int]:
        memory = scoring_memory(
            shape_of("llama-3.1-8b"),
            layout or Layout(num_devices=8, shards=3),
            weight_bytes=2.0,
            element_bytes=2.0,
            tokens=tokens,
            has_head=has_head,
            head=head,
            head_chunk=chunk,
            accelerator=H100,
            constants=K,
        )
        return dict(memory.terms)  # type: ignore[arg-type]

    gathered = 2 * (2 * 218_112_000 + 2 * 128_256 * 4096)
    found = score(4096, True)
    assert found["weights"] == 2 * 8_030_261_248 / 8 + gathered
    assert found["logits"] == K.memory.logits_forward * 4096 * 128_256
    assert found["activations"] == 2 * 4096 * (2 * 4096 + 3 * 14336)
    assert "logits" not in score(4096, False)
    divided = score(4096, True, "parallel", Layout(num_devices=2, tensor=2))
    assert divided["logits"] == 6 * 4096 * 128_256 / 2
    assert score(4096, True, "inplace")["logits"] == 6 * 4096 * 128_256
    assert score(4096, True, "chunked", chunk=512)["logits"] == K.memory.logits_forward * 512 * 128_256


def test_a_sync_holds_a_bucket_or_the_largest_unit() -> None:
    t = training(layout=Layout(num_devices=8, shards=3), offload=Offload(optimizer_between_phases=True))
    shard, unit = 2 * 8_030_261_248 / 8, 2 * (128_256 * 4096 + 4096)
    twice = 2 * shard  # FSDP's state dict is a copy of the shards
    assert sync_memory(t, H100, K).terms["weights"] == twice + unit
    assert sync_memory(t, H100, K, bucket_bytes=2**31).terms["weights"] == twice + 2**31
    fp32 = training(layout=t.layout, weight_bytes=4.0, gradient_bytes=4.0, has_master=False)
    assert sync_memory(fp32, H100, K).terms["weights"] == 2 * twice + 2 * unit  # gathered as it is kept
    by_tensor = replace(fp32, is_sharded_by_tensor=True)
    assert sync_memory(by_tensor, H100, K).terms["weights"] == twice + 2 * unit  # its state dict is no copy
    adapted = training(layout=t.layout, method="lora", lora_rank=8)
    assert sync_memory(adapted, H100, K).terms["weights"] < twice + unit
    assert "optimizer" not in sync_memory(t, H100, K).terms
    assert checkpoint_memory(t, H100, K).terms["weights"] == shard + unit
    assert load_memory(t, H100, K).terms["weights"] == shard + unit


def test_a_model_that_is_sharded_after_it_was_loaded_is_whole_on_every_device_before_its_masters_are_made() -> None:
    # DeepSpeed, runtime/engine.py, _configure_distributed_model: what zero.Init did not make goes to the device whole
    eight, two = (training(layout=Layout(num_devices=num, shards=3), family="deepspeed") for num in (8, 2))
    assert load_memory(replace(eight, loads_whole=True), H100, K).terms["weights"] == 2 * 8_030_261_248
    assert "optimizer" not in load_memory(replace(eight, loads_whole=True), H100, K).terms
    assert load_memory(replace(two, loads_whole=True), H100, K) == load_memory(two, H100, K)  # masters take more
    adapters = replace(two, method="lora", lora_rank=8, loads_whole=True)  # of 20,971,520 elements
    assert load_memory(adapters, H100, K).terms["weights"] == 2 * (8_030_261_248 + 20_971_520)
