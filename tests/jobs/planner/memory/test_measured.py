"""The table of measured ways to train holds what the measured cases do, and others are trusted less."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.planner.estimate import estimate
from jobs.planner.job import Fleet, Job, Layout, Offload, Training
from jobs.planner.memory.measured import FAR_OFF, MEASURED, combination, doubt_of, is_measured
from tests.jobs.planner.trainings import training
from tests.planner_cases.load import HERE, load
from tests.planner_cases.measure import readings


def test_the_table_is_what_the_cases_hold() -> None:
    cases = (*load(HERE), *load(HERE / "later"))
    asked = [case for case in cases if case.job is not None and (case.truth.verdict or case.truth.peak_bytes)]
    trained = [each for case in asked if case.job for each in (case.job.policy, case.job.critic) if each is not None]
    assert not MEASURED & FAR_OFF
    assert {combination(each) for each in trained} == MEASURED | FAR_OFF


def test_a_way_of_which_three_tenths_of_the_peaks_are_a_fifth_too_high_is_far_off() -> None:
    above: dict[object, list[float]] = defaultdict(list)
    cases = (*load(HERE), *load(HERE / "later"))
    # Of a run whose tensors are known, what the allocator held beyond them is no matter of the way.
    counted = {repr(case.job) for case in cases if case.counts == "allocated"}
    for case in cases:
        if case.counts == "reserved" and repr(case.job) in counted:
            continue
        errors = [each.error for each in readings(case) if each.quantity == "memory" and each.error is not None]
        if case.job is not None:
            above[combination(case.job.policy)].extend(1 / (1 + error) for error in errors)
    far = {way for way, found in above.items() if found and sum(each >= 1.2 for each in found) > 0.3 * len(found)}
    assert far == FAR_OFF


@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({}, "masters"),
        ({"mixed_precision": "pure"}, "pure"),
        ({"weight_bytes": 4.0, "has_master": False}, "masters"),
        ({"weight_bytes": 4.0, "mixed_precision": "autocast"}, "autocast"),
        ({"compute": "fp8"}, "fp8"),
        ({"method": "lora"}, "16 bits"),
    ],
)
def test_precision_is_read_from_what_is_held(changes: dict[str, object], precision: str) -> None:
    assert combination(training(layout=Layout(num_devices=8, shards=3), **changes)).precision == precision  # type: ignore[arg-type]


def _job(policy: Training) -> Job:
    devices = policy.layout.num_devices
    return Job(
        algorithm="sft",
        fleet=Fleet(accelerator=find_accelerator("h100-sxm"), num_devices=devices, host_bytes=2 << 40),
        policy=policy,
    )


def _share(policy: Training) -> float:
    return max(pool.share for pool in estimate(_job(policy)).pools)


def test_a_way_that_nobody_measured_needs_a_margin_and_says_so() -> None:
    known = training(layout=Layout(num_devices=8, shards=3), weight_bytes=4.0, gradient_bytes=4.0, has_master=False)
    new = replace(known, mixed_precision="autocast")
    assert is_measured(known)
    assert not is_measured(new)
    for policy in (known, new):
        tokens = 1024
        while _share(replace(policy, sequence=tokens)) < 0.86:
            tokens += 1024
        found = estimate(_job(replace(policy, sequence=tokens)))
        assert 0.84 < _share(replace(policy, sequence=tokens)) < 0.92
        assert found.verdict == ("fits" if policy is known else "tight")
        assert (doubt_of(policy) in found.notes) == (policy is new)
        assert any("more likely runs than not" in note for note in found.notes) == (policy is new)


def test_experts_of_modules_are_trusted_least() -> None:
    layout = Layout(num_devices=8, shards=3)
    held: dict[str, Any] = {"weight_bytes": 4.0, "gradient_bytes": 4.0, "has_master": False, "kernels": "eager"}
    modules, dense = (training(model, layout, **held) for model in ("qwen3-30b-a3b", "llama-3-8b"))
    assert combination(modules) == combination(dense)
    assert is_measured(dense)
    assert not is_measured(modules)
    assert is_measured(replace(modules, kernels="compiled"))
    assert is_measured(replace(modules, method="lora", lora_rank=8))
    wider = replace(modules, layout=Layout(num_devices=16, shards=3), sequence=8192)
    assert 0.55 < _share(wider) < 0.65
    assert estimate(_job(wider)).verdict == "tight"
    assert estimate(_job(replace(wider, sequence=1024))).verdict == "fits"


def test_what_was_measured_far_off_is_trusted_less() -> None:
    policy = training(
        layout=Layout(num_devices=8, shards=3), method="lora", lora_rank=8, offload=Offload(params=True, optimizer=1.0)
    )
    assert combination(policy) in FAR_OFF
    assert not is_measured(policy)


def test_a_sharded_quantized_base_fits_only_with_much_room_unless_its_like_was_measured() -> None:
    policy = training(
        "llama-3-70b",
        Layout(num_devices=2, shards=3),
        method="qlora",
        lora_rank=8,
        base_bytes=0.516,
        weight_bytes=2.0,
        micro_batch=4,
    )
    assert is_measured(policy)
    assert 0.65 < _share(policy) < 0.92
    assert estimate(_job(policy)).verdict == "fits"
    never = replace(policy, kernels="compiled", micro_batch=5)
    assert not is_measured(never)
    assert 0.75 < _share(never) < 0.83
    assert estimate(_job(never)).verdict == "tight"
    assert estimate(_job(replace(never, micro_batch=1))).verdict == "fits"
