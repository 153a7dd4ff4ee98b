"""Writes jobs/planner/shapes/class_defaults.json: what transformers' config classes take for keys that are absent.

    python -m tests.jobs.planner.shapes.write_class_defaults      (make proof-shapes)

Of every family the values that the planner may ask for.
"""

import json
import logging
import re
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
    no key describes, and of classes their names and other names of their keys."""
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
    own_names = {"aliases": names, "vision_aliases": seen}
    return {**made, **{name: {kind: row for kind, row in table.items() if row} for name, table in own_names.items()}}


def _aliases(config: type[Any]) -> dict[str, list[str]]:
    """Return the other names that a class takes for its keys (attribute_map), where the planner may ask for these."""
    made: dict[str, list[str]] = {}
    own = {each.name for each in fields(config)}
    for other, key in sorted(getattr(config, "attribute_map", {}).items()):
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
