"""Every rule: one case that fires, one that is clear, one that lacks its input. The numbers are computed by hand."""

from dataclasses import dataclass

import numpy as np
import pytest

from profiling.diagnosis.finding import Finding, diagnose, finding_of, rules
from profiling.evidence import CaptureFacts, Evidence, Readings
from tests.profiling.diagnosis.diagnosis_runs import driver, even, evidence, ranks, series


@dataclass(frozen=True, kw_only=True)
class Case:
    """`value` is what the firing case measures, by hand."""

    fires: Evidence
    value: float
    clear: Evidence
    missing: Evidence
    rank: int | None = None


def steps(**phases: float) -> Evidence:
    return evidence(driver(even(8, **phases)))


def with_outlier(seconds: float) -> Evidence:
    made = [{"rollout": 1.0, "update": 1.0} for _ in range(8)]
    made[5] = {"rollout": 1.0, "update": seconds}
    slow = [[1.0] * 8, [1.0] * 5 + [seconds] + [1.0] * 2]
    return evidence(driver(made) + ranks("policy", "update", slow))


def straggling(slow: float) -> Evidence:
    return evidence(driver(even(8, rollout=1.0, update=1.0)) + ranks("policy", "update", [[0.8] * 8, [slow] * 8]))


def pausing(phase: str, every: int) -> Evidence:
    made = [{"rollout": 1.0, "update": 1.0} | ({phase: 1.0} if n % every == 0 else {}) for n in range(1, 10)]
    return evidence(driver(made))


def captured(slow: float) -> Evidence:
    made = [{"rollout": 1.0, "update": slow if number in (4, 5) else 1.0} for number in range(1, 11)]
    return evidence(driver(made), capture=CaptureFacts(steps=(4, 5)))


def passes(count: int, seconds: float) -> Evidence:
    rows = driver(even(8, rollout=1.0, update=1.0))
    for _ in range(count):
        rows += ranks("policy", "update", [[seconds] * 8], name="forward", depth=1)
    return evidence(rows)


def answers(longest: float) -> Evidence:
    lengths = [series("response/length_mean", [100.0] * 8), series("response/length_max", [longest] * 8)]
    return evidence(driver(even(8, rollout=1.0, update=1.0)), *lengths)


def engine(**values: float) -> Evidence:
    told = [series(name, [value] * 8, role="vllm") for name, value in values.items()]
    return evidence(driver(even(8, rollout=1.0, update=1.0)), *told, knobs={"rollout.samples_per_prompt": 4})


def held(growth: float) -> Evidence:
    memory = [1e9 * (1 + growth * step) for step in range(20)]
    return evidence(driver(even(20, update=1.0)), series("memory_bytes", memory, role="policy", rank=1))


def gpu(used: float) -> Evidence:
    told = {"gpu0_memory_used_bytes": used, "gpu0_memory_total_bytes": 100.0}
    return evidence((), *(series(name, [value] * 3, role="runner") for name, value in told.items()))


NOTHING = evidence()

CASES: dict[str, Case] = {
    "rollout_dominates": Case(
        fires=steps(rollout=9.0, update=1.0), value=0.9, clear=steps(rollout=1.0, update=1.0), missing=NOTHING
    ),
    "slow_reward": Case(
        fires=steps(rollout=1.0, reward=1.0, update=2.0),
        value=0.25,
        clear=steps(rollout=1.0, reward=0.01, update=1.0),
        missing=steps(rollout=1.0, update=1.0),
    ),
    "weight_sync_slow": Case(
        fires=steps(rollout=1.0, update=1.0, weight_sync=2.0),
        value=0.5,
        clear=steps(rollout=1.0, update=1.0, weight_sync=0.02),
        missing=NOTHING,
    ),
    "data_wait": Case(
        fires=steps(data_wait=1.0, rollout=3.0),
        value=0.25,
        clear=steps(data_wait=0.01, rollout=1.0),
        missing=steps(rollout=1.0, update=1.0),
    ),
    "reference_slow": Case(
        fires=steps(rollout=1.0, reference=1.0),
        value=0.5,
        clear=steps(rollout=1.0, reference=0.1),
        missing=steps(rollout=1.0),
    ),
    "checkpoint_stall": Case(
        fires=pausing("checkpoint", 2), value=4 / 20, clear=pausing("checkpoint", 20), missing=NOTHING
    ),
    "evaluation_slow": Case(fires=pausing("eval", 2), value=4 / 20, clear=pausing("eval", 20), missing=NOTHING),
    "straggler": Case(fires=straggling(1.0), value=0.2, clear=straggling(0.8), missing=steps(update=1.0), rank=1),
    "outlier_step": Case(fires=with_outlier(9.0), value=5.0, clear=with_outlier(1.5), missing=NOTHING, rank=1),
    "warm_up": Case(
        fires=evidence(driver([{"update": 5.0}, *even(7, update=1.0)]), capture=CaptureFacts(steps=(1, 2))),
        value=5.0,
        clear=steps(update=1.0),
        missing=NOTHING,
    ),
    "profiler_inflates": Case(fires=captured(2.0), value=1.5, clear=captured(1.05), missing=steps(update=1.0)),
    "host_loop": Case(
        fires=evidence(driver(even(8, update=3.0), gap=1.0)), value=0.25, clear=steps(update=1.0), missing=NOTHING
    ),
    "tiny_micro_batches": Case(
        fires=passes(16, 0.01), value=16, clear=passes(2, 0.5), missing=steps(rollout=1.0, update=1.0)
    ),
    "rollout_tail": Case(fires=answers(500.0), value=5.0, clear=answers(120.0), missing=steps(rollout=1.0)),
    "memory_growth": Case(fires=held(0.02), value=0.0163, clear=held(0.0), missing=NOTHING, rank=1),
    "kv_cache_full": Case(
        fires=engine(preemptions=3.0, kv_cache_percent=99.0),
        value=7 * 3,  # the first step is left out
        clear=engine(preemptions=0.0, kv_cache_percent=50.0),
        missing=NOTHING,
    ),
    "engine_queue": Case(
        fires=engine(waiting_requests=40.0, running_requests=16.0, kv_cache_percent=12.0),
        value=40,
        clear=engine(waiting_requests=40.0, running_requests=16.0, kv_cache_percent=98.0),
        missing=engine(waiting_requests=40.0),
    ),
    "prefix_cache_unused": Case(
        fires=engine(prefix_cache_hit_percent=5.0),
        value=0.7,
        clear=engine(prefix_cache_hit_percent=74.0),
        missing=NOTHING,
    ),
    "answers_cut": Case(
        fires=evidence((), series("response/truncated_fraction", [0.4] * 8)),
        value=0.4,
        clear=evidence((), series("response/truncated_fraction", [0.02] * 8)),
        missing=NOTHING,
    ),
    "groups_without_signal": Case(
        fires=evidence((), series("groups/zero_variance_fraction", [0.9] * 8)),
        value=0.9,
        clear=evidence((), series("groups/zero_variance_fraction", [0.1] * 8)),
        missing=NOTHING,
    ),
    "node_memory": Case(
        fires=evidence(
            (),
            series("memory_used_bytes", [80.0, 95.0], role="runner"),
            series("memory_total_bytes", [100.0], role="runner"),
        ),
        value=0.95,
        clear=evidence(
            (), series("memory_used_bytes", [80.0], role="runner"), series("memory_total_bytes", [100.0], role="runner")
        ),
        missing=NOTHING,
    ),
    "device_memory_full": Case(
        fires=gpu(97.0), value=0.97, clear=gpu(60.0), missing=evidence((), series("gpu0_memory_used_bytes", [97.0]))
    ),
    "disk_low": Case(
        fires=evidence(
            (), series("disk_free_bytes", [9.0, 3.0], role="runner"), series("disk_total_bytes", [100.0], role="runner")
        ),
        value=0.03,
        clear=evidence(
            (), series("disk_free_bytes", [9.0], role="runner"), series("disk_total_bytes", [100.0], role="runner")
        ),
        missing=NOTHING,
    ),
}


@pytest.mark.parametrize("key", CASES)
def test_a_rule_fires_is_clear_and_says_what_is_missing(key: str) -> None:
    case, rule = CASES[key], rules()[key]
    fires = finding_of(key, rule, case.fires)
    assert fires.state == "fires", fires.sentence()
    assert fires.observation is not None
    assert fires.observation.value == pytest.approx(case.value, rel=0.03)
    assert fires.level in ("watch", "bad")
    if case.rank is not None:
        assert fires.observation.rank == case.rank
    clear = finding_of(key, rule, case.clear)
    assert clear.state == "clear", clear.sentence()
    missing = finding_of(key, rule, case.missing)
    assert missing.state == "not_enough_data", missing.sentence()


def test_what_fires_comes_first_and_the_bad_before_the_rest() -> None:
    found = diagnose(steps(rollout=9.0, reward=0.5, update=0.2, weight_sync=0.8))
    states = [one.state for one in found]
    assert states == sorted(states, key=("fires", "clear", "not_enough_data").index)
    firing = [one for one in found if one.state == "fires"]
    assert [one.level for one in firing] == sorted((one.level for one in firing), key=("bad", "watch").index)


def test_a_step_under_way_is_no_step() -> None:
    whole = even(4, rollout=1.0, update=1.0)
    found = evidence(driver([*whole, {"rollout": 0.2}]))
    assert [step.number for step in found.all_steps] == [1, 2, 3, 4]
    assert np.allclose([step.seconds for step in found.all_steps], 2.0)


def test_slow_growth_of_memory_fires_once_it_has_come_to_much() -> None:
    def grown(steps: int) -> str:
        memory = [1e9 * (1 + 0.006 * step) for step in range(steps)]
        rows = driver(even(steps, update=1.0))
        return finding_of(
            "memory_growth", rules()["memory_growth"], evidence(rows, series("memory_bytes", memory))
        ).state

    assert (grown(20), grown(60)) == ("clear", "fires")


def test_a_rank_that_sends_the_weights_for_all_is_no_straggler() -> None:
    rows = driver(even(8, update=1.0, weight_sync=0.2))
    rows += ranks("policy", "weight_sync", [[0.2] * 8, [0.001] * 8]) + ranks(
        "policy", "update", [[0.9] * 8, [0.89] * 8]
    )
    found = finding_of("straggler", rules()["straggler"], evidence(rows))
    assert (found.state, found.observation and found.observation.words["phase"]) == ("clear", "update")


def test_a_phase_of_no_weight_makes_no_straggler() -> None:
    rows = driver(even(8, rollout=1.0, update=1.0))
    rows += ranks("policy", "old_logprobs", [[0.02] * 8, [0.001] * 8]) + ranks(
        "policy", "update", [[0.9] * 8, [0.89] * 8]
    )
    found = finding_of("straggler", rules()["straggler"], evidence(rows))
    assert (found.state, found.observation and found.observation.words["phase"]) == ("clear", "update")


def test_an_engine_that_tells_how_full_it_is_needs_no_file() -> None:
    def told(empty: float, most: float) -> str:
        found = engine(nearly_empty_percent=empty, running_requests=most, running_requests_mean=most / 2)
        return finding_of("engine_occupancy", rules()["engine_occupancy"], found).state

    assert (told(70.0, 64.0), told(10.0, 64.0), told(70.0, 4.0)) == ("fires", "clear", "clear")


def test_a_prefix_cache_that_is_on_and_holds_no_block_is_not_to_be_switched_on() -> None:
    knobs = {"rollout.samples_per_prompt": 4, "rollout.enable_prefix_caching": True}
    rows, hits = driver(even(8, rollout=1.0)), series("prefix_cache_hit_percent", [0.0] * 8, role="vllm")
    found = finding_of("prefix_cache_unused", rules()["prefix_cache_unused"], evidence(rows, hits, knobs=knobs))
    assert found.state == "not_enough_data"
    assert "full blocks" in found.record
    off = evidence(rows, hits, knobs={**knobs, "rollout.enable_prefix_caching": False})
    assert finding_of("prefix_cache_unused", rules()["prefix_cache_unused"], off).state == "fires"


def test_what_a_profiler_holds_is_no_growth() -> None:
    memory = [1e9] * 10 + [1.4e9, 1.8e9, 1.9e9] + [1.9e9] * 9
    rows = driver(even(22, update=1.0))
    told = series("memory_bytes", memory)
    found = Evidence(spans=evidence(rows).spans, readings=(told,), profiled=((11, 12),))
    seen = finding_of("memory_growth", rules()["memory_growth"], found)
    assert (seen.state, seen.observation and seen.observation.value) == ("clear", 0.0)


def seconds_of_steps(**told: list[float]) -> Evidence:
    """Return a run of a trainer that tells how long its steps and phases took, and not when."""
    return evidence((), *(series(f"time/{name}_seconds", values) for name, values in told.items()))


def test_a_reading_that_is_no_number_hides_no_other() -> None:
    def node(rank: int, used: float) -> list[Readings]:
        told = {"disk_free_bytes": [4.0, 100.0 - used], "disk_total_bytes": [100.0, 100.0]}
        told |= {"memory_used_bytes": [used, used], "memory_total_bytes": [100.0, float("nan")]}
        told |= {"gpu0_memory_used_bytes": [float("nan"), used], "gpu0_memory_total_bytes": [100.0, 100.0]}
        return [series(name, values, role="runner", rank=rank) for name, values in told.items()]

    found = evidence((), *node(0, float("nan")), *node(1, 99.0))
    for key in ("disk_low", "node_memory", "device_memory_full"):
        seen = finding_of(key, rules()[key], found)
        assert (seen.state, seen.observation and seen.observation.rank) == ("fires", 1), key


def test_memory_of_the_first_step_alone_is_no_growth() -> None:
    one = evidence((), series("memory_bytes", [1e9]))
    assert finding_of("memory_growth", rules()["memory_growth"], one).state == "not_enough_data"


def test_numbers_that_are_none_are_not_healthy() -> None:
    nothing = evidence((), series("response/truncated_fraction", [float("nan")] * 8))
    assert finding_of("answers_cut", rules()["answers_cut"], nothing).state == "not_enough_data"
    one = evidence((), series("groups/zero_variance_fraction", [0.9] * 7 + [float("nan")]))
    assert finding_of("groups_without_signal", rules()["groups_without_signal"], one).level == "bad"


@pytest.mark.parametrize("name", ["reward/correct", "eval/accuracy"])
def test_groups_of_a_policy_that_knows_the_answers_are_no_fault(name: str) -> None:
    def state(right: float) -> str:
        of_groups = series("groups/zero_variance_fraction", [0.9] * 8)
        of_run = evidence((), of_groups, series(name, [right] * 8))
        return finding_of("groups_without_signal", rules()["groups_without_signal"], of_run).state

    assert (state(0.97), state(0.3)) == ("not_enough_data", "fires")


def test_a_phase_that_is_told_of_some_steps_alone_took_no_0_seconds_in_the_others() -> None:
    reward = [9.0 if step % 3 == 0 else float("nan") for step in range(20)]
    found = finding_of("slow_reward", rules()["slow_reward"], seconds_of_steps(step=[10.0] * 20, reward=reward))
    assert (found.state, found.observation and found.observation.value) == ("fires", 0.9)


def test_a_trainer_without_times_has_no_checkpoints_that_took_none() -> None:
    found = finding_of("checkpoint_stall", rules()["checkpoint_stall"], seconds_of_steps(step=[10.0] * 20))
    assert found.state == "not_enough_data"


def test_an_outlier_that_no_phase_explains_says_so() -> None:
    found = finding_of(
        "outlier_step", rules()["outlier_step"], seconds_of_steps(step=[10.0] * 10 + [90.0] + [10.0] * 5)
    )
    assert found.sentence().endswith("Longer than usual in it: no recorded phase.")
    assert found.observation is not None
    assert (found.observation.begin, found.observation.role) == (found.observation.begin, "driver")


def test_a_step_that_a_profiler_recorded_is_no_outlier() -> None:
    def finding(slow_step: int) -> Finding:
        durations = [1.0] * 12
        durations[2] = durations[3] = 6.0  # steps 3 and 4, recorded
        durations[4] = 5.0  # step 5, in which the report is written
        durations[slow_step - 1] = 9.0
        one = Evidence(spans=evidence(driver([{"update": seconds} for seconds in durations])).spans, profiled=((3, 4),))
        return finding_of("outlier_step", rules()["outlier_step"], one)

    assert finding(slow_step=4).state == "clear"
    fires = finding(slow_step=9)
    assert (fires.state, fires.observation and fires.observation.value) == ("fires", 9.0)
    assert "Step 9 took" in fires.sentence()
    few = Evidence(spans=evidence(driver(even(5, update=1.0))).spans, profiled=((2, 3),))
    assert finding_of("outlier_step", rules()["outlier_step"], few).state == "not_enough_data"


def test_steps_without_times_have_no_window_beside_spans_of_workers() -> None:
    found = Evidence(
        spans=evidence(ranks("policy", "update", [[1.0] * 8])).spans,
        readings=seconds_of_steps(step=[10.0] * 8).readings,
    )
    assert found.has_steps
    assert found.window == (0, 0)


def test_the_first_step_of_the_attempt_is_left_out_not_that_of_the_window() -> None:
    rows = driver(even(8, update=1.0))
    later = [row for row in rows if row[2] >= 4]
    assert [step.number for step in evidence(rows).steps] == [2, 3, 4, 5, 6, 7, 8]
    assert [step.number for step in evidence(later).steps] == [4, 5, 6, 7, 8]
    resumed = Evidence(spans=evidence(later).spans, first_step=4)
    assert [step.number for step in resumed.steps] == [5, 6, 7, 8]
    # a resumed attempt warms up too
    slow = evidence(
        [row for row in driver([*even(3, update=1.0), {"update": 6.0}, *even(5, update=1.0)]) if row[2] > 3]
    )
    warm = finding_of(
        "warm_up", rules()["warm_up"], Evidence(spans=slow.spans, first_step=4, capture=CaptureFacts(steps=(4, 5)))
    )
    assert (warm.state, warm.observation and warm.observation.value) == ("fires", 6.0)


def test_seconds_by_rank_are_those_of_a_plain_pass() -> None:
    rng = np.random.default_rng(3)
    told = rng.uniform(0.1, 2.0, (3, 12)).round(3)
    twice = ranks("policy", "update", told.tolist()) + ranks("policy", "update", told[::-1].tolist())
    rows = [*driver(even(12, update=3.0)), *twice]
    rng.shuffle(rows)
    numbers, seconds = evidence(rows).by_rank("policy", "update") or (None, None)
    assert numbers is not None
    assert seconds is not None
    plain = [
        [sum(row[7] for row in rows if row[:5] == ("policy", rank, step, "update", "")) / 1e9 for step in range(2, 13)]
        for rank in range(3)
    ]
    assert numbers.tolist() == [0, 1, 2]
    assert np.allclose(seconds, plain)
