"""A recipe is complete, says whose settings it has, asks for the devices it names, and no rule finds fault with it."""

import re
from pathlib import Path

import pytest

from jobs.catalog.algorithm import algorithms
from jobs.catalog.knob import is_live
from jobs.catalog.recipe import Recipe, UnknownRecipe, recipe, recipes
from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_json
from jobs.catalog.trainer import trainers

ALL = list(recipes().values())
SAID = """label = "A"
help = "B"
prerequisites = []
hardware = "1 x A"
source = "C"
version = "1"
tags = ["a"]
"""


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_recipe_says_when_to_use_it_and_whose_settings_it_has(one: Recipe) -> None:
    assert one.label
    assert "Use it" in one.help
    assert one.help.endswith(".")
    assert one.source
    assert one.version
    assert one.prerequisites
    assert all(text.endswith(".") for text in one.prerequisites)
    assert one.spec.trainer.name in one.tags


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_recipe_asks_for_the_devices_that_it_names(one: Recipe) -> None:
    found = re.match(r"(\d+) x ", one.hardware)
    assert (one.spec.is_native and one.spec.hardware.device != "cuda") == (found is None)
    if found is not None:
        assert one.spec.num_workers == int(found[1])


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_what_a_recipe_sets_is_its_choice_and_the_rest_is_default(one: Recipe) -> None:
    set_knobs = set(one.raw.get("knobs", {}))

    assert {knob_id for knob_id, chosen in one.spec.knobs.items() if chosen.origin == "recipe"} == set_knobs
    assert {chosen.origin for chosen in one.spec.knobs.values()} <= {"recipe", "default"}


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_recipe_sets_no_knob_that_means_nothing(one: Recipe) -> None:
    values = {knob_id: chosen.value for knob_id, chosen in one.spec.knobs.items()}

    assert [knob_id for knob_id in one.raw.get("knobs", {}) if not is_live(knob_id, values)] == []


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_no_rule_finds_more_than_a_note(one: Recipe) -> None:
    assert [(found.rule, found.message) for found in findings(one.spec) if found.level != "note"] == []


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_recipe_survives_json(one: Recipe) -> None:
    assert parse_spec(to_json(one.spec)) == one.spec


def test_the_guides_recipes_are_there() -> None:
    by_tag = {tag: {one.id for one in ALL if tag in one.tags} for one in ALL for tag in one.tags}

    for wanted in ("memory rescue", "throughput", "lora", "long context", "async", "sft", "dpo", "rm", "ppo", "hybrid"):
        assert by_tag[wanted], wanted
    for trainer in ("openrlhf", "verl"):
        for algorithm in ("grpo", "dapo", "ppo"):
            assert by_tag[trainer] & by_tag[algorithm] & by_tag["qwen"]
    deepseek = {recipe(one).spec.num_workers for one in by_tag["671B"]}
    assert deepseek == {96, 128, 256, 512}
    assert {one.spec.trainer.name for one in ALL} == {info.id for info in trainers().values() if info.families}
    assert {one.spec.algorithm for one in ALL} <= set(algorithms())


def test_the_70b_example_asks_for_all_its_groups() -> None:
    pools = {name: recipe(f"openrlhf-ppo-70b-{name}gpu").spec for name in ("48", "64")}

    assert pools["64"].num_workers == 64
    assert pools["48"].num_workers == 48
    assert pools["48"].knob("placement.reference_nodes") == pools["48"].knob("placement.policy_nodes")
    assert pools["48"].knob("placement.reward_nodes") == pools["48"].knob("placement.critic_nodes")


def test_an_unknown_recipe_is_a_sentence() -> None:
    with pytest.raises(UnknownRecipe, match=r"There is no recipe 'nope'\. The recipes are native-"):
        recipe("nope")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a", SAID + "colour = 1", "a: a recipe has no key 'colour'"),
        ("a", SAID.replace('help = "B"\n', ""), "a: the recipe says nothing under 'help'"),
        ("a", SAID + 'based_on = "b"', "a: there is no recipe 'b' to be based on"),
        ("a", SAID + 'based_on = "a"', "a: the recipe is based on itself"),
        ("b", SAID + 'based_on = "a"\nwithout = ["train.seed"]', "b: a sets no knob 'train.seed'"),
    ],
)
def test_a_bad_file_is_named(name: str, text: str, says: str, other_catalogue: Path) -> None:
    folder = other_catalogue / "recipes"
    folder.mkdir()
    (folder / "a.toml").write_text(SAID)
    (folder / f"{name}.toml").write_text(text)

    with pytest.raises(ValueError, match=re.escape(says)):
        recipes.__wrapped__()


def test_recipes_that_differ_in_a_number_stand_in_its_order() -> None:
    numbers = [re.search(r"(\d+)gpu", name) for name in recipes() if name.startswith("verl-grpo-deepseek-v3-")]

    assert [int(found[1]) for found in numbers if found] == [96, 128, 256, 512]
