"""Runs of GRPO that are healthy, and what makes them ill, as phases and readings. Numbers vary by seed."""

import random
from collections.abc import Callable, Mapping

from profiling.evidence import CaptureFacts, Evidence, Readings
from tests.profiling.diagnosis.diagnosis_runs import Row, driver, evidence, ranks, series

STEPS = 20
SHARES = {"rollout": 0.5, "reward": 0.02, "old_logprobs": 0.06, "reference": 0.06, "update": 0.33, "weight_sync": 0.02}


def run(rng: random.Random, **changes: float) -> Evidence:
    """Return a run whose phases take `changes` times as long as in a healthy one; the first step warms up."""
    seconds = rng.uniform(5, 60)
    steps = [
        {
            phase: share * seconds * changes.get(phase, 1.0) * rng.uniform(0.95, 1.05) * (2.5 if number == 0 else 1.0)
            for phase, share in {**SHARES, "data_wait": 0.002}.items()
        }
        for number in range(STEPS)
    ]
    return evidence([*driver(steps, gap=seconds * 0.004), *_updates(rng, seconds)], *_readings(rng), knobs=_KNOBS)


_KNOBS = {"rollout.samples_per_prompt": 8, "rollout.enable_prefix_caching": True}


def _updates(rng: random.Random, seconds: float, late: float = 1.0) -> list[Row]:
    times = [
        [seconds * 0.25 * rng.uniform(0.98, 1.02) * (late if rank == 2 else 1.0) for _ in range(STEPS)]
        for rank in range(4)
    ]
    return ranks("policy", "update", times, name="forward", depth=1)


def _readings(rng: random.Random, **changes: float) -> tuple[Readings, ...]:
    def told(name: str, usual: float, spread: float = 0.05, role: str = "driver") -> Readings:
        value = changes.get(name, usual)
        return series(name, [value * rng.uniform(1 - spread, 1 + spread) for _ in range(STEPS)], role=role)

    length = rng.uniform(200, 800)
    growth = changes.get("growth", 0.0)
    memory = [4e9 * (1 + growth * step) * rng.uniform(0.998, 1.002 - 0.002 * bool(growth)) for step in range(STEPS)]
    return (
        told("response/length_mean", length),
        told("response/length_max", length * changes.get("tail", 1.8)),
        told("response/truncated_fraction", 0.02),
        told("groups/zero_variance_fraction", 0.2),
        told("preemptions", 0.0, role="vllm"),
        told("kv_cache_percent", 70, role="vllm"),
        told("running_requests", 64, role="vllm"),
        told("running_requests_mean", 50, role="vllm"),
        told("waiting_requests", 0.0, role="vllm"),
        told("nearly_empty_percent", 8, role="vllm"),
        told("prefix_cache_hit_percent", 82, role="vllm"),
        series("memory_bytes", memory, role="policy"),
        told("memory_used_bytes", 0.5e12, role="runner"),
        series("memory_total_bytes", [1e12] * STEPS, role="runner"),
        told("gpu0_memory_used_bytes", 64e9, role="runner"),
        series("gpu0_memory_total_bytes", [85e9] * STEPS, role="runner"),
        told("disk_free_bytes", 2e12, role="runner"),
        series("disk_total_bytes", [4e12] * STEPS, role="runner"),
    )


def recorded(rng: random.Random) -> Evidence:
    """Return a healthy run of which two steps were recorded, which made them up to a twentieth slower."""
    healthy, first = run(rng), rng.randint(6, STEPS - 5)
    slower = rng.uniform(1.0, 1.05)
    seconds = rng.uniform(5, 60)
    steps = [
        {
            phase: share * seconds * rng.uniform(0.98, 1.02) * (slower if number + 1 in (first, first + 1) else 1.0)
            for phase, share in SHARES.items()
        }
        for number in range(STEPS)
    ]
    capture = CaptureFacts(steps=(first, first + 1))
    return evidence(
        [*driver(steps, gap=seconds * 0.004), *_updates(rng, seconds)], *healthy.readings, knobs=_KNOBS, capture=capture
    )


def _with(rng: random.Random, **changes: float) -> Evidence:
    healthy = run(rng)
    return Evidence(spans=healthy.spans, readings=_readings(rng, **changes), knobs=_KNOBS)


def _pausing(rng: random.Random, phase: str) -> Evidence:
    seconds = rng.uniform(5, 60)
    steps: list[Mapping[str, float]] = [
        {"rollout": seconds * 0.6, "update": seconds * 0.4, **({phase: seconds * 1.5} if n % 5 == 4 else {})}
        for n in range(STEPS)
    ]
    return evidence(driver(steps))


def _outlying(rng: random.Random) -> Evidence:
    steps = [{"rollout": 6.0, "update": 4.0 * rng.uniform(0.95, 1.05)} for _ in range(STEPS)]
    steps[rng.randrange(4, STEPS)]["rollout"] = rng.uniform(30, 90)
    return evidence(driver(steps))


def _first(rng: random.Random) -> Evidence:
    steps = [{"update": 5.0 * (rng.uniform(4, 9) if number == 0 else 1.0)} for number in range(STEPS)]
    return evidence(driver(steps), capture=CaptureFacts(steps=(1, 2)))


def _inflated(rng: random.Random) -> Evidence:
    slow = rng.uniform(1.5, 3)
    steps = [{"update": 5.0 * (slow if number in (9, 10) else 1.0)} for number in range(STEPS)]
    return evidence(driver(steps), capture=CaptureFacts(steps=(10, 11)))


def _pieces(rng: random.Random) -> Evidence:
    rows = driver([{"rollout": 3.0, "update": 3.0}] * STEPS)
    for _ in range(rng.randint(24, 60)):
        rows += ranks("policy", "update", [[rng.uniform(0.01, 0.05)] * STEPS], name="forward", depth=1)
    return evidence(rows)


def _late(rng: random.Random) -> Evidence:
    rows = driver([{"rollout": 3.0, "update": 3.0}] * STEPS)
    return evidence([*rows, *_updates(rng, 6.0, late=rng.uniform(1.2, 1.6))])


PLANTED: Mapping[str, Callable[[random.Random], Evidence]] = {
    "rollout_dominates": lambda rng: run(rng, rollout=rng.uniform(4, 12)),
    "slow_reward": lambda rng: run(rng, reward=rng.uniform(10, 30)),
    "weight_sync_slow": lambda rng: run(rng, weight_sync=rng.uniform(6, 20)),
    "data_wait": lambda rng: run(rng, data_wait=rng.uniform(60, 200)),
    "reference_slow": lambda rng: run(rng, reference=rng.uniform(8, 20)),
    "checkpoint_stall": lambda rng: _pausing(rng, "checkpoint"),
    "evaluation_slow": lambda rng: _pausing(rng, "eval"),
    "straggler": _late,
    "outlier_step": _outlying,
    "warm_up": _first,
    "profiler_inflates": _inflated,
    "host_loop": lambda rng: evidence(driver([{"rollout": 3.0, "update": 3.0}] * STEPS, gap=rng.uniform(0.6, 3))),
    "tiny_micro_batches": _pieces,
    "rollout_tail": lambda rng: _with(rng, tail=rng.uniform(5, 12)),
    "memory_growth": lambda rng: _with(rng, growth=rng.uniform(0.02, 0.06)),
    "kv_cache_full": lambda rng: _with(rng, preemptions=rng.uniform(2, 9), kv_cache_percent=99.0),
    "engine_queue": lambda rng: _with(rng, waiting_requests=rng.uniform(40, 90), kv_cache_percent=15.0),
    "engine_occupancy": lambda rng: _with(rng, nearly_empty_percent=rng.uniform(45, 90)),
    "prefix_cache_unused": lambda rng: _with(rng, prefix_cache_hit_percent=rng.uniform(1, 8)),
    "answers_cut": lambda rng: _with(rng, **{"response/truncated_fraction": rng.uniform(0.2, 0.6)}),
    "groups_without_signal": lambda rng: _with(rng, **{"groups/zero_variance_fraction": rng.uniform(0.85, 1)}),
    "node_memory": lambda rng: _with(rng, memory_used_bytes=rng.uniform(0.96e12, 0.99e12)),
    "device_memory_full": lambda rng: _with(rng, gpu0_memory_used_bytes=rng.uniform(83.5e9, 84.5e9)),
    "disk_low": lambda rng: _with(rng, disk_free_bytes=rng.uniform(0.02e12, 0.1e12)),
}
