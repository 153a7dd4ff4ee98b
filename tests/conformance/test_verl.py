"""verl takes what we write: random valid specs, composed by the real Hydra from the real configs, and read back."""

import os
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.hydra import read
from jobs.catalog.knob import applicable
from jobs.catalog.runspec import RunSpec, SpecInvalid, parse_spec
from jobs.catalog.trainer import trainers
from tests.conformance.hydra_compose import Composer, words
from tests.conformance.specs import coverage, draw
from tests.conformance.unpacked_wheels import unpacked
from tests.conformance.verl_specs import ALGORITHMS, DRAWING

RUN_DIR = Path("/srv/runs/r-1/a1")
VERSIONS = trainers()["verl"].versions
WANTED = 4  # knobs that each spec gets on purpose, so that all are covered


def number_of_specs() -> int:
    """Return how many specs per version: `make proof-conformance` asks for more than `make test`."""
    return int(os.environ.get("PITWALL_CONFORMANCE_SPECS", "40"))


@cache
def composer_of(version: str) -> Composer:
    """Return the configs of a version, which are read once."""
    return Composer(unpacked(f"verl-{version}"))


@cache
def specs_of(version: str, number: int) -> tuple[RunSpec, ...]:
    """Return random specs of every algorithm; the knobs of each algorithm are wanted in turn."""
    turns = {a: [k for k in applicable(a, "verl", version) if k not in DRAWING.skip] for a in ALGORITHMS}
    found = []
    for place in range(number):
        algorithm = ALGORITHMS[place % len(ALGORITHMS)]
        turn = turns[algorithm]
        wanted = [turn.pop(0) for _ in range(min(WANTED, len(turn)))]
        turns[algorithm] = turn + wanted
        rng = random.Random(f"{version} {place}")
        found.append(draw(DRAWING, version=version, algorithm=algorithm, rng=rng, wanted=wanted))
    return tuple(found)


def overrides_of(spec: RunSpec) -> tuple[str, list[str]]:
    """Return the program that a spec starts, and its overrides."""
    return words(adapter("verl").command(spec=spec, run_dir=RUN_DIR, python="python", device="cuda").argv)


@pytest.mark.parametrize("version", VERSIONS)
def test_hydra_takes_every_command_and_every_value_arrives_as_it_is_meant(version: str) -> None:
    composer = composer_of(version)

    for place, spec in enumerate(specs_of(version, number_of_specs())):
        program, overrides = overrides_of(spec)
        composed = composer.quick(program, overrides) if place % 20 else composer.compose(program, overrides)

        assert composed.is_accepted, f"{composed.text}\n{' '.join(overrides)}"
        assert set(composed.missing) <= {"reward.reward_model.rollout.name", "reward_model.rollout.name"}
        for word in overrides:
            given = read(word)
            if given.key != "model_engine" and not given.key.startswith("hydra."):
                there = composed.values[given.key]
                assert (there, type(there)) == (given.value, type(given.value)), f"{word} arrives as {there!r}"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_command_read_back_is_the_spec_it_was_written_from(version: str) -> None:
    for spec in specs_of(version, number_of_specs()):
        argv = adapter("verl").command(spec=spec, run_dir=RUN_DIR, python="python", device="cuda").argv

        answer = adapter("verl").read_back(words=argv, version=version)
        again = parse_spec(answer.spec)

        assert answer.unread == ()
        assert answer.translated == ()
        for part in ("name", "algorithm", "trainer", "model", "data", "reward"):
            assert getattr(again, part) == getattr(spec, part)
        assert {k: v.value for k, v in again.knobs.items()} == {k: v.value for k, v in spec.knobs.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_specs_set_every_knob(version: str, record_property: Callable[[str, object], None]) -> None:
    number = number_of_specs()
    specs = specs_of(version, number)
    seen = coverage(specs)
    one = [k for k, knob in _knobs(version).items() if seen.get(k, 0) < 1 and k not in DRAWING.skip]
    two = [k for k, knob in _knobs(version).items() if seen.get(k, 0) < _most(knob) and k not in DRAWING.skip]

    text = f"verl {version}: {number} specs set {len(seen) - len(one)} of {len(seen)} knobs, "
    text += f"{len(seen) - len(two)} to two values that are not the default (a switch has one)"
    print(text)
    record_property("coverage", text)

    if number >= 500:
        assert two == []


def _knobs(version: str) -> dict[str, Any]:
    return {k: knob for a in ALGORITHMS for k, knob in applicable(a, "verl", version).items()}


def _most(knob: Any) -> int:
    """Return how many values that are not its default a knob has to be seen with."""
    if knob.type == "bool" and not knob.is_optional:
        return 1
    if knob.type == "choice":
        return min(len(knob.choices) - (not knob.is_optional), 2)
    if knob.type == "text":
        return min(len(DRAWING.texts.get(knob.id, ())), 2)
    return 2


@pytest.mark.parametrize(
    ("word", "knobs", "field"),
    [
        ("algorithm.kl_ctrl.horizon=soon", {"algorithm.kl_horizon": "soon"}, "knobs.algorithm.kl_horizon"),
        ("trainer.nnodes=1.5", {"placement.policy_nodes": 1.5}, "knobs.placement.policy_nodes"),
        (
            "actor_rollout_ref.actor.policy_loss.loss_mode=clip-cov",
            {"algorithm.policy_loss": "clip-cov"},
            "knobs.algorithm.policy_loss",
        ),
        (
            "actor_rollout_ref.rollout.gpu_memory_utilization=1.5",
            {"rollout.gpu_memory_fraction": 1.5},
            "knobs.rollout.gpu_memory_fraction",
        ),
        ("actor_rollout_ref.actor.optim.lr=abc", {"optimizer.learning_rate": "abc"}, "knobs.optimizer.learning_rate"),
        ("actor_rollout_ref.rollout.n=0", {"rollout.samples_per_prompt": 0}, "knobs.rollout.samples_per_prompt"),
        ("actor_rollout_ref.rollout.name=hf", {"rollout.backend": "hf"}, "knobs.rollout.backend"),
        ("trainer.v1.trainer_mode=bogus", {"async.mode": "bogus"}, "knobs.async.mode"),
        ("data.truncation=maybe", {"data.truncation": "maybe"}, "knobs.data.truncation"),
        ("data.shuffle=7", {"data.shuffle": 7}, "knobs.data.shuffle"),
    ],
)
def test_we_refuse_values_that_hydra_lets_through(word: str, knobs: dict[str, Any], field: str) -> None:
    composer = composer_of(VERSIONS[0])
    raw = {"algorithm": "grpo", "trainer": {"name": "verl"}, "knobs": knobs} | DRAWING.sections("grpo")

    composed = composer.quick("main_ppo", [word])
    with pytest.raises(SpecInvalid) as refused:
        parse_spec(raw)

    assert composed.is_accepted
    assert [problem.field for problem in refused.value.problems] == [field]
