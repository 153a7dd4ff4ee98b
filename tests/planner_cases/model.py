"""The model that a case names: an id of the catalogue, one like it with other numbers, or a config.json of its own."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from jobs.catalog.model import models
from jobs.planner.shapes.model_shape import ModelShape, read_shape


class UnknownModel(ValueError):
    """The catalogue does not hold what a case names; the text is a sentence."""


def read_model(given: object) -> tuple[ModelShape, Mapping[str, Any]]:
    """Return the shape and the config that it was read from.

    `given`: an id; {like = id, name = …, config = {changed keys}}; or {name = …, config = {a whole config.json}}.
    Raises: UnknownModel, ShapeUnreadable.
    """
    if isinstance(given, str):
        return _known(given)
    if not isinstance(given, dict) or not set(given) <= {"like", "name", "config"}:
        raise UnknownModel(f"model: {given!r} is neither an id nor a table of like, name and config.")
    changes = given.get("config", {})
    config = {**_known(given["like"])[1], **changes} if "like" in given else _with_nulls(changes)
    return read_shape(config, name=str(given.get("name", given.get("like", "")))), config


def _with_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole config with the null that TOML cannot hold: latent attention whose queries are not compressed."""
    nested = {key: _with_nulls(value) if isinstance(value, dict) else value for key, value in config.items()}
    return {"q_lora_rank": None, **nested} if "kv_lora_rank" in nested else nested


@cache
def _known(id: str) -> tuple[ModelShape, Mapping[str, Any]]:
    try:
        known = models()[id]
    except KeyError:
        raise UnknownModel(f"The catalogue has no model {id!r}.") from None
    return read_shape(known.config, name=id), known.config
