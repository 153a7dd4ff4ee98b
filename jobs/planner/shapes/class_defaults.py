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


def vision_defaults(outer: str, kind: str) -> Mapping[str, Any]:
    """Return what the class of an image tower takes: of its model type, or that which a model of type `outer` has."""
    return _all()["vision"].get(kind) or _all()["vision"].get(outer, {})


def class_aliases(
    values: Mapping[str, Any], *kinds: str, table: Literal["aliases", "vision_aliases"] = "aliases"
) -> Mapping[str, str]:
    """Return keys that a config does not have, with the other name that its class knows and the config has instead;
    the class is that of the first of the model types that has other names."""
    names: Mapping[str, list[str]] = next((_all()[table][kind] for kind in kinds if kind in _all()[table]), {})
    there = {key: next((other for other in others if other in values), None) for key, others in names.items()}
    return {key: other for key, other in there.items() if other is not None and key not in values}


def has_tower_by_default(kind: str) -> bool:
    """Return True if transformers builds an image tower for a model type whose config describes none."""
    return bool(_all()["tower"].get(kind))


def is_tied_by(outer: str, way: Literal["default", "text"]) -> bool:
    """Return True if a model that wraps a decoder ties head and embedding: by default, or if its `text_config` does."""
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
