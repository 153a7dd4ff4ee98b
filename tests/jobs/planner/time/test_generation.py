"""How long an engine takes: cases by hand, what must hold for any batch, and what is refused."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.constant import shipped_constants
from jobs.planner.job import Engine, Lengths, Rollouts
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.known import shape_of
from jobs.planner.time.decoding import decode_step_seconds, make_decoder, prefill_seconds
from jobs.planner.time.generation import decode_tokens_per_second, generation_seconds, response_lengths

H100 = find_accelerator("h100-sxm")
K = shipped_constants()
LENGTHS = Lengths(max_prompt=512, max_response=4096, mean_prompt=256, mean_response=1200, spread=0.7)


def engine(model: str = "qwen2.5-7b", **changes: Any) -> Engine:
    return Engine(model=shape_of(model), **changes)


def seconds(served: Engine | None = None, num_engines: int = 8, **changes: Any) -> float:
    given: dict[str, Any] = {"prompts": 128, "samples_per_prompt": 8, "lengths": LENGTHS} | changes
    return generation_seconds(served or engine(), H100, Rollouts(**given), num_engines, K).middle


def lengths(**changes: Any) -> Lengths:
    return replace(LENGTHS, **changes)


def test_one_sequence_streams_the_weights_and_its_keys() -> None:
    shape = shape_of("qwen2.5-7b")
    bandwidth = H100.bandwidth * K.decode.bandwidth
    read = (shape.parameters - shape.embedding) * 2 + 1000 * 57_344
    rate = H100.peak["bf16"]
    multiplied = 2 * shape.matmul_parameters / (rate * K.decode.compute)
    expected = read / bandwidth + 28 * K.decode.layer_seconds + K.decode.sequence_seconds
    assert K.decode.tile_rows * multiplied < read / bandwidth  # products of one sequence hide behind what they read
    assert decode_step_seconds(engine(), H100, 1, 1000, K) == pytest.approx(expected, rel=1e-3)


def test_products_of_many_sequences_take_longer_than_what_they_read() -> None:
    decoder = make_decoder(engine(), H100, K)
    for batch in (1, 256, 1024):
        longer = max(decoder.dense_seconds, batch * decoder.product_seconds)
        found = decoder.step(batch, 0) - decoder.fixed_seconds - batch * decoder.sequence_seconds
        assert found == pytest.approx(longer)
    assert 1024 * decoder.product_seconds > decoder.dense_seconds


def test_a_device_of_little_compute_pays_for_a_whole_tile() -> None:
    h20 = find_accelerator("h20")
    decoder, narrow = (make_decoder(engine("qwen3-32b", weight_bytes=width), h20, K) for width in (2, 1))
    alone, tile = decoder.step(1, 0), decoder.step(K.decode.tile_rows, 0)
    assert tile - alone == pytest.approx((K.decode.tile_rows - 1) * decoder.sequence_seconds)
    assert 0.035 < alone < 0.06  # Qwen's page measured 48 ms, where its weights are read in 20
    assert narrow.tile == decoder.tile / 2


def test_an_engine_that_schedules_ahead_hides_what_the_host_takes_for_a_sequence() -> None:
    before, after, unknown = (make_decoder(engine(version=version), H100, K) for version in ("0.11.0", "0.14.0", ""))
    hidden = K.decode.sequence_seconds * (1 - K.decode.sequence_share_ahead)
    assert before.sequence_seconds - after.sequence_seconds == pytest.approx(hidden)
    assert unknown == before  # what is not known to do so is not promised


def test_an_engine_over_several_nodes_talks_over_their_network() -> None:
    far = make_decoder(engine("deepseek-v3", tensor=32), H100, K)
    layers, hidden = 61, 7168
    # Two reductions a layer, three further nodes there and back.
    hops = layers * 2 * 2 * 3 * K.network.node_latency
    rack = replace(H100, domain=32)
    joined = make_decoder(engine("deepseek-v3", tensor=32), rack, K)
    assert far.fixed_seconds - joined.fixed_seconds == pytest.approx(hops)
    # hidden states twice there and back, over a ninth of the link: eight times as long again
    more = 4 * layers * hidden * 2 * 31 / 32 * 8 / (H100.link_bandwidth * K.decode.link)
    assert far.sequence_seconds - joined.sequence_seconds == pytest.approx(more)


def test_devices_that_talk_by_the_bus_wait_longer_for_each_other() -> None:
    linked, bus = (make_decoder(engine(tensor=2), find_accelerator(id), K) for id in ("a100-80-sxm", "a100-80-pcie"))
    waits = 28 * (K.decode.pcie_exchange_seconds - K.decode.exchange_seconds)
    assert bus.fixed_seconds - linked.fixed_seconds == pytest.approx(waits)


def test_the_first_engine_schedules_between_steps() -> None:
    before, after = (decode_step_seconds(engine(version=version), H100, 8, 100, K) for version in ("0.7.3", "0.8.0"))
    assert before - after == pytest.approx(K.decode.first_engine_seconds)


def test_experts_are_read_as_far_as_tokens_reach_them() -> None:
    decoder = make_decoder(engine("qwen3-30b-a3b"), H100, K)
    assert decoder.ratio == 8 / 128

    def read(batch: float) -> float:
        longer = max(decoder.dense_seconds, decoder.product_seconds * max(batch, decoder.tile))
        return decoder.step(batch, 0) - longer - decoder.fixed_seconds - batch * decoder.sequence_seconds

    assert read(1) == pytest.approx(decoder.expert_seconds / 16)
    assert read(1e6) == pytest.approx(decoder.expert_seconds)


def test_a_window_bounds_what_is_read() -> None:
    decoder = make_decoder(engine("gemma-2-9b"), H100, K)  # every other layer looks back 4096 tokens
    near, edge, far = (decoder.step(1, tokens) for tokens in (2048, 4096, 6144))
    assert far - edge == pytest.approx((edge - near) / 2)


def test_prefill_is_two_flops_per_parameter_and_the_attention() -> None:
    shape = shape_of("qwen2.5-7b")
    flops = 2 * shape.matmul_parameters + 2 * 28 * 3584 * 100
    expected = 1000 * flops / (H100.peak["bf16"] * K.decode.prefill)
    assert prefill_seconds(engine(), H100, 1000, 100, K) == pytest.approx(expected)


def test_a_batch_of_equal_lengths_is_as_many_steps() -> None:
    served = engine(has_prefix_cache=False)
    same = lengths(mean_response=100.0, max_response=100)
    expected = prefill_seconds(served, H100, 16 * 256, 128, K) + 100 * decode_step_seconds(served, H100, 16, 306, K)
    whole = seconds(served, 1, prompts=16, samples_per_prompt=1, lengths=same)
    assert whole == pytest.approx(expected, rel=1e-6)
    batch = Rollouts(prompts=16, samples_per_prompt=1, lengths=same)
    slower = generation_seconds(served, H100, batch, 1, K, share=0.5)
    assert slower.middle == pytest.approx(2 * whole)
    assert slower.high / slower.middle == pytest.approx(K.decode.band_rollout)


def test_more_at_once_than_allowed_goes_in_waves() -> None:
    same = lengths(mean_response=100.0, max_response=100)
    served = engine(has_prefix_cache=False)
    one = seconds(replace(served, max_num_seqs=16), 1, prompts=16, samples_per_prompt=1, lengths=same)
    four = seconds(replace(served, max_num_seqs=16), 1, prompts=64, samples_per_prompt=1, lengths=same)
    assert four == pytest.approx(4 * one, rel=1e-6)


def test_many_waves_take_time_in_proportion() -> None:
    served = engine(max_num_seqs=16)
    few, many = (seconds(served, 1, prompts=count, samples_per_prompt=1) for count in (20_000, 80_000))
    assert many == pytest.approx(4 * few, rel=0.02)


def test_a_full_cache_takes_longer_and_loses_nothing() -> None:
    blocks = 57_344 * 16
    held = [seconds(engine(kv_cache_bytes=blocks * count), 1) for count in (400, 1600, 6400, 50_000)]
    assert held == sorted(held, reverse=True)
    assert held[0] > 2 * held[-1]


def test_drawn_lengths_keep_their_mean_and_their_cap() -> None:
    for num, mean, cap, spread in itertools.product((16, 100, 5000), (200, 900), (1024, 8192), (0.5, 1.0)):
        drawn = response_lengths(num, total=num, mean=mean, cap=cap, spread=spread)
        assert sum(count for count, _ in drawn) == pytest.approx(num)
        assert all(1 <= length <= cap for _, length in drawn)
        assert sum(count * length for count, length in drawn) / num == pytest.approx(mean, rel=0.08)
        assert [length for _, length in drawn] == sorted(length for _, length in drawn)


def test_longer_responses_are_never_faster() -> None:
    for vary in ("mean_response", "max_response", "mean_prompt"):
        values = {"mean_response": range(200, 4000, 400), "max_response": range(1300, 20_000, 2000)}
        found = [seconds(lengths=lengths(**{vary: value})) for value in values.get(vary, range(16, 512, 64))]
        assert all(b >= a * 0.995 for a, b in itertools.pairwise(found)), vary


def test_more_engines_are_never_slower_beyond_noise() -> None:
    for model in ("qwen2.5-7b", "qwen3-30b-a3b"):
        found = [seconds(engine(model), count) for count in (1, 2, 3, 4, 8, 16, 64, 1024)]
        assert all(b <= a * 1.02 for a, b in itertools.pairwise(found))


def test_more_samples_are_never_faster() -> None:
    found = [seconds(prompts=count) for count in (8, 16, 64, 128, 512, 1024)]
    assert found == sorted(found)


def test_no_batch_is_faster_than_its_longest_response() -> None:
    floor = LENGTHS.max_response * decode_step_seconds(engine(), H100, 1, 0, K) * 0.5
    assert seconds(num_engines=1024) > floor


def test_a_prefix_cache_saves_prefill_and_memory() -> None:
    long = lengths(max_prompt=8192, mean_prompt=8000)
    assert seconds(engine(), lengths=long) < seconds(engine(has_prefix_cache=False), lengths=long)


def test_faster_memory_quantized_weights_and_graphs_help() -> None:
    assert (
        generation_seconds(
            engine(), find_accelerator("h200-sxm"), Rollouts(prompts=128, samples_per_prompt=8, lengths=LENGTHS), 8, K
        ).middle
        < seconds()
    )
    assert seconds(engine(weight_bytes=1.0)) < seconds() < seconds(engine(is_eager=True))


def test_without_graphs_the_host_bounds_few_sequences_and_the_device_many() -> None:
    def step(model: str, batch: int, *, is_eager: bool) -> float:
        return decode_step_seconds(engine(model, is_eager=is_eager), H100, batch, 500, K)

    assert step("qwen2.5-7b", 1, is_eager=True) == pytest.approx(28 * K.decode.eager_layer_seconds)
    assert step("qwen3-30b-a3b", 1, is_eager=True) == pytest.approx(48 * K.decode.eager_expert_layer_seconds)
    assert step("qwen2.5-7b", 2048, is_eager=True) == step("qwen2.5-7b", 2048, is_eager=False)


def test_bands_are_honest_and_not_wide() -> None:
    for model in ("qwen2.5-7b", "qwen3-30b-a3b"):
        batch = Rollouts(prompts=64, samples_per_prompt=8, lengths=LENGTHS)
        found = generation_seconds(engine(model), H100, batch, 8, K)
        assert found.low < found.middle < found.high <= 2.5 * found.low
    unknown = generation_seconds(
        engine(), H100, Rollouts(prompts=64, samples_per_prompt=8, lengths=lengths(mean_response=0.0)), 8, K
    )
    assert unknown.high / unknown.low == pytest.approx(K.decode.band_lengths**2)
    speed = decode_tokens_per_second(engine(), H100, 64, 150, 400, K)
    assert speed.low < speed.middle < speed.high


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_prompt", 0), ("max_response", -1), ("mean_response", 9999.0), ("mean_prompt", math.nan), ("spread", -0.1)],
)
def test_lengths_that_cannot_be_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(JobInvalid, match=f"rollouts.lengths.{field}"):
        seconds(lengths=lengths(**{field: value}))


def test_batches_and_engines_that_cannot_be_are_refused_by_name() -> None:
    with pytest.raises(JobInvalid, match=r"rollouts\.prompts"):
        seconds(prompts=0)
    with pytest.raises(JobInvalid, match="num_engines"):
        seconds(num_engines=0)
    with pytest.raises(JobInvalid, match=r"engine\.utilization"):
        seconds(engine(utilization=math.nan))
    with pytest.raises(JobInvalid, match=r"engine\.utilization"):
        seconds(engine("qwen2.5-72b"))
    with pytest.raises(JobInvalid, match=r"rollouts.lengths.max_response 4096 .* 4608"):
        seconds(engine(kv_cache_bytes=57_344 * 16 * 100))
