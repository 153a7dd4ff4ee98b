"""What comes and goes within a step, against numbers worked out by hand."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Layout, Training
from jobs.planner.memory.activations import activations_of
from jobs.planner.memory.logits import scoring_logits, training_logits
from jobs.planner.memory.phases import (
    _peaks,
    resident_memory,
    update_memory,
)
from jobs.planner.memory.stages import layer_share, stage_share, stages_of
from jobs.planner.memory.states import gathered_share, states_of, transients_of
from jobs.planner.shapes.known import shape_of
from tests.jobs.planner.hardware import H100
from tests.jobs.planner.trainings import held, only_stage, training

K = shipped_constants()
GIB = 2**30


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
    # bitsandbytes, functional.py optimizer_update_8bit_blockwise: one kernel for each tensor, in its place
    small = replace(t, optimizer="adam_8bit")
    assert transients_of(small, only_stage(t), held(t), K).in_step == 0


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
