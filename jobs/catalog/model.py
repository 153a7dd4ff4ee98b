"""Models that are known without asking a hub: what of their config.json decides size and speed.

`models/*.toml` holds a file per model, its id is the file's name:

    label = "Qwen2.5 7B"
    hub = ["Qwen/Qwen2.5-7B"]            # repositories with this very architecture and precision
    source = "where the values were read"
    nulls = ["q_lora_rank"]              # keys that are null in config.json, which TOML cannot say
    [config]                             # the values of config.json that matter
    [max_positions]                      # the context of a repository where it is another one
    "Qwen/Qwen2.5-7B-Instruct" = 32768

or, of a model that comes with this project, `bundled = "its folder"` in place of [config].
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jobs.catalog.sentence import Sentence
from jobs.catalog.tables import folder_tables

_REQUIRED = {"label", "hub", "source"}
_KEYS = {*_REQUIRED, "nulls", "config", "max_positions", "bundled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """One model: `hub` names the repositories that hold it, `config` the values of its config.json.

    `max_positions` has the context of those repositories whose config.json gives another one.
    """

    id: str
    label: str
    hub: tuple[str, ...]
    config: Mapping[str, Any]
    source: str
    max_positions: Mapping[str, int] = field(default_factory=dict)


@cache
def models() -> Mapping[str, KnownModel]:
    """Return every known model by id. Raises: ValueError, naming the file, for one badly written."""
    return {name: _model(name, table) for name, table in folder_tables("models").items()}


def find_model(name: str) -> KnownModel:
    """Return the model of an id or a hub repository, in any case; of a repository with its own context.

    Raises: LookupError, naming the nearest if one is near.
    """
    wanted = name.strip().lower()
    model = _by_name().get(wanted)
    if model is None:
        near = difflib.get_close_matches(wanted[:200], _by_name(), n=1)
        if not near:
            text = "{name!r} is not a known model. None has a similar name: its config.json would tell."
            raise LookupError(Sentence(text, name=name))
        text = "{name!r} is not a known model. The nearest is {nearest}."
        raise LookupError(Sentence(text, name=name, nearest=_by_name()[near[0]].id))
    return model


@cache
def _by_name() -> Mapping[str, KnownModel]:
    by_name = {model.id: model for model in models().values()}
    for model in models().values():
        for hub in model.hub:
            own = model
            if hub in model.max_positions:
                own = replace(model, config={**model.config, "max_position_embeddings": model.max_positions[hub]})
            by_name.setdefault(hub.lower(), own)
            by_name.setdefault(hub.lower().rpartition("/")[2], own)
    return by_name


def _model(model_id: str, table: Mapping[str, Any]) -> KnownModel:
    if not _REQUIRED <= set(table) <= _KEYS or ("config" in table) == ("bundled" in table):
        raise ValueError(
            f"{model_id}: a model has label, hub, source, either config or bundled, and maybe nulls and max_positions."
        )
    if "bundled" in table:
        path = files("jobs") / "engine" / "bundled" / table["bundled"] / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
    else:
        config = {**table["config"], **dict.fromkeys(table.get("nulls", ()))}
    own = table.get("max_positions", {})
    if not set(own) <= set(table["hub"]):
        raise ValueError(f"{model_id}: max_positions names a repository that hub does not.")
    return KnownModel(
        id=model_id,
        label=table["label"],
        hub=tuple(table["hub"]),
        config=config,
        source=table["source"],
        max_positions=own,
    )
