"""Writes jobs/planner/shapes/class_defaults.json: what transformers' config classes take for keys that are absent.

    python -m tests.jobs.planner.shapes.write_class_defaults      (make proof-shapes)

Of every family the values that the planner may ask for.
"""

import json
import logging
import re
import sys
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jobs.planner.shapes import config_values
from jobs.planner.shapes.class_defaults import class_stem
from jobs.planner.shapes.config_values import ConfigValues
from jobs.planner.shapes.entries.known import FAMILIES
from jobs.planner.shapes.neutral_keys import is_size_of_its_own
from jobs.planner.shapes.towers import KINDS
from tests.jobs.planner.shapes.count_with_transformers import types

DEFAULTS = Path(config_values.__file__).with_name("class_defaults.json")
# What says nothing of parameters by its default.
_LEFT_OUT = ("use_sliding_window", "add_cross_attention")

# Their decoder is a causal language model of its own, which ties by its own config.
_CAUSAL_INSIDE = ("llama4",)


def _written(kind: str) -> dict[str, Any]:
    from transformers import AutoConfig

    written: dict[str, Any] = json.loads(AutoConfig.for_model(kind).to_json_string(use_diff=False))
    return written


@cache
def _keys() -> frozenset[str]:
    """Return every key that the planner may ask for: the texts in its code that could be one."""
    sources = (each for each in DEFAULTS.parent.rglob("*.py") if each.stem != "neutral_keys")
    return frozenset(key for source in sources for key in re.findall(r'"([a-zA-Z_0-9]+)"', source.read_text("utf-8")))


def _values(config: type[Any]) -> dict[str, Any]:
    """Return what a class itself says: not what it works out from other values."""
    usual = {
        each.name: each.default_factory() if callable(each.default_factory) else each.default for each in fields(config)
    }
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in sorted(usual.items())
        if key in _keys() and key not in _LEFT_OUT and (isinstance(value, bool | int | float) or _is_pair(value))
    }


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and 0 < len(value) <= 3 and all(isinstance(each, int) for each in value)


def _follows(kind: str, whole: dict[str, Any]) -> bool:
    """Return True if a model ties its head where only its `text_config` says so."""
    from transformers import AutoConfig

    text = {**whole["text_config"], "tie_word_embeddings": True}
    made = AutoConfig.for_model(kind, text_config=text, tie_word_embeddings=False)
    return bool(made.tie_word_embeddings) or kind in _CAUSAL_INSIDE


def class_defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of decoders and towers by model type, which wrapping types tie the head and have a tower that
    no key describes, what decoder and tower stands in them, of classes their names and other names of their keys, and
    which general keys they take."""
    from transformers import CONFIG_MAPPING

    text, names = {}, {}
    for kind in sorted(FAMILIES):
        if kind in CONFIG_MAPPING:
            text[kind] = _values(CONFIG_MAPPING[kind])
            names[kind] = _aliases(CONFIG_MAPPING[kind])
    vision, tied, seen, towers = {}, {}, {}, {}
    for kind in types():
        if kind not in KINDS or kind not in CONFIG_MAPPING:
            continue
        whole = _written(kind)
        if "text_config" in whole:
            tied[kind] = {"default": bool(whole.get("tie_word_embeddings")), "text": _follows(kind, whole)}
            tied[kind]["text alone"] = kind in _CAUSAL_INSIDE
            if whole.get("vision_config"):
                towers[kind] = True
        inner = CONFIG_MAPPING[kind].sub_configs.get("vision_config")
        if isinstance(inner, type) and is_dataclass(inner):
            vision[kind] = _values(inner)
            seen[kind] = _aliases(inner)
        body = str((whole.get("vision_config") or {}).get("model_type"))
        if body in CONFIG_MAPPING:
            vision[body] = _values(CONFIG_MAPPING[body])
            seen[body] = _aliases(CONFIG_MAPPING[body])
    made = {"text": text, "tied": tied, "vision": vision, "tower": towers, "classes": _classes()}
    made["inside"] = _inside("text_config", _DECODERS, lambda kind, inner: inner in FAMILIES)
    made["seeing"] = _inside("vision_config", _BODIES, lambda kind, inner: kind in KINDS)
    made["takes"] = {"": sorted(_general_keys()), **{kind: _takes(kind) for kind in text}}
    own_names = {"aliases": names, "vision_aliases": seen}
    return {**made, **{name: {kind: row for kind, row in table.items() if row} for name, table in own_names.items()}}


def _general_keys() -> frozenset[str]:
    """Return the keys that are asked of every type, whatever its family says."""
    sources = (DEFAULTS.with_name(name).read_text("utf-8") for name in ("mixtures.py", "mixers.py"))
    return frozenset(key for source in sources for key in re.findall(r'"([a-z]\w*_\w+)"', source)) - {"model_type"}


def _takes(kind: str) -> list[str]:
    """Return which of the general keys a type's own code names: its config class, or its layers as what a config has.
    Others change nothing of it, wherever a config has them from."""
    from transformers import CONFIG_MAPPING

    folder = Path(sys.modules[CONFIG_MAPPING[kind].__module__].__file__ or "").parent
    config, layers = (
        "\n".join(path.read_text("utf-8") for path in folder.glob(f"{start}_*.py"))
        for start in ("configuration", "modeling")
    )
    return [
        key
        for key in sorted(_general_keys())
        if key in FAMILIES[kind].defaults
        or re.search(rf"\b{key}\b", config)
        or re.search(rf'(config\.{key}\b|"{key}")', layers)
    ]


def _inside(table: str, others: tuple[str, ...], is_wanted: Callable[[str, str], bool]) -> dict[str, dict[str, Any]]:
    """Return of every type that wraps another, under `table`, which type this has where the table names none, and
    whether it has that whatever is named."""
    from transformers import CONFIG_MAPPING

    made = {}
    for kind in sorted(CONFIG_MAPPING):
        usual, *named = (_inner(kind, table, each) for each in (None, *others))
        if usual is not None and is_wanted(kind, usual.model_type):
            made[kind] = {"type": usual.model_type, "always": all(type(each) is type(usual) for each in named)}
    return made


# Types of which no class has both of its own.
_DECODERS = ("mistral", "gemma")
_BODIES = ("siglip_vision_model", "clip_vision_model")


def _inner(kind: str, table: str, name: str | None) -> Any:
    from transformers import CONFIG_MAPPING

    try:
        if table in CONFIG_MAPPING[kind].sub_configs:
            made = CONFIG_MAPPING[kind](**{table: {} if name is None else {"model_type": name}})
            return getattr(made, table) if hasattr(getattr(made, table), "model_type") else None
    except Exception:  # whatever a class raises that needs more, or takes no other inside
        return None
    return None


def _aliases(config: type[Any]) -> dict[str, list[str]]:
    """Return the other names that a class takes for its keys (attribute_map), where the planner may ask for these."""
    made: dict[str, list[str]] = {}
    own = {each.name for each in fields(config)}
    for other, key in sorted(getattr(config, "attribute_map", {}).items()):
        if other in own and key not in own:  # the map's own name is no key of the class: it stands in the key's place
            other, key = key, other
        if key in _keys() and other not in own:
            made.setdefault(key, []).append(other)
    return made


def _classes() -> dict[str, dict[str, list[str]]]:
    """Return of every known type the stems of its classes, and the sizes that these take: where the planner does not
    ask for one, test_counts.py has shown that it changes nothing."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto

    maps = (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        modeling_auto.MODEL_MAPPING_NAMES,
    )
    made = {}
    for kind in sorted({*FAMILIES, *KINDS}):
        names = [name for each in maps for name in _listed(each.get(kind))]
        if not names or kind not in CONFIG_MAPPING:
            continue
        stems = {class_stem(re.sub(r"(For[A-Z]\w*|LMHeadModel|(Text)?Model)$", "", name)) for name in names}
        values = ConfigValues(values={each.name: 2 + at for at, each in enumerate(fields(CONFIG_MAPPING[kind]))})
        sizes = sorted(key for key in values.values if is_size_of_its_own(values, key))
        made[kind] = {"stems": sorted(stems), "sizes": sizes}
    return made


def _listed(names: Any) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def main() -> None:
    """Write the data file."""
    logging.disable(logging.CRITICAL)
    tables = [
        f' "{name}": {{\n'
        + ",\n".join(f"  {json.dumps(kind)}: {json.dumps(row)}" for kind, row in sorted(table.items()))
        + "\n }"
        for name, table in class_defaults().items()
    ]
    DEFAULTS.write_text("{\n" + ",\n".join(tables) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
