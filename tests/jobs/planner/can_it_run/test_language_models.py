"""Can it run? The answer, the fewest devices, and what was published for or against it."""

from dataclasses import replace

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.device_table import device_table
from jobs.planner.can_it_run.case import LanguageModelCase
from jobs.planner.can_it_run.headline import judged_on
from jobs.planner.can_it_run.language_models import MOST_FITS, FitVerdict, can_it_run, compare_hardware
from jobs.planner.can_it_run.plans import FURTHER_WAYS, METHODS, ON_HOST, Demand, plans_of, world_sizes
from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import Estimator
from jobs.planner.fleet import FleetInvalid, fleet_of
from jobs.planner.job import Fleet, Job
from jobs.planner.result import JobInvalid
from jobs.planner.shapes.known import shape_of
from jobs.planner.shapes.model_shape import read_shape

H100 = find_accelerator("h100-sxm")


def _ask(model: str, method: str, devices: int | None = None, accelerator: str = "h100-sxm") -> FitVerdict:
    return can_it_run(shape_of(model), find_accelerator(accelerator), method, devices)


def test_a_small_model_runs_on_one_device() -> None:
    found = _ask("qwen2.5-0.5b", "grpo-lora", 1)

    assert (found.answer, found.minimum.num_devices) == ("yes", 1)
    assert found.recommended is not None


def test_a_large_model_does_not_run_on_one_device_and_the_phase_that_binds_is_named() -> None:
    found = _ask("qwen2.5-72b", "grpo", 1)

    assert found.answer == "no"
    assert found.summary.startswith("No layout fits on 1. It takes ")  # weights and gradients alone are too much
    need = found.need("nothing")
    assert need.num_devices is not None
    assert need.num_devices > 8
    assert need.phase in ("rollout", "old_logprobs", "reference", "update", "weight_sync", "load", "checkpoint")


@pytest.mark.parametrize("method", METHODS)
def test_what_leaves_the_device_never_asks_for_more_devices(method: str) -> None:
    found = _ask("qwen2.5-7b", method)
    sizes = [need.num_devices for need in found.needs]

    assert all(size is not None for size in sizes)
    assert sizes == sorted(sizes, key=lambda size: -(size or 0))
    if found.recommended is not None:
        assert (found.recommended.num_devices or 0) >= (found.minimum_with_offload.num_devices or 0)


def test_lora_needs_no_more_than_all_weights() -> None:
    for model in ("qwen2.5-7b", "qwen2.5-32b"):
        lora, full = _ask(model, "grpo-lora").minimum, _ask(model, "grpo").minimum
        assert (lora.num_devices or 0) <= (full.num_devices or 0)


def test_an_unknown_shape_is_no_answer() -> None:
    found = can_it_run(None, H100, "grpo", 8)

    assert (found.answer, found.published, found.recommended) == ("unknown", (), None)
    assert found.minimum.num_devices is None


def test_bad_questions_are_refused_with_a_sentence() -> None:
    shape = shape_of("qwen2.5-7b")
    with pytest.raises(LookupError, match=r"no method 'grop'\. Use one of"):
        can_it_run(shape, H100, "grop")
    with pytest.raises(ValueError, match="0 is not a number of devices"):
        can_it_run(shape, H100, "grpo", 0)
    with pytest.raises(FleetInvalid, match="Use a whole number from 1 to 4,096"):
        fleet_of(H100, nodes=0)
    with pytest.raises(FleetInvalid, match="price"):
        fleet_of(H100, price=float("nan"))
    with pytest.raises(LookupError):
        fleet_of("h1000")


def test_published_rows_say_what_they_say() -> None:
    found = _ask("qwen2.5-7b", "grpo", accelerator="h800-sxm")
    by_id = {each.row.id: each for each in found.published}

    assert by_id  # the table has 7B rows
    for each in by_id.values():
        assert each.row.method == "GRPO"
        estimated = found.minimum.num_devices or 1 << 30
        if each.bearing == "supports":
            assert estimated <= each.row.num_devices
        if each.bearing == "contradicts":
            assert estimated > each.row.num_devices or found.minimum.num_devices is None
        assert each.reason.endswith(".")


def test_a_row_of_larger_devices_says_nothing() -> None:
    found = _ask("qwen2.5-32b", "grpo", accelerator="h100-sxm")

    larger = [each for each in found.published if each.row.memory_gb > 88]
    assert larger
    assert all(each.bearing == "says nothing" for each in larger)


def test_sft_has_no_published_row() -> None:
    assert _ask("qwen2.5-7b", "sft").published == ()


def test_sizes_are_whole_nodes_above_one() -> None:
    assert world_sizes(8)[:6] == (1, 2, 4, 8, 16, 24)
    assert world_sizes(4)[:5] == (1, 2, 4, 8, 12)
    assert world_sizes(1)[0] == 1


def test_hardware_side_by_side() -> None:
    kinds = [find_accelerator(name) for name in ("h100-sxm", "a100-80-sxm", "l4")]

    found = compare_hardware(shape_of("qwen2.5-7b"), kinds, "grpo", prices={"h100-sxm": 3.0, "a100-80-sxm": 1.5})

    assert {option.accelerator.id for option in found} == {"h100-sxm", "a100-80-sxm", "l4"}
    priced = [option.cost_per_step.middle for option in found if option.cost_per_step is not None]
    assert priced == sorted(priced)
    assert len(priced) == 2
    for option in found:
        assert (option.step is None) == (option.num_devices is None)


_STEPS = {1: (1, 2), 2: (1, 2, 4), 4: (2, 4, 8), 8: (4, 8, 16), 32: (16, 24, 32, 48, 64), 96: (48, 64, 96, 128)}
_MODELS = {
    "H01": "qwen2.5-0.5b",
    "H02": "qwen2.5-1.5b",
    "H03": "qwen2.5-3b",
    "H04": "qwen2-7b",
    "H05": "qwen2.5-7b",
    "H06": "qwen2.5-14b",
    "H07": "qwen2.5-14b",
    "H08": "qwen2.5-32b",
    "H09": "qwen2.5-32b",
    "H10": "qwen2-72b",
    "H11": "qwen2-72b",
    "H12": "qwen2.5-72b",
    "H15": "deepseek-v3",
    "H16": "qwen3-235b-a22b",
}


def test_minimum_is_within_one_step_of_the_published_table() -> None:
    right = []
    for row_id, model in _MODELS.items():
        row = device_table()[row_id]
        found = can_it_run(shape_of(model), find_accelerator(row.device), row.method.lower())
        on_host = bool(row.settings.get("memory.megatron_cpu_optimizer"))
        need = found.minimum_with_offload if on_host else found.minimum
        right.append((need.num_devices in _STEPS[row.num_devices], row_id, row.num_devices, need.num_devices))

    missed = [entry for entry in right if not entry[0]]
    assert len(missed) <= 0.1 * len(right), missed


def test_an_asked_number_of_devices_has_its_own_layout_time_and_cost() -> None:
    shape = shape_of("qwen2.5-7b")
    sized = {
        devices: compare_hardware(shape, [H100], "sft", devices, prices={"h100-sxm": 2.0})[0] for devices in (4, 8)
    }

    for devices, option in sized.items():
        assert option.verdict.at is not None
        assert option.verdict.at.job is not None
        assert option.verdict.at.job.policy.layout.num_devices == devices == option.num_devices
        assert option.step is not None
        assert option.cost_per_step is not None
        assert option.cost_per_step.middle == pytest.approx(option.step.middle * devices / 3600 * 2.0)


def test_the_fewest_devices_have_the_layout_of_their_number_asked_for_alone() -> None:
    """Four H200 hold a mixture with its states moved away, which may go either way, and for sure with its optimizer on
    the host."""
    practical = _ask("qwen3-30b-a3b", "grpo", accelerator="h200-sxm").practical
    assert practical is not None
    alone = _ask("qwen3-30b-a3b", "grpo", practical.num_devices, accelerator="h200-sxm").at
    assert alone is not None

    assert (practical.num_devices, practical.on_host, practical.is_unsure) == (4, "always", False)
    assert (alone.on_host, alone.estimate) == (practical.on_host, practical.estimate)


def test_what_is_tight_is_a_yes_that_says_so_for_a_number_and_for_any() -> None:
    """7B with adapters takes 93 % of an RTX 4090: below the limit, and within 8 % of it."""
    for devices in (1, None):
        near = _ask("qwen2.5-7b", "sft-lora", devices, accelerator="rtx-4090")

        need = near.minimum
        assert need.estimate is not None
        assert (near.answer, need.num_devices, need.estimate.verdict) == ("yes", 1, "tight")
        assert 0.92 < need.estimate.pools[0].share < 1
        assert "tight" in near.summary


@pytest.mark.parametrize("spare", [-1, 0])
def test_the_fewest_devices_are_never_above_the_limit(spare: int) -> None:
    """A card with exactly the bytes that the layout takes is a tight yes; with one byte less only a probe tells, or
    another way to train, which is named."""
    model, card = shape_of("qwen2.5-7b"), find_accelerator("rtx-4090")
    roomy = can_it_run(model, card, "sft-lora", 1).at
    assert roomy is not None
    assert roomy.estimate is not None
    exact = replace(card, usable_bytes=roomy.estimate.binding.memory.total + spare)

    asked, any_number = (can_it_run(model, exact, "sft-lora", devices) for devices in (1, None))

    assert asked.at is not None
    assert asked.at.estimate is not None
    if spare == 0:
        assert (asked.answer, asked.at.estimate.verdict) == ("yes", "tight")
    else:
        assert asked.at.on_host in FURTHER_WAYS
        told = judged_on(replace(asked, practical=None), None, replace(roomy, num_devices=1))
        assert told.answer == "unknown"
        assert "93 % of a device's memory, known to ± " in told.summary
    assert (any_number.minimum_with_offload.num_devices == 1) == (spare == 0)
    for need in any_number.needs:
        assert need.estimate is not None
        assert all(pool.share <= 1 for pool in need.estimate.pools)


@pytest.mark.parametrize(
    ("model", "method", "accelerator", "devices"),
    [
        ("qwen2.5-7b", "grpo", "rtx-4090", 8),
        ("qwen2.5-7b", "ppo", "a100-80-sxm", 2),
        ("qwen2.5-72b", "sft", "h100-sxm", 16),
        ("qwen3-30b-a3b", "ppo", "h200-sxm", 8),
        ("qwen3-30b-a3b", "grpo", "h100-sxm", 32),
    ],
)
def test_what_is_ruled_out_by_a_bound_does_not_fit(model: str, method: str, accelerator: str, devices: int) -> None:
    fleet = Fleet(accelerator=find_accelerator(accelerator), num_devices=devices, host_bytes=2 * 10**12)
    estimator, ruled_out, left = Estimator(), 0, 0
    for on_host in ON_HOST:
        for plan in plans_of(shape_of(model), METHODS[method], fleet, Demand(), on_host, micro_batch=1):
            is_hopeless = estimator.trainer_is_too_large(plan.job)
            is_over = estimator.trainer_is_too_large(plan.job, above=1.0)
            for job in plan.jobs():
                try:
                    fit = estimator.fit(job)
                except JobInvalid:
                    continue
                verdict = fit.verdict
                if is_over:
                    assert max(pool.share for pool in fit.pools) > 1, job
                if estimator.holds_no_sequence(job):
                    assert fit.rollout is None or fit.rollout.full_sequences < 1
                if is_hopeless or estimator.engine_is_too_large(job):
                    assert verdict == "no", job
                    ruled_out += 1
                else:
                    left += 1
    assert ruled_out
    assert left


def test_numbers_of_devices_that_are_passed_by_hold_no_layout() -> None:
    fleet = Fleet(accelerator=H100, num_devices=1, host_bytes=2 * 10**12)
    case = LanguageModelCase(shape_of("qwen2.5-14b"), METHODS["sft"], fleet, Demand(), shipped_constants())
    passed = [(n, way) for way in (*ON_HOST, *FURTHER_WAYS) for n in (1, 2, 4) if case.has_no_room(n, way)]

    assert passed
    assert all(case.enough(n, way) is None for n, way in passed)


def test_heads_that_no_engine_of_four_divides_are_passed_over() -> None:
    # Phi-4 has 40 heads and 10 of keys and values: engines of 1, 2, 5, 10 or 20 devices can be, of 4 none can.
    found = [_ask("phi-4", "grpo", accelerator=name) for name in ("rtx-4090", "a100-40-sxm", "h100-sxm")]

    assert {verdict.answer for verdict in found} == {"yes"}
    engines = [need.job.engine for verdict in found for need in verdict.needs if need.job is not None]
    assert all(engine is not None and 40 % engine.tensor == 0 and engine.tensor != 4 for engine in engines)


def test_a_question_of_too_many_layouts_is_unknown_after_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Job] = []
    fit = Estimator.fit
    monkeypatch.setattr(Estimator, "fit", lambda self, job: (tried.append(job), fit(self, job))[1])
    longest = Demand(max_prompt=1_000_000, max_response=1_000_000)

    found = can_it_run(shape_of("qwen3-8b"), H100, "ppo", 65_536, demand=longest)

    assert found.answer == "unknown"
    assert "too many layouts" in found.summary
    assert len(tried) <= MOST_FITS
    assert [need.num_devices for need in found.needs] == [None] * len(ON_HOST)


def test_what_runs_on_one_device_is_told_though_too_many_layouts_are_tried_for_what_is_recommended() -> None:
    """Gemma 4 E2B on cards of 24 GB: logits of 262,144 entries leave no room to spare, however many there are."""
    shape = read_shape(
        {
            "model_type": "gemma4_text",
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "use_double_wide_mlp": True,
            "num_hidden_layers": 35,
            "num_attention_heads": 8,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 20,
            "head_dim": 256,
            "global_head_dim": 512,
            "hidden_size_per_layer_input": 256,
            "sliding_window": 512,
            "vocab_size": 262_144,
            "max_position_embeddings": 131_072,
        }
    )

    found = can_it_run(shape, find_accelerator("rtx-4090"), "grpo")

    assert found.answer == "yes"
    assert found.practical is not None
    assert found.practical.num_devices == 1


def test_a_model_that_no_engine_holds_is_no_no_and_the_engines_that_were_tried_are_named() -> None:
    """Llama 4 Maverick has 40 heads: eight H100 divide them, and hold 640 GB of 800."""
    for devices in (None, 256):
        found = _ask("llama-4-maverick", "grpo", devices)
        assert found.answer == "unknown"
        assert "up to 32 devices that divide its 40 attention heads" in found.summary
    assert _ask("llama-4-maverick", "sft").answer == "yes"


def test_what_is_shared_between_layouts_changes_no_answer() -> None:
    """Parts of many layouts are estimated once; each layout by itself, with nothing shared, gives the same answer."""
    found = _ask("qwen3-30b-a3b", "ppo")

    needs = [need for need in (*found.needs, *found.others, found.recommended) if need is not None]
    assert len(needs) >= 4
    for need in needs:
        assert need.job is not None
        assert need.estimate is not None
        alone = Estimator().estimate(need.job)
        assert (alone.verdict, alone.phase, alone.host_bytes) == (
            need.estimate.verdict,
            need.estimate.phase,
            need.estimate.host_bytes,
        )
        assert alone.time == need.estimate.time
        for one, other in zip(alone.pools, need.estimate.pools, strict=True):
            assert [phase.memory.terms for phase in one.phases] == [phase.memory.terms for phase in other.phases]
