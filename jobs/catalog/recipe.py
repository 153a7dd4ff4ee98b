"""Recipes: complete configurations that are known to work, by model, algorithm and hardware.

`recipes/*.toml` holds a file per recipe, its id is the file's name:

    label = "GRPO, Qwen3-8B, 8 GPUs"
    help = "One paragraph: when to use it."
    prerequisites = ["What has to be there before it can be launched."]
    hardware = "8 x H100 80 GB, one node"
    accelerators = ["h100-sxm"]          # each kind that `hardware` names, by id; none for the CPU
    host_gb = 1600                       # host memory of a node, where the recipe asks for so much
    source = "whose settings these are"
    version = "the version that the source describes"
    tags = ["grpo", "qwen"]
    based_on = "another-recipe"          # whose spec this one changes
    without = ["train.dynamic_batch"]    # its knobs that this one leaves alone

    [spec]                               # as parse_spec takes it; a knob that is set here is the recipe's choice
    algorithm = "grpo"
    [spec.knobs]
    "rollout.prompts_per_step" = 1024
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jobs.catalog.accelerator import accelerators
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.tables import folder_tables

_REQUIRED = ("label", "help", "prerequisites", "hardware", "source", "version", "tags")
_KEYS = {*_REQUIRED, "accelerators", "host_gb", "based_on", "without", "spec"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe. `raw` is its whole spec as plain JSON, that of the recipes it is based on included.

    `hardware` says in words what it was written for, `accelerators` which of the catalog's that are and `host_gb` how
    much host memory a node has (0: not said); `spec.num_workers` is the number of devices it asks for.
    """

    id: str
    label: str
    help: str
    prerequisites: tuple[str, ...]
    hardware: str
    accelerators: tuple[str, ...]
    host_gb: int
    source: str
    version: str
    tags: tuple[str, ...]
    based_on: str
    raw: Mapping[str, Any]

    @property
    def spec(self) -> RunSpec:
        """The complete spec, every knob that the recipe sets with the origin "recipe".

        Raises: SpecInvalid if the catalogue no longer takes it.
        """
        return _spec(self.id)


class UnknownRecipe(LookupError):
    """There is no recipe of this id."""


@cache
def recipes() -> Mapping[str, Recipe]:
    """Return every recipe by id, in the order of the files; numbers in their names count as numbers: 96 before 128.

    Raises: ValueError, naming the recipe, for a key that is unknown or missing, or a base that is not there.
    """
    tables = folder_tables("recipes")
    return {name: _recipe(name, tables) for name in sorted(tables, key=_in_order)}


def recipe(recipe_id: str) -> Recipe:
    """Return one recipe. Raises: UnknownRecipe with a sentence."""
    if recipe_id not in recipes():
        raise UnknownRecipe(f"There is no recipe {recipe_id!r}. The recipes are {', '.join(recipes())}.")
    return recipes()[recipe_id]


def _in_order(name: str) -> list[tuple[str, int]]:
    """Return what sorts names as people do: their texts, and the numbers between them as numbers."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]


@cache
def _spec(recipe_id: str) -> RunSpec:
    return parse_spec(recipes()[recipe_id].raw, origin="recipe")


def _recipe(name: str, tables: Mapping[str, Mapping[str, Any]]) -> Recipe:
    table = tables[name]
    if strange := sorted(set(table) - _KEYS):
        raise ValueError(f"{name}: a recipe has no key {strange[0]!r}. Known: {', '.join(sorted(_KEYS))}.")
    if missing := [key for key in _REQUIRED if key not in table]:
        raise ValueError(f"{name}: the recipe says nothing under {missing[0]!r}.")
    return Recipe(
        id=name,
        label=table["label"],
        help=table["help"],
        prerequisites=tuple(table["prerequisites"]),
        hardware=table["hardware"],
        accelerators=_accelerators(name, table.get("accelerators", ())),
        host_gb=table.get("host_gb", 0),
        source=table["source"],
        version=table["version"],
        tags=tuple(table["tags"]),
        based_on=table.get("based_on", ""),
        raw=_on(table.get("accelerators", ()), _with_base(name, tables, ())),
    )


def _on(kinds: Sequence[str], raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of a recipe on GPUs where it names kinds of them and no device: it never goes on CPUs instead."""
    return _over({"hardware": {"device": "cuda"}}, raw) if kinds else raw


def _accelerators(name: str, ids: Sequence[str]) -> tuple[str, ...]:
    if strange := [each for each in ids if each not in accelerators()]:
        raise ValueError(f"{name}: there is no accelerator {strange[0]!r}.")
    return tuple(ids)


def _with_base(name: str, tables: Mapping[str, Mapping[str, Any]], above: tuple[str, ...]) -> dict[str, object]:
    """Return the spec of a recipe with that of its base below it."""
    if name in above:
        raise ValueError(f"{above[0]}: the recipe is based on itself, over {', '.join(above[1:])}.")
    own = tables[name].get("spec", {})
    base = tables[name].get("based_on", "")
    if not base:
        return _over({}, own)
    if base not in tables:
        raise ValueError(f"{name}: there is no recipe {base!r} to be based on.")
    inherited = _with_base(base, tables, (*above, name))
    without = tables[name].get("without", ())
    below = inherited.get("knobs", {})
    assert isinstance(below, Mapping)
    if unknown := sorted(set(without) - set(below)):
        raise ValueError(f"{name}: {base} sets no knob {unknown[0]!r} that could be left out.")
    return _over(inherited | {"knobs": {k: v for k, v in below.items() if k not in without}}, own)


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, object]:
    """Return both, section by section; what stands above wins."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = {**under, **value} if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged
