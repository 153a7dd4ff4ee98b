"""What would make a run fit, and what would make it faster: each change does what it promises, and only that."""

from collections.abc import Mapping

import pytest

from jobs.catalog.knob import knobs
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import changed, refused
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.value import Value
from jobs.planner.estimate import estimate
from jobs.planner.read.context import samples_per_update
from jobs.planner.read.spec import read_job
from jobs.planner.search.advice import PlanAdvice, advise
from jobs.planner.search.plan_changes import Situation, plan_changes
from jobs.planner.search.tunable_knobs import PERFORMANCE, teaches_the_same
from tests.jobs.planner.hardware import fleet, models_for

RUNS = tuple(name for name in recipes() if "deepseek" not in name)

_TOO_LARGE: Mapping[str, Mapping[str, Value]] = {  # runs made too large for their devices, and what was done to them
    "verl-grpo-qwen3-8b": {"train.max_tokens_per_gpu": 131072, "memory.param_offload": False},
    "openrlhf-grpo-qwen2.5-7b": {"memory.gradient_checkpointing": False, "memory.trainer_sleep": False},
    "openrlhf-sft-8b": {"memory.zero_stage": "0", "train.micro_batch_size": 16},
    "verl-sft-qwen3-8b": {"memory.gradient_checkpointing": False, "train.max_tokens_per_gpu": 65536},
}


def _spec(name: str) -> RunSpec:
    return recipes()[name].spec


def _advice(spec: RunSpec) -> PlanAdvice:
    return advise(spec, models_for(spec), fleet(max(spec.num_workers, 8)))


@pytest.mark.parametrize("name", RUNS)
def test_every_change_does_what_it_promises(name: str) -> None:
    spec = _spec(name)
    rules = {problem.message for problem in refused(spec)}

    advice = _advice(spec)

    for each in (*advice.fit, *advice.faster):
        after = parse_spec(to_json(changed(spec, each.changes)))
        found = estimate(read_job(after, models_for(spec), fleet(max(spec.num_workers, 8))))
        assert found.time.step.middle == pytest.approx(each.after.seconds)
        assert found.verdict == each.after.verdict
        assert {problem.message for problem in refused(after)} <= rules
        assert teaches_the_same(spec, after)
        assert each.title
        assert each.changes
    assert all(each.saved_bytes > 0 for each in advice.fit)
    assert all(each.saved_seconds > 0 and each.after.verdict != "no" for each in advice.faster)
    assert [e.saved_seconds for e in advice.faster] == sorted((e.saved_seconds for e in advice.faster), reverse=True)


@pytest.mark.parametrize("name", _TOO_LARGE)
def test_a_run_that_does_not_fit_is_made_to(name: str) -> None:
    spec = changed(_spec(name), _TOO_LARGE[name])
    before = estimate(read_job(spec, models_for(spec), fleet()))
    assert before.verdict == "no"

    advice = _advice(spec)

    best = next(iter(advice.fit), None)
    cure = best if best is not None and best.after.verdict != "no" else advice.together
    assert cure is not None
    assert cure.after.verdict != "no"
    assert cure.after.needed < cure.before.needed
    after = read_job(changed(spec, cure.changes), models_for(spec), fleet())
    assert estimate(after).verdict == cure.after.verdict


def test_what_is_learned_never_changes() -> None:
    learning = ("optimizer", "algorithm", "reward", "data", "lora", "pairs", "quantization", "async", "models", "eval")

    assert not [name for name in PERFORMANCE if name.partition(".")[0] in learning]
    for kept in (
        "memory.precision",
        "memory.master_precision",
        "memory.rollout_precision",
        "memory.gradient_accumulation_precision",
        "rollout.max_new_tokens",
        "rollout.max_prompt_tokens",
        "rollout.prompts_per_step",
        "rollout.samples_per_prompt",
        "rollout.temperature",
        "rollout.top_p",
        "train.batch_size",
        "train.epochs_per_rollout",
        "train.max_sequence_tokens",
        "train.num_epochs",
        "train.num_steps",
        "train.seed",
        "train.updates_per_rollout",
    ):
        assert kept in knobs()
        assert kept not in PERFORMANCE
    assert {name for name in PERFORMANCE if not name.startswith("hardware.")} <= set(knobs())


@pytest.mark.parametrize("name", RUNS)
def test_plan_changes_change_performance_knobs_alone_and_leave_the_batch(name: str) -> None:
    spec = _spec(name)
    job = read_job(spec, models_for(spec), fleet())

    for plan_change in plan_changes():
        changes = plan_change.make(Situation(spec=spec, job=job, fleet=fleet(64))) or {}
        assert set(changes) <= PERFORMANCE, plan_change.id
        assert samples_per_update(changed(spec, changes)) == samples_per_update(spec)


def test_a_change_of_learning_is_seen() -> None:
    spec = _spec("verl-grpo-qwen3-8b")

    assert teaches_the_same(spec, changed(spec, {"train.max_tokens_per_gpu": 30000}))
    assert not teaches_the_same(spec, changed(spec, {"optimizer.learning_rate": 2e-6}))
    assert not teaches_the_same(spec, changed(spec, {"algorithm.kl_coefficient": 0.0}))
    assert not teaches_the_same(spec, changed(spec, {"data.id": "/other.parquet"}))


def test_a_knob_that_would_cease_to_count_is_seen() -> None:
    spec = changed(_spec("verl-grpo-qwen3-8b"), {"memory.master_precision": "bfloat16"})

    assert not teaches_the_same(spec, changed(spec, {"parallel.engine": "megatron"}))


@pytest.mark.parametrize(
    "name", ["verl-grpo-qwen3-8b", "openrlhf-sft-8b", "native-grpo-demo", "openrlhf-ppo-70b-48gpu"]
)
def test_changes_lower_the_largest_terms_as_they_say(name: str) -> None:
    spec = _spec(name)
    before = estimate(read_job(spec, models_for(spec), fleet(max(spec.num_workers, 8))))
    pool = next(pool for pool in before.pools if pool.name == before.pool)
    terms = next(phase for phase in pool.phases if phase.phase == before.phase).memory.terms
    rules = {problem.message for problem in refused(spec)}

    largest_terms = _advice(spec).largest_terms

    memory = [term for term in largest_terms if term.of == "memory"]
    assert [term.now for term in memory] == sorted(terms.values(), reverse=True)[:3]
    assert any(term.change is not None for term in memory)
    for term in largest_terms:
        if term.change is None:
            assert term.after == term.now
            continue
        after = changed(spec, term.change.changes)
        found = estimate(read_job(after, models_for(spec), fleet(max(spec.num_workers, 8))))
        assert {problem.message for problem in refused(after)} <= rules
        assert term.after < term.now
        order = ("fits", "tight", "no")
        assert order.index(found.verdict) <= order.index(before.verdict)  # an engine that does not start is no gain
        if term.of == "time":
            assert found.time.phases[term.key].middle == pytest.approx(term.after)
            assert found.verdict != "no"
        else:
            there = next(each for each in found.pools if each.name == before.pool)
            phase = next(each for each in there.phases if each.phase == before.phase)
            assert phase.memory.terms.get(term.key, 0) == term.after  # type: ignore[call-overload]
