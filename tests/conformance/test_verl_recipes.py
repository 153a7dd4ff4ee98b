"""verl takes every recipe: its real Hydra composition, every value as it is meant; and each is read back as itself."""

from pathlib import Path

import pytest

from jobs.adapters.adapter import adapter
from jobs.adapters.hydra import read
from jobs.catalog.recipe import recipes
from jobs.catalog.runspec import RunSpec, parse_spec
from tests.conformance.hydra_compose import Composer, words
from tests.conformance.unpacked_wheels import unpacked

RUN_DIR = Path("/srv/runs/r-1/a1")
RECIPES = [name for name in recipes() if name.startswith("verl-")]


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer(unpacked("verl-0.9.1"))


def command(spec: RunSpec) -> tuple[str, ...]:
    return adapter("verl").command(spec=spec, run_dir=RUN_DIR, python="python", device="cuda").argv


@pytest.mark.parametrize("name", RECIPES)
def test_hydra_takes_a_recipe_and_every_value_arrives(name: str, composer: Composer) -> None:
    program, overrides = words(command(recipes()[name].spec))

    composed = composer.quick(program, overrides)

    assert composed.is_accepted, composed.text
    for word in overrides:
        given = read(word)
        if given.key != "model_engine" and not given.key.startswith("hydra."):
            assert composed.values[given.key] == given.value, word


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_read_back_as_itself(name: str) -> None:
    spec = recipes()[name].spec

    answer = adapter("verl").read_back(words=command(spec), version="0.9.1")
    again = parse_spec(answer.spec)

    assert answer.unread == ()
    for part in ("name", "algorithm", "trainer", "model", "data", "reward"):
        assert getattr(again, part) == getattr(spec, part)
    assert {k: v.value for k, v in again.knobs.items()} == {k: v.value for k, v in spec.knobs.items()}
