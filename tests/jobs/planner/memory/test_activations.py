"""What a forward pass keeps and what the loss takes, against hand-made counts."""

from dataclasses import replace

import pytest

from jobs.planner.constant import shipped_constants
from jobs.planner.job import Layout, Offload
from jobs.planner.memory.activations import LayerActivations, activations_of, kept_elements, saved_elements
from jobs.planner.memory.logits import logit_gaps, training_logits
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import read_shape
from tests.jobs.planner.trainings import only_stage, training

K = shipped_constants()
GIB = 2**30


# Activations: elements that were counted with autograd hooks on Transformers' own modules, in units of the hidden size.


@pytest.mark.parametrize(
    ("model", "measured"),
    [
        ("llama-3.1-8b", 24.5),
        ("qwen2.5-0.5b", 32.0),
        ("qwen2.5-7b", 31.5),
        ("qwen3-0.6b", 35.1),
        ("qwen3-4b", 33.3),
        ("qwen3-8b", 26.3),
        ("gemma-2-2b", 36.7),
        ("gemma-3-1b", 48.7),
        ("qwen3-30b-a3b", 47.5),
    ],
)
def test_transformers_modules_save_what_hooks_counted(model: str, measured: float) -> None:
    t = training(model, kernels="eager", attention="flash2", checkpointing="none")
    assert saved_elements(t.model.layers[0], t).total / t.model.hidden == pytest.approx(measured, rel=0.025)


def test_kernels_save_less_the_more_they_fuse() -> None:
    h, q, kv, f = 4096, 4096, 1024, 14336
    layer = shape_of("llama-3.1-8b").layers[0]
    for kernels, elements in (
        ("eager", 8 * h + 2 * q + 2 * kv + 4 * f),
        ("fused", 4 * h + 2 * q + 2 * kv + 4 * f),
        ("liger", 4 * h + 2 * q + 2 * kv + 3 * f),
        ("compiled", 4 * h + 2 * q + 2 * kv + 3 * f),
        ("megatron", 4 * h + 3 * q + 3 * kv + 3 * f),
    ):
        assert saved_elements(layer, training(kernels=kernels)).total == elements
    sdpa = saved_elements(layer, training(kernels="fused", attention="sdpa"))
    assert sdpa.total == 4 * h + 4 * q + 4 * f  # keys and values as many as queries
    unmasked = saved_elements(layer, training(kernels="fused", attention="sdpa", has_grouped_attention=True))
    assert unmasked.total == 4 * h + 2 * q + 2 * kv + 4 * f


def test_latent_attention_saves_compressed_vectors_and_what_heads_see() -> None:
    t = training("deepseek-v3", kernels="megatron")
    h, heads, query_rank, kv_rank = 7168, 128, 1536, 512
    attention = 2 * (query_rank + kv_rank) + 64 + 2 * heads * 192 + heads * (128 + 128) + heads * 128
    dense, routed = t.model.layers[0], t.model.layers[-1]
    assert saved_elements(dense, t) == LayerActivations(hidden=4 * h, inner=attention + 3 * 18432, routed=0)
    assert saved_elements(routed, t) == LayerActivations(
        hidden=4 * h, inner=attention + 3 * 2048 + 256, routed=8 * (h + 3 * 2048)
    )


def test_a_mixture_under_kernels_keeps_no_results_of_experts_and_norms_of_heads_what_is_there_anyway() -> None:
    # Megatron-LM 2659630721, core/fusions/fused_bias_swiglu.py: WeightedSwiGLUFunction saves the gate and up with the
    # weights of tokens, so that the way back (unpermute without probabilities) has nothing to keep; Qwen3-30B-A3B
    h, q, kv, f, experts = 2048, 4096, 512, 768, 128
    layer = shape_of("qwen3-30b-a3b").layers[0]
    found = saved_elements(layer, training("qwen3-30b-a3b", kernels="megatron"))
    assert found == LayerActivations(hidden=4 * h, inner=3 * q + 3 * kv + experts, routed=8 * (h + 3 * f))
    fused = saved_elements(layer, training("qwen3-30b-a3b", kernels="fused"))
    assert fused == LayerActivations(hidden=4 * h, inner=3 * q + 3 * kv + experts, routed=8 * (2 * h + 4 * f))


def test_checkpointing_keeps_inputs_or_every_second_product() -> None:
    h, q, kv, f = 4096, 4096, 1024, 14336
    layer = shape_of("llama-3.1-8b").layers[0]
    assert kept_elements(layer, training(checkpointing="full")).total == h
    assert kept_elements(layer, training(checkpointing="selective")).total == 2 * h + 2 * q + kv + f
    # AOTAutograd's partition under the same policy (torch 2.13) drops the output of the last matrix, which nothing in
    # the backward pass needs: saved are h, q, kv, attention's output and f
    compiled = training(checkpointing="selective", kernels="compiled")
    assert kept_elements(layer, compiled).total == h + 2 * q + kv + f
    core = training(checkpointing="selective", kernels="megatron")
    assert kept_elements(layer, core) == saved_elements(layer, core)
    routed = training("qwen3-30b-a3b", checkpointing="selective")  # 32 heads, 4 of keys, of 128; no shared expert
    assert kept_elements(routed.model.layers[0], routed).total == 2 * 2048 + 2 * 4096 + 512


def test_full_checkpointing_keeps_two_bytes_of_each_layer_and_works_on_one() -> None:
    h, q, kv, f, tokens = 4096, 4096, 1024, 14336, 8192
    t = training(checkpointing="full", kernels="fused", sequence=tokens)
    found = activations_of(t, only_stage(t), K, width=2.0)
    assert found.stored == 2 * tokens * (32 * h + 2 * h)  # and the final norm with what goes into the head
    assert found.working == 2 * tokens * (4 * h + 2 * q + 2 * kv + 4 * f + 3 * f + h - h)


def test_sequence_parallelism_divides_all_and_tensor_parallelism_without_it_leaves_hidden_states() -> None:
    layer = shape_of("llama-3.1-8b").layers[0]
    whole = saved_elements(layer, training(kernels="megatron"))
    found = {}
    for has in (True, False):
        layout = Layout(num_devices=2, tensor=2, has_sequence_parallel=has)
        t = training(layout=layout, kernels="megatron", family="megatron", checkpointing="none", sequence=1024)
        ends = (2 / 2 + 3 if has else 2) * 4096
        found[has] = activations_of(t, only_stage(t), K, width=2.0).stored / (2 * 1024) - ends
    assert found[True] == pytest.approx(32 * whole.total / 2)
    assert found[False] == pytest.approx(32 * (whole.hidden + whole.inner / 2))


def test_context_and_ulysses_ranks_hold_their_part_of_the_tokens_and_pairs_hold_both_sides() -> None:
    assert training(layout=Layout(num_devices=8, context=4, ulysses=2), sequence=8192).tokens == 1024
    assert training(objective="pairs", micro_batch=3, sequence=100).tokens == 600


def test_a_ring_gathers_keys_and_values_of_the_whole_row_in_groups_where_attention_takes_them_so() -> None:
    # PyTorch, distributed/tensor/experimental/_context_parallel/_attention.py, _AllGatherRotater: gathers keys and
    # values as attention was handed them; Llama 3.1 8B has 8 heads of them for 32 of queries, each of 128. What the MLP
    # saved is gone by then
    t = training(layout=Layout(num_devices=16, context=16, shards=3), attention="flash2", sequence=32_768)
    whole, grouped = (
        activations_of(replace(t, has_grouped_attention=has), only_stage(t), K, width=2.0) for has in (False, True)
    )
    assert t.tokens == 2048
    assert whole.stored == grouped.stored
    h, q, kv, f = 4096, 4096, 1024, 14_336
    before_mlp, ring = 4 * h + 2 * q + 2 * kv, (2 * 16 + 2 + 4 + 4 + 4 + 2) * q
    assert whole.working == 2 * 2048 * (before_mlp + ring + (1 + 2 + 1) * q + h - h)
    assert grouped.working == 2 * 2048 * (before_mlp + 4 * h + 4 * f + 3 * f + h - h)


def test_a_compiled_layer_keeps_what_goes_into_both_halves_of_it() -> None:
    # Counted in what AOTAutograd's min-cut partition (torch 2.13) saves of a layer of Llama's kind
    shape = shape_of("llama-3.1-8b").layers[0]
    compiled, fused = (saved_elements(shape, training(kernels=kernels)) for kernels in ("compiled", "fused"))
    assert compiled.hidden == fused.hidden == 4 * 4096
    frozen = [saved_elements(shape, training(kernels=k, method="lora", lora_rank=8)) for k in ("compiled", "fused")]
    assert frozen[1].hidden - frozen[0].hidden == 4096


def test_a_model_that_transformers_has_no_fused_attention_for_keeps_scores_whatever_is_asked_for() -> None:
    # Transformers, models/bloom/modeling_bloom.py: ALiBi is added to the scores, and there is no _supports_sdpa
    config = {"model_type": "bloom", "n_layer": 2, "hidden_size": 1024, "n_head": 16, "vocab_size": 250_880}
    asked = replace(training(attention="flash2", sequence=4096), model=read_shape(config))
    assert asked.attends_by == "eager"
    assert replace(asked, model=training().model).attends_by == "flash2"
    assert activations_of(asked, only_stage(asked), K, width=2.0) == activations_of(
        replace(asked, attention="eager"), only_stage(asked), K, width=2.0
    )


def test_eager_attention_keeps_the_scores_of_every_head() -> None:
    t = training(attention="eager", kernels="eager", checkpointing="none", sequence=4096)
    more = activations_of(t, only_stage(t), K, width=2.0).stored
    less = activations_of(replace(t, attention="sdpa"), only_stage(t), K, width=2.0).stored
    assert more - less == 6 * 32 * 4096 * 4096 * 32  # bytes, heads, rows of scores, layers


def test_scores_are_differentiated_in_fp32_when_what_the_mlp_saved_is_gone() -> None:
    # Live bytes of tensors counted under a TorchDispatchMode (torch 2.13) over the operations of Transformers'
    # eager_attention_forward and their backward pass, in fp32 and in bf16: the softmax, its gradient and that of what
    # went into it, each in fp32
    for compute in ("fp32", "bf16"):
        t = training(attention="eager", kernels="eager", compute=compute, sequence=16_384)
        working = activations_of(t, only_stage(t), K, width=2.0).working
        h, q, kv = 4096, 4096, 1024
        beside = 4 * h + (2 + 2) * q + (2 * q + 2 * kv)  # before the MLP, of attention (heads repeated), gradients
        assert working == pytest.approx(t.tokens * (12 * 32 * 16_384 + 2 * beside), rel=1e-9)


def test_offloaded_activations_leave_a_few_layers() -> None:
    t = training(offload=Offload(activations=True))
    kept = activations_of(t, only_stage(t), K, width=2.0).stored
    assert kept == 2 * t.tokens * 4096 * (K.memory.offloaded_layers + 4)


def test_busy_expert_ranks_hold_more_tokens_than_the_mean() -> None:
    alone = training("qwen3-30b-a3b", Layout(num_devices=8), checkpointing="none")
    t = replace(alone, layout=Layout(num_devices=8, expert=8))
    routed = 8 * (2 * 2048 + 4 * 768) * 48 * 2 * t.tokens
    more = (
        activations_of(t, only_stage(t), K, width=2.0).stored
        - activations_of(alone, only_stage(t), K, width=2.0).stored
    )
    assert more == pytest.approx(routed * (K.memory.expert_imbalance - 1))


# Logits.


def test_logits_of_16384_tokens_take_37_gib_more_than_a_small_model() -> None:
    t = training("qwen3-0.6b", head="unfused", sequence=16384)
    assert training_logits(t, K) == 12 * 16384 * 151_936
    assert logit_gaps(t, K) == 4 * 16384 * 151_936
    assert (training_logits(t, K) + logit_gaps(t, K)) / GIB == pytest.approx(37.1, abs=0.05)
    assert logit_gaps(replace(t, head="inplace"), K) == logit_gaps(replace(t, objective="scalar"), K) == 0


def test_liger_takes_chunks_as_wide_as_the_hidden_state_of_all_tokens() -> None:
    t = training("llama-3.1-8b", head="chunked", kernels="liger", sequence=8192, micro_batch=4)
    chunk = 1024  # 128,256 / 4,096 is 32 rounded up; 32,768 tokens / 32
    assert training_logits(t, K) == K.memory.logits_liger * chunk * 128_256
    assert training_logits(replace(t, sequence=8193), K) == 2 * training_logits(t, K)
    assert training_logits(replace(t, head_chunk=512), K) == K.memory.logits_liger * 512 * 128_256


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"head": "compiled"}, K.memory.logits_compiled * 4096 * 128_256),
        ({"head": "parallel"}, 6 * 4096 * 128_256),
        ({"head": "parallel", "layout": Layout(num_devices=4, tensor=4)}, 6 * 4096 * 128_256 / 4),
        ({"head": "unfused", "has_entropy": True}, (12 + 7) * 4096 * 128_256),
        # PyTorch's loss over shards has the exponential and a sum beside them.
        ({"head": "unfused", "family": "fsdp", "layout": Layout(num_devices=4, tensor=4)}, 16 * 4096 * 128_256 / 4),
        ({"head": "inplace"}, 8 * 4096 * 128_256),
        ({"head": "inplace", "has_entropy": True}, 8 * 4096 * 128_256),
        ({"head": "chunked", "head_chunk": 1024}, 14 * 1024 * 128_256),
        ({"head": "chunked", "head_chunks": 8}, 14 * 512 * 128_256),
        ({"head": "chunked", "head_chunk": 9000}, 14 * 4096 * 128_256),
        ({"head": "chunked", "head_chunk": 128, "keeps_logits": True}, (3 * 4096 + 14 * 128) * 128_256),
        (
            {"head": "chunked", "head_chunks": 8, "keeps_logits": True, "kernels": "compiled"},
            (2 * 4096 + 4 * 512) * 128_256,
        ),
        ({"head": "chunked", "head_chunk": 2048, "head_axis": "vocabulary"}, 22 * 4096 * 2048),
        ({"head": "unfused", "objective": "scalar"}, 0),
        ({"head": "unfused", "objective": "pairs"}, 2 * 12 * 4096 * 128_256),
        ({"head": "half"}, 8 * 4096 * 128_256),
    ],
)
def test_bytes_of_logits_by_head(changes: dict[str, object], expected: float) -> None:
    assert training_logits(training(sequence=4096, **changes), K) == pytest.approx(expected)  # type: ignore[arg-type]
