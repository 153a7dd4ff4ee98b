"""What holds a spec of verl against the wheel: is its command taken, do its values arrive, does it read back."""

import json
import os
import random
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jobs.adapters.adapter import adapter
from jobs.adapters.command_line.hydra import read
from jobs.catalog.knob import Knob, applicable
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from tests.conformance.hydra_compose import Composer, words
from tests.conformance.unpacked_wheels import unpacked
from tests.conformance.verl_specs import ALGORITHMS, DRAWING, TURNS, drawn
from tests.journeys.environments import make_environment

ROOT = Path(__file__).resolve().parents[2]
RUN_DIR = Path("/srv/runs/r-1/a1")
VERSIONS = trainers()["verl"].versions
WANTED = 12  # knobs that each spec gets on purpose, so that all are covered
NOT_MISSED = {"reward.reward_model.rollout.name", "reward_model.rollout.name"}  # of a reward model that is switched off
CHECKED = "0.9.1"
MODEL = ROOT / "jobs" / "engine" / "bundled" / "tiny-word-problems"


def number_of_specs() -> int:
    """Return how many specs per version are held against Hydra; `make proof-conformance` asks for more."""
    return int(os.environ.get("PITWALL_CONFORMANCE_SPECS", "40"))


@cache
def composer_of(version: str) -> Composer:
    """Return the configs of a version, which are read once."""
    return Composer(unpacked(f"verl-{version}"))


@cache
def specs_of(version: str, number: int) -> tuple[RunSpec, ...]:
    """Return random specs of every algorithm; the knobs of each algorithm are wanted in turn."""
    offered = [a for a in TURNS if trainers()["verl"].offers(a, version)]
    turns = {a: [k for k in applicable(a, "verl", version) if k not in DRAWING.skip] for a in offered}
    for algorithm, turn in turns.items():  # neighbors often exclude each other: one policy loss, one profiler
        random.Random(algorithm).shuffle(turn)
    found = []
    for place in range(number):
        algorithm = offered[place % len(offered)]
        turn = turns[algorithm]
        wanted = [turn.pop(0) for _ in range(min(WANTED, len(turn)))]
        turns[algorithm] = turn + wanted
        rng = random.Random(f"{version} {place}")
        found.append(drawn(version, algorithm, rng, wanted))
    return tuple(found)


def recipes_of() -> dict[str, RunSpec]:
    """Return every shipped recipe for verl by its id."""
    return {name: recipe.spec for name, recipe in recipes().items() if recipe.spec.trainer.name == "verl"}


def argv_of(spec: RunSpec) -> tuple[str, ...]:
    """Return the command that a spec is launched with."""
    return adapter("verl").command(spec=spec, run_dir=RUN_DIR, python="python", device="cuda").argv


def overrides_of(spec: RunSpec) -> tuple[str, list[str]]:
    """Return the program that a spec starts, and its overrides."""
    return words(argv_of(spec))


def refusals(spec: RunSpec, *, from_files: bool = False) -> list[str]:
    """Return what Hydra objects to in a spec's command, and which values arrive otherwise than they are meant."""
    program, overrides = overrides_of(spec)
    composer = composer_of(spec.trainer.version)
    composed = composer.compose(program, overrides) if from_files else composer.quick(program, overrides)
    if not composed.is_accepted:
        return [f"{composed.text} {' '.join(overrides)}"]
    may_miss = NOT_MISSED if spec.reward.kind != "model" else ()
    found = [f"{key} is missing" for key in composed.missing if key not in may_miss]
    for word in overrides:
        if word.startswith(("--", "hydra.", "model_engine=")):
            continue
        given = read(word)
        there = composed.values[given.key]
        if (there, type(there)) != (given.value, type(given.value)):
            found.append(f"{word} arrives as {there!r}")
    return found


def differences(spec: RunSpec) -> list[str]:
    """Return in what the spec that is read back from a spec's command differs from it."""
    answer = adapter("verl").read_back(arguments=argv_of(spec), version=spec.trainer.version)
    try:
        again = parse_spec(answer.spec)
    except SpecInvalid as error:
        return [str(error)]
    found = [f"{unread.option} is not read: {unread.why}" for unread in (*answer.left_out, *answer.unread)]
    found += [f"{changed.option} is taken for {changed.now}" for changed in answer.translated]
    told = ("id", "eval_id", "messages_column" if spec.algorithm == "sft" else "prompt_column")
    for column in told:
        if getattr(again.data, column) != getattr(spec.data, column):
            found.append(f"data.{column} is {getattr(again.data, column)!r}, not {getattr(spec.data, column)!r}")
    for part in ("name", "algorithm", "trainer", "model", "reward"):
        if getattr(again, part) != getattr(spec, part):
            found.append(f"{part} is {getattr(again, part)}, not {getattr(spec, part)}")
    if again.algorithm == spec.algorithm:
        for knob_id in spec.knobs:
            if again.knob(knob_id) != spec.knob(knob_id):
                found.append(f"{knob_id} is {again.knob(knob_id)!r}, not {spec.knob(knob_id)!r}")
    return found


def knobs_of(version: str) -> dict[str, Knob]:
    """Return every knob that the version has for any algorithm."""
    return {k: knob for a in ALGORITHMS for k, knob in applicable(a, "verl", version).items()}


def verdicts(specs: Sequence[RunSpec]) -> list[dict[str, Any]]:
    """Return what verl's own checks (real_verl.py) say to each spec's command."""
    python = make_environment("verl")
    asked = "".join(json.dumps(overrides_of(spec)[1]) + "\n" for spec in specs)
    command = [python, str(Path(__file__).with_name("real_verl.py")), str(MODEL)]
    env = {**os.environ, "VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, input=asked, capture_output=True, text=True, env=env, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]
