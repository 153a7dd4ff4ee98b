"""Memory of training by phase against numbers worked out by hand and published ones."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import FrozenModel, Head, Layout, Offload, Training
from jobs.planner.memory.phases import (
    checkpoint_memory,
    counted,
    frozen_memory,
    load_memory,
    overhead_bytes,
    resident_memory,
    scoring_memory,
    sync_memory,
    update_memory,
)
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import read_shape
from tests.jobs.planner.hardware import H100
from tests.jobs.planner.trainings import training

K = shipped_constants()
GIB = 2**30


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
    assert counted(memory, t, "allocated", H100, K) == pytest.approx(by_hand, abs=16)
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
    assert counted(memory, t, "allocated", H100, K) == pytest.approx(states, abs=8)
    assert "activations" not in memory.terms


def test_gradients_of_a_single_micro_batch_are_not_there_yet_when_the_loss_is_computed() -> None:
    one = training(sequence=65536, head="unfused", layout=Layout(num_devices=8, shards=3))
    two = replace(one, num_micro_batches=2)
    more = update_memory(two, H100, K).terms["gradients"] - update_memory(one, H100, K).terms.get("gradients", 0)
    assert more == pytest.approx(2 * 8_030_261_248 / 8, abs=1)


def test_what_a_source_counts() -> None:
    t = training(layout=Layout(num_devices=8, shards=3))
    memory = update_memory(t, H100, K)
    tensors = counted(memory, t, "allocated", H100, K)
    assert counted(memory, t, "one_stream", H100, K) == pytest.approx(tensors * K.memory.allocator, abs=8)
    assert counted(memory, t, "device", H100, K) == memory.total
    assert memory.total - counted(memory, t, "one_stream", H100, K) == overhead_bytes(t.layout, H100, K)


def test_fsdp_reserves_the_shards_of_gradients_that_were_beside_what_a_step_needs() -> None:
    """Its fullest moment is the loss, where gradients of the last step are free in the stream that reduced them."""
    parameters, layout = 8_030_261_248, Layout(num_devices=8, shards=3)
    t = training(layout=layout, gradient_bytes=4.0, micro_batch=2, sequence=8192, checkpointing="full")

    def idle(t: Training) -> float:
        memory = update_memory(t, H100, K)
        return counted(memory, t, "reserved", H100, K) - counted(memory, t, "one_stream", H100, K)

    terms = update_memory(t, H100, K).terms
    assert max(terms, key=lambda term: terms[term]) == "logits"
    assert idle(t) == pytest.approx(4 * parameters / 8, rel=1e-3)
    # Of several micro-batches they are in use, and other families and one device reduce none in a stream of its own.
    assert idle(replace(t, num_micro_batches=2)) == 0
    assert idle(replace(t, family="deepspeed")) == 0
    assert idle(replace(t, layout=Layout(shards=3))) == 0
    # Where the step of the optimizer is fullest, they are there.
    assert idle(replace(t, micro_batch=1, sequence=128)) == 0


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
