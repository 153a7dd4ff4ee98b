"""The JSON schema of a RunSpec, made from its models and the catalog of knobs.

It documents; the one validator stays `parse_spec`, so that form, API and command line refuse with the same sentences.
"""

import math
from functools import cache
from typing import Any, get_args

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from jobs.catalog.knob import Knob, knobs
from jobs.catalog.spec.runspec import Origin, RunSpec

_PLACE = {"type": "object", "format": "run-spec"}
_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "choice": "string", "text": "string"}


class SpecIn:
    """Any JSON value as the request body, documented as a RunSpec."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept anything: parse_spec judges it."""
        return core_schema.any_schema()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Hold the place of a RunSpec: pydantic takes no reference that it did not make."""
        return dict(_PLACE)


def refer_to_spec(document: JsonSchemaValue) -> JsonSchemaValue:
    """Return an OpenAPI document with one RunSpec among its schemas, and a reference wherever an operation takes it."""
    referring: JsonSchemaValue = _with_references(document)
    referring["components"]["schemas"]["RunSpec"] = spec_schema()
    return referring


def _with_references(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_references(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == _PLACE["format"]:
        return {"$ref": "#/components/schemas/RunSpec"}
    return {key: _with_references(value) for key, value in node.items()}


@cache
def spec_schema() -> JsonSchemaValue:
    """Return the schema of a launchable spec without references: fields that are missing take their defaults."""
    raw = RunSpec.model_json_schema()
    definitions = raw.pop("$defs", {})
    schema: JsonSchemaValue = _inlined(raw, definitions)
    schema["properties"]["knobs"] = _knobs_schema()
    return schema


def _knobs_schema() -> JsonSchemaValue:
    values = {knob_id: _knob_schema(knob) for knob_id, knob in knobs().items()}
    text = "Knob id to value, or to {value, origin}. What is left out takes its default."
    return {"type": "object", "description": text, "properties": values, "additionalProperties": False}


def _knob_schema(knob: Knob) -> JsonSchemaValue:
    value: JsonSchemaValue = {"type": _TYPES[knob.type]}
    if knob.type == "choice":
        value["enum"] = list(knob.choices)
    if knob.type in ("int", "float"):
        bounds = {"minimum": knob.low, "maximum": knob.high}
        value |= {k: _tidy(v) for k, v in bounds.items() if math.isfinite(v)}
    if knob.is_optional:
        value = {"anyOf": [value, {"type": "null"}]}
    origin = {"type": "string", "enum": list(get_args(Origin))}
    chosen = {
        "type": "object",
        "properties": {"value": value, "origin": origin},
        "required": ["value"],
        "additionalProperties": False,
    }
    description = f"{knob.label}. {knob.help}"
    return {"anyOf": [value, chosen], "default": knob.default, "description": description}


def _tidy(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number


def _inlined(node: Any, definitions: JsonSchemaValue) -> Any:
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        rest = {k: v for k, v in node.items() if k != "$ref"}
        return {**_inlined(definitions[name], definitions), **rest}
    return {key: _inlined(value, definitions) for key, value in node.items()}
