"""What must hold of any training's memory, whatever the numbers: more of something never needs less, and so on."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Training
from jobs.planner.memory.activations import activations_of
from jobs.planner.memory.lora import adapter_parameters
from jobs.planner.memory.phases import (
    checkpoint_memory,
    counted,
    least_update_bytes,
    load_memory,
    resident_memory,
    sync_memory,
    update_memory,
)
from jobs.planner.memory.precision import compute_bytes
from jobs.planner.memory.stages import stages_of, telling_stages
from jobs.planner.memory.states import states_of
from jobs.planner.result import TERMS
from tests.jobs.planner.hardware import H100
from tests.jobs.planner.trainings import trainings

K = shipped_constants()
ROUNDING = 64  # bytes: terms are rounded one by one, and products of shares in another order


def peak(t: Training) -> int:
    """Return what the allocator holds at most: without the process's own, which grows with the number of groups."""
    return counted(update_memory(t, H100, K), t, "one_stream", H100, K)


def activations(t: Training) -> tuple[float, float]:
    """Return the largest kept activations of a stage, and the largest with those of a layer at work."""
    found = [activations_of(t, s, K, width=compute_bytes(t)) for s in stages_of(t.model, t.layout, t.num_micro_batches)]
    return max(each.stored for each in found), max(each.stored + each.working for each in found)


def states(t: Training) -> float:
    """Return the states of the fullest stage."""
    found = [states_of(t, stage) for stage in stages_of(t.model, t.layout)]
    return max(each.weights + each.gradients + each.optimizer for each in found)


@given(trainings())
def test_every_phase_has_terms_that_are_known_and_not_negative(t: Training) -> None:
    for memory in (
        update_memory(t, H100, K),
        resident_memory(t, H100, K),
        load_memory(t, H100, K),
        sync_memory(t, H100, K),
        checkpoint_memory(t, H100, K),
    ):
        assert set(memory.terms) <= set(TERMS)
        assert all(size > 0 for size in memory.terms.values())
        assert counted(memory, t, "allocated", H100, K) <= counted(memory, t, "one_stream", H100, K)
        assert counted(memory, t, "one_stream", H100, K) <= counted(memory, t, "reserved", H100, K)
        assert counted(memory, t, "one_stream", H100, K) < counted(memory, t, "device", H100, K)


@given(trainings(), st.integers(2, 4))
def test_more_tokens_never_need_less(t: Training, factor: int) -> None:
    assert peak(replace(t, sequence=t.sequence * factor)) >= peak(t)
    assert peak(replace(t, micro_batch=t.micro_batch * factor)) >= peak(t)
    assert peak(replace(t, num_micro_batches=t.num_micro_batches * factor)) >= peak(t)


@given(trainings())
def test_checkpointing_never_keeps_more(t: Training) -> None:
    none, selective, full = (activations(replace(t, checkpointing=how)) for how in ("none", "selective", "full"))
    for kept, less in ((none, selective), (selective, full)):
        assert kept[0] >= less[0] - ROUNDING
        assert kept[1] >= less[1] - ROUNDING


@given(trainings(), st.sampled_from([2, 4]))
def test_more_devices_never_need_more_of_each(t: Training, factor: int) -> None:
    layout = t.layout
    many = replace(t, layout=replace(layout, num_devices=layout.num_devices * factor))
    if (t.family == "plain" and layout.data == 1) or layout.num_devices == 1:
        return  # one device alone gathers no weights and needs no buckets to reduce gradients
    assert peak(many) <= peak(t) + ROUNDING


@given(trainings())
def test_a_higher_stage_of_sharding_never_keeps_more(t: Training) -> None:
    if t.family == "deepspeed" and t.offload.optimizer and t.gradient_bytes > t.weight_bytes:
        return  # ZeRO-2 alone keeps its wider sums on the device (states_of)
    kept = [states(replace(t, keeps_gradients=False, layout=replace(t.layout, shards=s))) for s in range(4)]
    assert all(high <= low + ROUNDING for low, high in pairwise(kept))


@given(trainings())
def test_offload_never_needs_more_of_the_device(t: Training) -> None:
    offload = t.offload
    for field, nothing in (("optimizer", 0.0), ("params", False), ("activations", False)):
        without = replace(t, offload=replace(offload, **{field: nothing}))  # type: ignore[arg-type]
        assert peak(t) <= peak(without) + ROUNDING
    for field in ("params_between_phases", "optimizer_between_phases"):
        without = replace(t, offload=replace(offload, **{field: False}))
        assert resident_memory(t, H100, K).total <= resident_memory(without, H100, K).total + ROUNDING


@given(trainings())
def test_adapters_never_keep_more_than_training_everything(t: Training) -> None:
    same = replace(t, method="lora", base_bytes=t.weight_bytes, lora_rank=8, optimizer="adam", keeps_gradients=False)
    adapters = adapter_parameters(same) * t.weight_bytes  # they are there beside the base
    assert states(same) <= states(replace(same, method="full")) + adapters + ROUNDING
    assert states(replace(same, method="qlora", base_bytes=0.5)) <= states(same) + ROUNDING


@given(trainings())
def test_wider_types_never_need_less(t: Training) -> None:
    narrow = replace(t, weight_bytes=2.0, gradient_bytes=2.0, base_bytes=min(t.base_bytes, 2.0), compute="bf16")
    assert states(replace(narrow, weight_bytes=4.0, gradient_bytes=4.0, base_bytes=4.0)) >= states(narrow)
    if t.attends_by != "eager":  # whose scores are in fp32 in either, and cast for 16 bits
        assert activations(replace(narrow, compute="fp32")) >= activations(narrow)
    assert states(replace(t, has_master=True)) >= states(replace(t, has_master=False))


@given(trainings())
def test_tensor_parallelism_divides_what_it_divides(t: Training) -> None:
    layout = t.layout
    alone = replace(t, layout=replace(layout, num_devices=layout.num_devices // layout.tensor, tensor=1))
    wide = replace(t, layout=replace(layout, num_devices=2 * layout.num_devices // layout.tensor, tensor=2))
    experts = sum(layer.experts for layer in t.model.layers)
    if t.family == "plain" and layout.data == 1:
        return
    # Norms, routers and MLA's down-projections are whole on both, and experts divide by other sizes.
    whole = experts + sum(layer.replicated for layer in t.model.layers) + t.model.final
    assert states(wide) <= states(alone) + ROUNDING
    assert states(wide) >= states(alone) / 2 - ROUNDING
    if not experts:
        assert states(wide) <= states(alone) / 2 + 24 * whole + ROUNDING


@given(trainings())
def test_eager_attention_never_needs_less_than_flash_attention(t: Training) -> None:
    assert activations(replace(t, attention="eager")) >= activations(replace(t, attention="flash2"))


@given(trainings())
def test_a_chunked_head_never_needs_more_than_a_whole_one(t: Training) -> None:
    whole = replace(t, head="unfused", has_entropy=False, method="lora")
    chunked = replace(whole, head="chunked", head_axis="tokens", keeps_logits=False)
    gradient = 2 * t.tokens * t.model.hidden * 2  # of what goes into the head, in up to fp32
    assert peak(chunked) <= (peak(whole) + gradient) * K.memory.allocator + ROUNDING


@given(trainings())
@settings(max_examples=50, deadline=None)
def test_what_is_held_or_kept_wider_never_needs_less(t: Training) -> None:
    wide = replace(t, weight_bytes=4.0, base_bytes=0.5625 if t.method == "qlora" else 4.0, gradient_bytes=4.0)
    assert peak(replace(wide, mixed_precision="pure")) <= peak(wide) + ROUNDING
    assert peak(wide) <= peak(replace(wide, mixed_precision="autocast")) + ROUNDING
    assert peak(wide) <= peak(replace(wide, has_varied_lengths=True)) + ROUNDING
    assert peak(wide) <= peak(replace(wide, ends_bytes=4.0)) + ROUNDING
    assert sum(activations(wide)) <= sum(activations(replace(wide, is_dora=True))) + ROUNDING
    assert sum(activations(wide)) <= sum(activations(replace(wide, has_adapter_dropout=True))) + ROUNDING
    assert sum(activations(wide)) <= sum(activations(replace(wide, keeps_frozen_inputs=True))) + ROUNDING


@given(trainings())
def test_a_telling_stage_stands_for_every_stage_that_holds_no_more(t: Training) -> None:
    telling = telling_stages(t.model, t.layout, t.num_micro_batches)
    for stage in stages_of(t.model, t.layout, t.num_micro_batches):
        (alike,) = [each for each in telling if replace(each, index=stage.index, in_flight=stage.in_flight) == stage]
        assert alike.in_flight >= stage.in_flight
        assert alike.index <= stage.index


@given(trainings())
def test_an_update_never_gets_below_its_least(t: Training) -> None:
    assert least_update_bytes(t, H100, K) <= update_memory(t, H100, K).total + ROUNDING
