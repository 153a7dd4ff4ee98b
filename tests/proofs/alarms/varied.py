"""Healthy runs changed in what says nothing of health: fewer steps, more noise, another range, less known."""

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

from tests.proofs.alarms.corpus import Points, RecordedRun

OWN_REWARD = {
    "kind": "custom",
    "file_name": "own.py",
    "source": "def reward(prompt, completion, answer):\n    return 0\n",
}
NOISE = 0.1
_REWARDS = ("reward/mean", "eval/reward")
_KNOWN = ("eval/", "reward/correct", "reward/max")

Change = Callable[[str, Points, random.Random], Points]


def varied(runs: Sequence[RecordedRun], *, seed: int) -> list[RecordedRun]:
    """Return every healthy run in every variant; those of rewards are of runs that have one."""
    made = []
    for variant, change in VARIANTS.items():
        for run in runs:
            is_of_rewards = "reward" in variant
            if not run.is_healthy or (is_of_rewards and "reward/mean" not in run.series):
                continue
            rng = random.Random(f"{seed} {variant} {run.name}")
            series = {name: change(name, points, rng) for name, points in run.series.items()}
            series = {name: points for name, points in series.items() if points}
            spec = {**run.spec, "reward": OWN_REWARD} if is_of_rewards else run.spec
            made.append(dataclasses.replace(run, name=f"{run.name}, {variant}", spec=spec, series=series))
    return made


def _noisy(name: str, points: Points, rng: random.Random) -> Points:
    if name.endswith("learning_rate"):
        return points
    return [(step, value * rng.gauss(1.0, NOISE)) for step, value in points]


def _scaled(name: str, points: Points, _rng: random.Random) -> Points:
    return [(step, 10 * value - 3) for step, value in points] if name in _REWARDS else points


def _unknown(name: str, points: Points, rng: random.Random) -> Points:
    return [] if name.startswith(_KNOWN) else _scaled(name, points, rng)


VARIANTS: Mapping[str, Change] = {
    "every second step": lambda _name, points, _rng: points[::2],
    "every third step": lambda _name, points, _rng: points[::3],
    "a tenth of noise": _noisy,
    "its first third": lambda _name, points, _rng: points[: max(1, len(points) // 3)],
    "its first two thirds": lambda _name, points, _rng: points[: max(1, 2 * len(points) // 3)],
    "a reward of -3 to 7": _scaled,
    "a reward of -3 to 7, nothing else known": _unknown,
}
