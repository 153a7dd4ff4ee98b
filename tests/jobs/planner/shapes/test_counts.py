"""Every causal and vision-language type of the pinned transformers: counted as transformers counts it, or refused.

The counts are in counts.json (`make proof-shapes` makes it anew); a few families are built live in
test_shapes_oracle.py.
"""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobs.planner.shapes.config_values import ShapeUnreadable
from jobs.planner.shapes.entries.known import FAMILIES, REFUSED
from jobs.planner.shapes.model_shape import ModelShape, read_shape
from jobs.planner.shapes.towers import KINDS
from tests.jobs.planner.shapes.count_with_transformers import ABSENT, COUNTS, changed, variations
from tests.jobs.planner.shapes.hub_configs import HUB_CONFIGS

_NEAR = 1e-3
_PINNED = re.search(r"transformers==(\S+)", Path("requirements/engine.in").read_text(encoding="utf-8"))


@cache
def _counts() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(COUNTS.read_text(encoding="utf-8"))
    return answer


def _miss(config: dict[str, Any], number: int) -> str:
    """Return what is wrong with the planner's count of a config, "" where it is right or refused with the key."""
    try:
        shape = read_shape(_asked(config))
    except ShapeUnreadable as refused:
        return "" if refused.key and refused.key in str(refused) else f"refused without a key: {refused}"
    is_said = any(each.startswith("What sees images") for each in shape.rests_on)
    is_near = abs(_all(shape) - number) <= _NEAR * number
    return "" if is_near or is_said else f"{_all(shape) / number - 1:+.2%}, {shape.rests_on}"


def _asked(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config that calls itself a causal language model where its type does not say so."""
    kind = (config.get("text_config") or config).get("model_type")
    return config if kind in FAMILIES else {"architectures": ["AnyForCausalLM"], **config}


def _all(shape: ModelShape) -> int:
    return shape.parameters + shape.tower


def test_the_counts_are_those_of_the_pinned_transformers() -> None:
    assert _PINNED is not None
    assert _counts()["transformers"] == _PINNED[1], "make proof-shapes"


def test_no_type_is_counted_wrong() -> None:
    found = {
        kind: _miss(row["config"], row["parameters"]) for kind, row in _counts()["types"].items() if "parameters" in row
    }
    assert {kind: miss for kind, miss in found.items() if miss} == {}


def test_no_type_is_counted_wrong_with_other_values() -> None:
    found = {}
    for kind, row in _counts()["types"].items():
        for path, value, number in row.get("varied", ()):
            if number is not None and (miss := _miss(changed(row["config"], path, value), number)):
                found[f"{kind}: {path} = {value}"] = miss
    assert found == {}


def test_what_changes_nothing_in_transformers_changes_nothing_here() -> None:
    """Rows are there where the count differs, or cannot be built; all other values count as the type's own, those that
    a config leaves out among them."""
    found = {}
    for kind, row in _counts()["types"].items():
        differs = {(path, str(value)) for path, value, _ in row.get("varied", ())}
        for path, value in variations(row["config"]) if "parameters" in row else ():
            if (path, str(value)) in differs:
                continue
            if miss := _miss(changed(row["config"], path, value), row["parameters"]):
                found[f"{kind}: {path} = {value}"] = miss
    assert found == {}


@pytest.mark.parametrize("kind", ["glm4_moe_lite", "hy_v3", "laguna", "mimo_v2_flash"])
def test_layers_of_experts_that_a_class_takes_from_a_list_alone_are_those_without_it(kind: str) -> None:
    config = changed(_counts()["types"][kind]["config"], "mlp_layer_types", ABSENT)
    assert read_shape({**config, "first_k_dense_replace": 3}).parameters == read_shape(config).parameters


def test_experts_and_what_is_kept_of_a_token_are_those_of_transformers() -> None:
    """But for latent attention and compressed keys, which transformers keeps whole, an indexer's keys, and layers that
    attend to an image, which keep nothing of a token."""
    found = {}
    for kind, row in _counts()["types"].items():
        try:
            shape = read_shape(_asked(row["config"]))
        except (KeyError, ShapeUnreadable):
            continue
        kept = sum(layer.cache - layer.indexed for layer in shape.layers if layer.kind != "cross-attention")
        is_whole = shape.attention_kind == "gqa" and "compressed attention" not in shape.rough_layers
        if shape.expert_parameters != row["experts"]:
            found[kind] = f"{shape.expert_parameters} of experts, {row['experts']}"
        if is_whole and row["cache"] is not None and kept != row["cache"]:
            found[kind] = f"{kept} of a token, {row['cache']}"
    assert found == {}


def test_a_tower_that_no_key_describes_is_said_not_to_be_counted() -> None:
    """Transformers builds one of its class's own sizes."""
    for kind, row in _counts()["types"].items():
        config = row.get("config", {})
        if kind in KINDS and {"text_config", "vision_config"} <= set(config) and "parameters" in row:
            for value in (ABSENT, None):
                try:
                    shape = read_shape(_asked(changed(config, "vision_config", value)))
                except ShapeUnreadable:
                    continue
                assert "vision_config is missing: what sees images is not counted." in shape.rests_on, kind


@pytest.mark.parametrize("name", HUB_CONFIGS)
def test_configs_of_released_models_are_counted_to_the_last_parameter(name: str) -> None:
    shape = read_shape(HUB_CONFIGS[name], name=name)
    assert (_all(shape), shape.is_exact) == (_counts()["hub"][name], True)


def test_a_type_is_counted_or_refused_with_a_reason() -> None:
    """Types that transformers cannot build from their own defaults are among them."""
    known = {*FAMILIES, *REFUSED}
    for kind, row in _counts()["types"].items():
        text = row.get("config", {}).get("text_config", {}).get("model_type", "")
        assert kind in known or text in known or kind in _WRAPPERS, kind


# Types that transformers builds only from a whole config; their decoders are known.
_WRAPPERS = {
    "aya_vision",
    "emu3",
    "fast_vlm",
    "gemma3n",
    "granite4_vision",
    "idefics3",
    "perception_lm",
    "smolvlm",
    "gpt-sw3",
}


def test_most_types_are_counted_exactly() -> None:
    """What was counted stays counted: the number goes up only."""
    exact = 0
    for row in _counts()["types"].values():
        if "parameters" in row:
            try:
                exact += read_shape(_asked(row["config"])).is_exact
            except ShapeUnreadable:
                continue
    assert exact >= 150
