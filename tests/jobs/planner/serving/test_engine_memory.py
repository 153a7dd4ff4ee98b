"""A rollout engine's memory: cases worked out by hand, what must hold for any engine, and what is refused."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.constant import shipped_constants
from jobs.planner.job import Engine
from jobs.planner.result import JobInvalid
from jobs.planner.serving.engine_memory import (
    EngineMemory,
    capture_sizes,
    engine_memory,
    has_second_runner,
    scheduler_sizes,
    starts_beside,
    validate_engine,
)
from jobs.planner.serving.engine_weights import weight_bytes
from jobs.planner.serving.kv_cache import KvCacheGroup, group_layers, stage_token_bytes, stages
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import ModelShape

ROOT = Path(__file__).parents[4]
H100, A100, H200 = (find_accelerator(name) for name in ("h100-sxm", "a100-80-sxm", "h200-sxm"))
GIB = 2**30


def engine(model: str = "qwen2.5-7b", **changes: Any) -> Engine:
    return Engine(model=shape_of(model), **changes)


def memory(model: str = "qwen2.5-7b", accelerator: Any = H100, **changes: Any) -> EngineMemory:
    return taken_by(engine(model, **changes), accelerator)


def taken_by(served: Engine, accelerator: Any = H100) -> EngineMemory:
    return engine_memory(served, accelerator, shipped_constants())


def test_a_dense_model_on_one_device_by_hand() -> None:
    taken = memory(version="0.19", utilization=0.95, max_num_seqs=256, max_batched_tokens=2048, is_compiled=True)
    # 28 layers of 28*128 queries and 2*4*128 keys and values in bf16, a block of 16 tokens
    assert taken.cache.token_bytes == 28 * 2 * 4 * 128 * 2 == 57_344
    assert taken.cache.block_bytes == 16 * 57_344
    weights = 7_615_616_512 * 2 + shape_of("qwen2.5-7b").rotary * 2
    assert taken.memory.terms["weights"] == weights
    # The sampler's 15 bytes an entry and the hidden states, against the forward of a layer
    forward, sampler = 2 * 2048 * 3 * (18_944 + 3_584), 15 * 256 * 152_064 + 2 * 2048 * 3_584
    assert sampler > forward
    budget = math.ceil(H100.usable_bytes * 0.95)
    free = budget - weights - sampler - shipped_constants().engine.non_torch_bytes_single
    assert taken.budget == budget
    assert taken.kv_tokens == int(free // (16 * 57_344)) * 16


def test_the_latent_of_mla_is_whole_on_every_device() -> None:
    assert stage_token_bytes(engine("deepseek-r1", tensor=8)) == 61 * 576 * 2 == 70_272
    assert stage_token_bytes(engine("deepseek-r1", tensor=1)) == 70_272


def test_keys_divide_down_to_one_head() -> None:
    assert [stage_token_bytes(engine(tensor=t)) for t in (1, 2, 4)] == [57_344, 28_672, 14_336]
    assert stage_token_bytes(engine("qwen2.5-72b", tensor=8)) == 327_680 // 8
    assert stage_token_bytes(engine("qwen3-30b-a3b", tensor=8)) == 98_304 // 4  # 4 heads over 8 devices: one each


def test_a_pipeline_divides_layers_and_the_ends_hold_the_vocabulary() -> None:
    served = engine("llama-3.1-8b", pipeline=4)
    shape = served.model
    assert [len(stage) for stage in stages(served)] == [8, 8, 8, 8]
    held = [weight_bytes(served, stage) for stage in range(4)]
    assert held[0] - held[1] == 2 * shape.embedding
    assert held[3] - held[1] == 2 * (shape.head + shape.final)
    assert [len(stage) for stage in stages(replace(served, pipeline=5))] == [6, 6, 7, 7, 6]


def test_what_a_checkpoint_does_not_quantize_stays_in_bf16() -> None:
    served = engine("llama-3.3-70b-fp8", tensor=2)
    shape = served.model
    matrices = sum(layer.attention + layer.mlp for layer in shape.layers)
    rest = shape.parameters - matrices - sum(layer.replicated for layer in shape.layers) - shape.final
    whole = sum(layer.replicated for layer in shape.layers) + shape.final + shape.rotary
    assert weight_bytes(served, 0) == matrices // 2 + rest * 2 // 2 + whole * 2


def test_layers_with_windows_are_grouped_as_vllm_groups_them() -> None:
    assert [len(group) for group in group_layers(shape_of("gpt-oss-20b"))] == [12, 12]
    sizes = [len(group) for group in group_layers(shape_of("gemma-3-4b"))]  # 29 with a window, 5 without
    assert sorted(sizes, reverse=True) == [5, 5, 5, 5, 5, 5, 4]
    assert [len(group) for group in group_layers(shape_of("qwen2.5-7b"))] == [28]
    assert KvCacheGroup(num_layers=5, window=1024).blocks(100_000, 16, 0) == 1023 // 16 + 2
    assert KvCacheGroup(num_layers=5, window=1024).blocks(800, 16, 0) == 51


def test_layers_that_keep_less_of_a_token_have_more_tokens_in_a_block() -> None:
    shape = shape_of("gemma-3-4b")  # 29 with a window, 5 without
    whole = next(layer for layer in shape.layers if not layer.window)
    larger = replace(whole, cache=2 * whole.cache, cache_heads=1)
    mixed = replace(shape, layers=tuple(layer if layer.window else larger for layer in shape.layers))
    per_token = 2 * whole.cache  # bytes in bf16
    usual, taken = (taken_by(replace(engine("gemma-3-4b", tensor=2), model=each)) for each in (shape, mixed))
    assert usual.cache.token_bytes == 34 * per_token // 2
    # Half of a layer with a window, whose heads are divided, and all of one without, whose one head is not
    assert taken.cache.token_bytes == 29 * per_token // 2 + 5 * 2 * per_token
    assert {(group.window, group.times) for group in taken.cache.groups} == {(0, 1), (1024, 4)}
    assert taken.cache.block_bytes == 4 * usual.cache.block_bytes
    assert taken.cache.groups[0].blocks(4096, 16, 0) in (1023 // 64 + 2, 4096 // 16)

    served = taken_by(replace(engine("gemma-3-4b", name="sglang", tensor=2), model=mixed)).cache
    share = shipped_constants().engine.sglang_window_share
    assert served.block_bytes == round(5 * 2 * per_token + share * (29 * per_token // 2))


@pytest.mark.parametrize("name", ["vllm", "sglang"])
@pytest.mark.parametrize("state", [0, 4096])
def test_a_model_that_keeps_nothing_of_a_token_has_room_for_states(name: str, state: int) -> None:
    shape = shape_of("qwen2.5-0.5b")
    layers = tuple(replace(x, cache=0, cache_heads=0, has_cache=False, state=state) for x in shape.layers)
    cache = taken_by(replace(engine("qwen2.5-0.5b", name=name), model=replace(shape, layers=layers))).cache
    assert cache.token_bytes == 0
    assert cache.longest_sequence() > 10**6
    assert cache.block_bytes == max(state * 2 * len(layers), len(layers) if name == "vllm" else 1)


def test_old_releases_sort_and_new_ones_count_graphs() -> None:
    old, middle, new = (memory(version=version).rollout_kv_bytes for version in ("0.15", "0.19", "0.21"))
    assert old < middle
    assert new < middle
    assert memory(version="0.20.0").rollout_kv_bytes == new
    assert memory(version="0.21", is_eager=True).rollout_kv_bytes == middle


def test_the_second_runner_draws_in_place_keeps_penalties_and_counts_graphs_since_0_29() -> None:
    warm = {"model": "qwen3-8b", "max_num_seqs": 256, "max_batched_tokens": 2048, "is_compiled": True}
    first, second, third, plain, last = (memory(version=v, **warm) for v in ("0.21", "0.24", "0.27", "0.28", "0.29"))
    entries, hidden = 256 * 151_936, 2 * 2048 * 4096
    block = second.cache.block_bytes

    def beside(taken: EngineMemory) -> int:
        """Return bytes that the cache does not get, but for weights and what is outside of torch."""
        outside = round(shipped_constants().engine.non_torch_bytes_single)
        return taken.budget - taken.memory.terms["weights"] - outside - taken.rollout_kv_bytes

    assert beside(first) == pytest.approx(15 * entries + hidden + first.memory.terms["graphs"], abs=block)
    assert beside(second) == pytest.approx(6 * entries + hidden, abs=block)  # logits in 16 bits and in fp32
    assert beside(third) == pytest.approx((6 + 4.125) * entries + hidden, abs=block)  # and what penalties keep
    forward = 2 * 2048 * 3 * (12_288 + 4096)  # of a layer: more than logits in 16 bits are
    assert beside(plain) == pytest.approx(forward + 4.125 * entries, abs=block)
    assert beside(last) == pytest.approx(beside(plain) + last.memory.terms["graphs"], abs=block)
    # Penalties are on the device whether a release sees them or not.
    assert second.memory.terms["logits"] == third.memory.terms["logits"] == round(6 * entries) + round(4.125 * entries)


@pytest.mark.parametrize(
    ("model", "version", "has_it"),
    [
        ("qwen3-8b", "0.21.0", False),
        ("qwen3-8b", "0.22.0", True),
        ("qwen3-30b-a3b-fp8", "0.28.0", False),
        ("llama-3.1-8b", "0.22.1", False),
        ("llama-3.1-8b", "0.23.0", True),
        ("llama-3.3-70b-fp8", "0.23.0", False),
        ("llama-3.3-70b-fp8", "0.24.0", True),
        ("qwen2.5-7b", "0.24.0", False),
        ("qwen2.5-7b", "0.25.0", True),
        ("qwen1.5-moe-a2.7b", "0.24.0", True),
        ("qwen3.5-35b-a3b", "0.28.0", False),
        ("qwen3.5-35b-a3b", "0.29.0", True),
        ("qwen3.5-35b-a3b", "", True),
    ],
)
def test_the_second_runner_serves_more_models_with_each_release(model: str, version: str, has_it: bool) -> None:
    assert has_second_runner(engine(model, version=version)) is has_it
    assert not has_second_runner(engine(model, name="sglang"))


def test_a_first_start_holds_the_embeddings_that_the_compiler_makes_anew() -> None:
    table = 152_064 * 3584 * 2
    sizes = {"version": "0.22", "max_num_seqs": 128, "max_batched_tokens": 2048}

    def peak(**changes: Any) -> int:
        terms = memory(**sizes | changes).memory.terms
        return terms["activations"] + terms["logits"]

    assert peak() == table > peak(is_compiled=True) == peak(is_eager=True)
    assert peak(tensor=2) == table // 2
    assert peak(max_num_seqs=1024) == peak(max_num_seqs=1024, is_compiled=True) > table
    assert peak(version="0.11.0") == peak(version="0.11.0", is_compiled=True)
    stages_of = {n: memory(**sizes | {"pipeline": 2, "is_compiled": n}).memory.terms["activations"] for n in (0, 1)}
    assert stages_of[0] == table > stages_of[1]  # the first stage holds most then
    tall = engine("gemma-3-4b", **sizes)  # sees images, so that its tokens are embedded before
    assert taken_by(tall).memory.terms == taken_by(replace(tall, is_compiled=True)).memory.terms
    text = taken_by(replace(tall, images_per_prompt=0, max_num_seqs=8))
    assert text.memory.terms["activations"] == 262_208 * 2560 * 2


def test_more_memory_never_holds_fewer_tokens() -> None:
    for model in ("qwen2.5-7b", "qwen3-30b-a3b", "gemma-3-12b", "deepseek-v2-lite"):
        held = [memory(model, utilization=share / 50).kv_tokens for share in range(30, 50)]
        assert held == sorted(held)
        assert held[-1] > 0


def test_keys_of_one_byte_double_the_tokens() -> None:
    whole, half = memory().kv_tokens, memory(kv_bytes=1.0).kv_tokens
    assert 2 * whole <= half <= 2 * whole + 16


def test_more_devices_never_hold_more_bytes_each_per_token() -> None:
    for model in ("qwen2.5-72b", "qwen3-235b-a22b", "gpt-oss-120b", "deepseek-v3"):
        each = [stage_token_bytes(engine(model, tensor=tensor)) for tensor in (1, 2, 4, 8)]
        assert each == sorted(each, reverse=True)
        held = [weight_bytes(engine(model, tensor=tensor), 0) for tensor in (1, 2, 4, 8)]
        assert held == sorted(held, reverse=True)


def test_smaller_sizes_leave_more_cache() -> None:
    held = [memory(max_num_seqs=seqs).kv_tokens for seqs in (1024, 512, 256, 64)]
    assert held == sorted(held)


def test_sleep_leaves_context_and_graphs() -> None:
    awake, asleep, dropped = (memory(sleep_level=level) for level in (0, 1, 2))
    assert awake.sleeping == awake.memory
    assert awake.wake_bytes == 0
    assert asleep.sleeping.total == dropped.sleeping.total < 3 * GIB
    assert asleep.wake_bytes == asleep.memory.total - asleep.sleeping.total


def test_an_engine_starts_only_where_its_budget_is_free() -> None:
    taken = memory(utilization=0.6)
    spare = H100.usable_bytes - taken.budget
    assert starts_beside(taken, H100, spare)
    assert not starts_beside(taken, H100, spare + 1)


def test_sizes_that_vllm_chooses() -> None:
    assert scheduler_sizes(engine(), H100) == (1024, 8192)
    assert scheduler_sizes(engine(), A100) == (256, 2048)
    assert scheduler_sizes(engine(), find_accelerator("b200")) == (1024, 16384)
    assert scheduler_sizes(engine(max_num_seqs=7, max_batched_tokens=99), H100) == (7, 99)
    assert scheduler_sizes(engine(max_batched_tokens=512), H100) == (512, 512)
    assert len(capture_sizes(engine(), H100, 1024)) == 51
    assert capture_sizes(engine(), H100, 8) == (1, 2, 4, 8, 16)
    assert capture_sizes(engine(is_eager=True), H100, 1024) == ()
    assert capture_sizes(engine(name="trainer"), H100, 1024) == ()


def test_the_first_engine_takes_prompts_whole_unless_they_may_be_long() -> None:
    assert scheduler_sizes(engine(version="0.6.4", max_model_len=20_000), H100) == (256, 20_000)
    assert scheduler_sizes(engine(version="0.7.2", max_model_len=512), H100) == (256, 2048)
    assert scheduler_sizes(engine(version="0.7.2", max_model_len=131_072), H100) == (256, 2048)
    assert scheduler_sizes(engine(version="0.7.2", max_model_len=20_000, max_batched_tokens=99), H100) == (99, 99)
    # Issue 10517 of vLLM: a forward over 20,000 tokens of Llama 3.1 8B took 2.07 GiB: 2 bytes of 3f + 3h each.
    taken = memory("llama-3.1-8b", find_accelerator("rtx-3090"), version="0.6.4", max_model_len=20_000)
    assert taken.memory.terms["activations"] == 2 * 3 * (14_336 + 4096) * 20_000 == pytest.approx(2.07 * GIB, rel=0.01)


def test_buffers_of_experts_go_with_their_layer_until_modular_kernels_keep_them() -> None:
    def cache(version: str, **changes: Any) -> int:
        served = engine("qwen3-30b-a3b", version=version, utilization=0.95, sampler="flashinfer", **changes)
        return taken_by(served).rollout_kv_bytes

    # 8,192 tokens of 8 experts: rows as wide as the hidden size, 2,048, and as what goes out, 2,048, in bf16. The
    # sampler, 15 bytes of 1,024 x 151,936 entries, takes more than what is gone by then.
    buffers = 2 * 8192 * 8 * (2048 + 2048)
    assert cache("0.13") - cache("0.14") == pytest.approx(buffers, abs=2 * 16 * 98_304)
    assert cache("0.13", weight_bytes=1.0) == cache("0.14", weight_bytes=1.0)


def test_devices_that_cannot_read_one_another_exchange_through_the_host() -> None:
    card, k = find_accelerator("rtx-4090"), shipped_constants()
    assert not card.has_peer_to_peer
    alone = memory(accelerator=card).memory.terms["overhead"]
    assert memory(accelerator=card, tensor=2).memory.terms["overhead"] == alone
    assert memory(tensor=2).memory.terms["overhead"] == k.engine.context_bytes + k.engine.non_torch_bytes_group


def test_sglang_takes_a_share_of_what_is_free() -> None:
    served = engine(name="sglang", utilization=0.8)
    taken = engine_memory(served, H100, shipped_constants())
    constants = shipped_constants().engine
    loaded = weight_bytes(served, 0) + constants.sglang_load_bytes
    free = H100.usable_bytes - constants.context_bytes
    assert taken.rollout_kv_bytes == pytest.approx(0.8 * free - loaded, abs=57_344)
    assert taken.kv_tokens == taken.rollout_kv_bytes // 57_344


def test_a_length_that_does_not_fit_is_told_with_one_that_does() -> None:
    taken = memory("qwen2.5-72b", utilization=0.95, tensor=2, version="0.19", max_model_len=131_072)
    assert taken.shortage is not None
    assert taken.shortage.field == "engine.max_model_len"
    fits = taken.cache.longest_sequence()
    assert str(fits) in taken.shortage.text
    assert "131072" in taken.shortage.text
    assert memory("qwen2.5-72b", utilization=0.95, tensor=2, version="0.19", max_model_len=fits).shortage is None


def test_weights_beyond_the_budget_are_told() -> None:
    taken = memory("qwen2.5-72b")
    assert taken.shortage is not None
    assert taken.shortage.field == "engine.utilization"
    assert taken.kv_tokens == 0
    assert taken.rollout_kv_bytes == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("utilization", 0), ("utilization", math.nan), ("utilization", 1.5), ("utilization", -1), ("utilization", True),
        ("tensor", 3), ("tensor", 0), ("tensor", 2.0), ("pipeline", 99), ("expert", 8), ("num_engines", 0),
        ("max_num_seqs", -1), ("max_model_len", 1.5), ("kv_bytes", 0), ("kv_bytes", math.inf), ("weight_bytes", -2),
        ("sleep_level", 3), ("version", "newest"), ("kv_cache_bytes", -1),
    ],
)  # fmt: skip
def test_what_no_engine_takes_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(JobInvalid, match=f"engine.{field}") as caught:
        validate_engine(engine(**{field: value}))
    assert caught.value.field == f"engine.{field}"
    assert repr(value) in str(caught.value)


_SHAPES = [shape_of(name) for name in ("gpt-oss-20b", "gemma-2-9b", "gemma-3-4b", "gemma-3-27b")]
_CACHE_BYTES = 8 * 2**20


@pytest.fixture(scope="module")
def vllm_answers(warm_environment: dict[str, str]) -> Any:
    """How vLLM groups layers, and the block size, blocks and tokens of a small engine's cache."""
    folder = ROOT / "jobs" / "engine" / "bundled" / "tiny-word-problems"
    windows = [[layer.window for layer in shape.layers] for shape in _SHAPES]
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.engine.vllm_cache"],
        cwd=ROOT,
        input=json.dumps([str(folder), _CACHE_BYTES, *windows]),
        capture_output=True,
        text=True,
        env=os.environ | warm_environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.proof
@pytest.mark.engine
def test_vllm_itself_groups_layers_alike(vllm_answers: Any) -> None:
    theirs, _cache = vllm_answers
    for shape, groups in zip(_SHAPES, theirs, strict=True):
        assert sorted(map(sorted, groups)) == sorted(map(list, group_layers(shape))), shape.name


@pytest.mark.engine
def test_vllm_itself_makes_as_many_blocks(vllm_answers: Any) -> None:
    _groups, (block_tokens, blocks, tokens) = vllm_answers
    ours = memory("tiny-word-problems", kv_cache_bytes=_CACHE_BYTES, max_model_len=256, max_num_seqs=8, block_tokens=32)
    assert block_tokens == ours.cache.block_tokens
    assert blocks == ours.cache.num_blocks
    assert tokens == ours.kv_tokens


def test_the_sampler_that_is_named_or_of_the_release_takes_its_bytes_of_the_cache() -> None:
    k, entries = shipped_constants(), 1024 * shape_of("qwen2.5-7b").vocab
    of = {name: memory(version="0.10", sampler=name).memory.terms["logits"] for name in ("", "sort", "flashinfer")}
    assert of[""] == of["sort"] == round(k.engine.sampler_bytes_sorting * entries)
    assert of["flashinfer"] == round(k.engine.sampler_bytes * entries)
    newer = {name: memory(version="0.24.0", sampler=name).memory.terms["logits"] for name in ("", "sort")}
    assert newer[""] == newer["sort"] == of["flashinfer"]  # a kernel of its own takes the place of the sort,
    sizes = {"max_num_seqs": 7, "max_batched_tokens": 64, "is_compiled": True}
    few = memory(version="0.24.0", sampler="sort", **sizes).memory.terms["logits"]
    assert few == round(k.engine.sampler_bytes_sorting * 7 * entries / 1024)  # but of a few sequences
    assert memory(version="0.19").memory.terms["logits"] == of["flashinfer"]


def test_early_releases_take_less_outside_of_torch_under_tensor_parallelism() -> None:
    k = shipped_constants().engine
    early, late = (memory(version=version, tensor=2).memory.terms["overhead"] for version in ("0.11.2", "0.12"))
    assert late - early == k.non_torch_bytes_group - k.non_torch_bytes_group_early
    pair = find_accelerator("rtx-4090")
    assert len({memory(accelerator=pair, version=v, tensor=2).memory.terms["overhead"] for v in ("0.11", "0.19")}) == 1


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_devices_that_reach_one_another_over_pcie_keep_no_buffers_of_direct_links(name: str) -> None:
    card = find_accelerator("l40s")
    assert card.has_peer_to_peer
    alone, pair = (memory(accelerator=card, name=name, tensor=t).memory.terms["overhead"] for t in (1, 2))
    assert pair == alone


def hybrid() -> ModelShape:
    """Qwen2.5 0.5B, every fourth layer as it is and three that keep a state of 131,072 elements instead."""
    shape = shape_of("qwen2.5-0.5b")
    state = {"cache": 0, "cache_heads": 0, "has_cache": False, "state": 131_072}
    layers = tuple(x if i % 4 == 3 else replace(x, **state) for i, x in enumerate(shape.layers))
    return replace(shape, layers=layers)


def test_sglang_divides_what_is_free_between_tokens_and_states() -> None:
    served = replace(engine("qwen2.5-0.5b", name="sglang", kv_cache_bytes=19 * 10**9), model=hybrid())
    # A token takes 2 heads' keys and values of 64 in 6 of 24 layers. States get 0.9 of the tokens' bytes.
    assert taken_by(served).kv_tokens == 10**10 // (6 * 2 * 2 * 64 * 2) == 3_255_208
    # Without a cache of prefixes there are states of as many sequences as are named: 18 layers of 131,072 in bf16.
    counted = taken_by(replace(served, has_prefix_cache=False, max_num_seqs=100))
    assert counted.kv_tokens == (19 * 10**9 - 100 * 18 * 131_072 * 2) // (6 * 2 * 2 * 64 * 2)


def test_states_take_a_block_of_their_own_as_large_as_they_are_and_two_with_prefixes_since_0_24() -> None:
    # 32 value heads' matrices of 128 x 128 in float32, two heads' keys and values of 256 a token in bf16
    served = engine("qwen3.5-35b-a3b", version="0.24", max_model_len=32_768)
    state = 4 * 32 * 128 * 128 + 2 * 3 * (2 * 16 * 128 + 32 * 128)
    prefixes, none, early = (
        taken_by(each).cache
        for each in (served, replace(served, has_prefix_cache=False), replace(served, version="0.23"))
    )
    assert prefixes.block_tokens == math.ceil(state / (2 * 2 * 256 * 2) / 16) * 16 == 1056
    # Ten layers see all tokens, and 30 have a state: three groups of ten.
    whole = math.ceil(32_768 / 1056)
    assert prefixes.sequence_blocks(32_768) == whole + 3 * 2
    assert none.sequence_blocks(32_768) == early.sequence_blocks(32_768) == whole + 3


def test_up_to_0_20_0_blocks_are_reported_and_then_whole_sequences() -> None:
    blocks, sequences = (memory("gemma-3-4b", version=v, max_model_len=8192) for v in ("0.20.0", "0.20.1"))
    assert blocks.cache == sequences.cache
    assert blocks.kv_tokens == blocks.cache.num_blocks // 7 * 16
    assert sequences.kv_tokens == int(sequences.cache.num_blocks / sequences.cache.sequence_blocks(8192) * 8192)


def test_a_window_keeps_the_tokens_of_two_steps_since_0_24() -> None:
    one, two = (memory("gemma-3-4b", version=v, max_batched_tokens=4096).cache for v in ("0.23", "0.24"))
    assert (one.in_flight, two.in_flight) == (4096, 8192)
    # 29 layers of 34 see 1,024 tokens, in six groups
    assert one.sequence_blocks(32_768) == 32_768 // 16 + 6 * ((1023 + 4096) // 16 + 2)
    assert two.sequence_blocks(32_768) == 32_768 // 16 + 6 * ((1023 + 8192) // 16 + 2)
