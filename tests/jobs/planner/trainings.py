"""Trainings for tests of memory: changed from a plain one, and any that hypothesis makes."""

from hypothesis import strategies as st

from jobs.planner.job import Layout, Offload, Training
from jobs.planner.memory.stages import Stage, stages_of
from jobs.planner.memory.states import States, states_of
from jobs.planner.shapes.known import shape_of

MODELS = ("qwen3-0.6b", "llama-3.1-8b", "gemma-2-2b", "qwen3-30b-a3b", "deepseek-v2-lite")


def training(model: str = "llama-3.1-8b", layout: Layout | None = None, **changes: object) -> Training:
    """Return a training of a known model under FSDP on one device, with what is to be changed of it."""
    fields = {"family": "fsdp", **changes}
    return Training(model=shape_of(model), layout=layout or Layout(shards=3), **fields)  # type: ignore[arg-type]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Return a layout that suits every one of MODELS."""
    tensor = draw(st.sampled_from([1, 2]))
    pipeline = draw(st.sampled_from([1, 2, 3]))
    context = draw(st.sampled_from([1, 2]))
    data = draw(st.sampled_from([1, 2, 4, 16]))
    return Layout(
        num_devices=tensor * pipeline * context * data,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        shards=draw(st.sampled_from([0, 1, 2, 3])),
        has_sequence_parallel=draw(st.booleans()),
    )


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """Return a training of one of MODELS: any family, method, kernels, head and offload."""
    family = draw(st.sampled_from(["plain", "deepspeed", "fsdp", "megatron"]))
    kernels = "megatron" if family == "megatron" else draw(st.sampled_from(["eager", "fused", "liger", "compiled"]))
    method = draw(st.sampled_from(["full", "lora", "qlora"]))
    return training(
        draw(st.sampled_from(MODELS)),
        draw(layouts()),
        family=family,
        kernels=kernels,
        method=method,
        lora_rank=draw(st.sampled_from([8, 64])),
        weight_bytes=draw(st.sampled_from([2.0, 4.0])),
        base_bytes=0.5625 if method == "qlora" else draw(st.sampled_from([2.0, 4.0])),
        gradient_bytes=draw(st.sampled_from([2.0, 4.0])),
        optimizer=draw(st.sampled_from(["adam", "adam_bf16", "adam_8bit", "muon", "sgd"])),
        has_master=draw(st.booleans()),
        has_fused_optimizer=draw(st.booleans()),
        optimizer_in_backward=draw(st.booleans()),
        attention=draw(st.sampled_from(["eager", "sdpa", "flash2"])),
        checkpointing=draw(st.sampled_from(["none", "selective", "full"])),
        head=draw(st.sampled_from(["unfused", "compiled", "chunked", "parallel"])),
        head_chunk=draw(st.sampled_from([0, 1024])),
        head_axis=draw(st.sampled_from(["tokens", "vocabulary"])),
        keeps_logits=draw(st.booleans()),
        has_entropy=draw(st.booleans()),
        objective=draw(st.sampled_from(["lm", "pairs", "scalar"])),
        micro_batch=draw(st.sampled_from([1, 3])),
        sequence=draw(st.sampled_from([512, 4096, 32768])),
        num_micro_batches=draw(st.sampled_from([1, 2, 8])),
        keeps_gradients=draw(st.booleans()),
        resharded=draw(st.booleans()),
        loads_whole=draw(st.booleans()),
        offload=draw(offloads()),
    )


@st.composite
def offloads(draw: st.DrawFn) -> Offload:
    """Return any offload."""
    return Offload(
        optimizer=draw(st.sampled_from([0.0, 0.5, 1.0])),
        params=draw(st.booleans()),
        activations=draw(st.booleans()),
        params_between_phases=draw(st.booleans()),
        optimizer_between_phases=draw(st.booleans()),
    )


def only_stage(t: Training) -> Stage:
    """Return the stage of a training without a pipeline."""
    (stage,) = stages_of(t.model, t.layout, t.num_micro_batches)
    return stage


def held(t: Training) -> States:
    """Return the states of a training without a pipeline."""
    return states_of(t, only_stage(t))
