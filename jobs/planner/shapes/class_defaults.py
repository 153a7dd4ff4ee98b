"""What transformers' own config classes take for keys that a config.json leaves out, by model type.

`class_defaults.json` holds, of the pinned transformers, the values that the planner asks for (`make proof-shapes` makes
it anew). Of a config that stands alone the sizes a model cannot do without are not among them: a config without one is
no config of a model, and is refused. A `text_config` or `vision_config` holds differences to its class alone.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

SIZES = frozenset(
    {
        "attention_heads",
        "d_model",
        "dff",
        "ffn_dim",
        "ffn_hidden_size",
        "hidden_size",
        "intermediate_size",
        "n_embd",
        "n_head",
        "n_heads",
        "n_layer",
        "n_layers",
        "n_routed_experts",
        "kv_lora_rank",
        "num_experts",
        "num_experts_per_tok",
        "num_experts_per_token",
        "num_local_experts",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "num_attention_heads",
        "num_heads",
        "num_hidden_layers",
        "num_layers",
        "vocab_size",
    }
)
"""Keys that a config which stands alone must have itself."""


@cache
def _all() -> Mapping[str, Mapping[str, Any]]:
    read: Mapping[str, Mapping[str, Any]]
    read = json.loads(files("jobs.planner.shapes").joinpath("class_defaults.json").read_text(encoding="utf-8"))
    return read


def text_defaults(kind: str, *, is_alone: bool) -> Mapping[str, Any]:
    """Return what a decoder's class takes for absent keys; without the sizes of one that stands alone."""
    values = _all()["text"].get(kind, {})
    return {key: value for key, value in values.items() if key not in SIZES} if is_alone else values


@cache
def foreign_keys(kind: str) -> frozenset[str]:
    """Return the general keys that change nothing of a type, as its own code in transformers does not name them; none
    of a type that transformers does not have."""
    takes = _all()["takes"]
    return frozenset(takes[""]) - frozenset(takes[kind]) if kind in takes else frozenset()


def type_inside(outer: str, own: str | None, table: Literal["inside", "seeing"]) -> str | None:
    """Return the type of the decoder ("inside") or the tower ("seeing") that transformers builds in a model of type
    `outer` whose table for it names `own`, None for none: its class may take no other. None where neither says one."""
    usual = _all()[table].get(outer)
    return usual["type"] if usual is not None and (usual["always"] or own is None) else own


def vision_defaults(outer: str, kind: str) -> Mapping[str, Any]:
    """Return what the class of an image tower takes: that which a model of type `outer` has whatever its
    `vision_config` names, else that of its model type."""
    return _all()["vision"].get(outer) or _all()["vision"].get(kind, {})


def class_aliases(
    values: Mapping[str, Any], *kinds: str, table: Literal["aliases", "vision_aliases"] = "aliases"
) -> Mapping[str, str]:
    """Return keys with the other name that their class knows and the config has; the class is that of the first of the
    model types that has other names."""
    names: Mapping[str, list[str]] = next((_all()[table][kind] for kind in kinds if kind in _all()[table]), {})
    there = {key: next((other for other in others if other in values), None) for key, others in names.items()}
    return {key: other for key, other in there.items() if other is not None}


def said_last(values: Mapping[str, Any], aliases: Mapping[str, str]) -> Mapping[str, Any]:
    """Return values of which a key has what the config says under its other name, where it says both: transformers'
    classes set their own keys first."""
    twice = {key: values[other] for key, other in aliases.items() if key in values and values.get(other) is not None}
    return {**values, **twice} if twice else values


def has_tower_by_default(kind: str) -> bool:
    """Return True if transformers builds an image tower for a model type whose config describes none."""
    return bool(_all()["tower"].get(kind))


def is_tied_by(outer: str, way: Literal["default", "text", "text alone"]) -> bool:
    """Return True if a model that wraps a decoder ties head and embedding: by default, if its `text_config` does, or
    only then."""
    return bool(_all()["tied"].get(outer, {}).get(way))


def class_stem(name: str) -> str:
    """Return what names of one model's classes have in common, in whatever case and with whatever marks."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def class_stems(kind: str) -> frozenset[str]:
    """Return the stems of the classes that transformers has for a model type, none where it does not have it."""
    return frozenset(_all()["classes"].get(kind, {}).get("stems", ()))


@cache
def class_sizes(kind: str) -> frozenset[str]:
    """Return the keys called a size that a type's own class takes."""
    return frozenset(_all()["classes"].get(kind, {}).get("sizes", ()))
