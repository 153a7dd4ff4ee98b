"""What the command line believes of the API's answers is what the API says of them."""

import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from console.command_line import api_json, planner_json
from tests.console.api.document import document

ANSWERS = {
    planner_json.PlanJson: "PlanOut",
    planner_json.AdviceJson: "PlanAdviceOut",
    planner_json.LayoutsJson: "PlanLayoutsOut",
    planner_json.CanItRunJson: "CanItRunOut",
    planner_json.DiffusionJson: "DiffusionOut",
    planner_json.CalibrationJson: "CalibrationOut",
    planner_json.RunPlanJson: "RunPlanOut",
    api_json.RunJson: "RunHeader",
    api_json.LaunchedJson: "LaunchedOut",
    api_json.ResumedJson: "ResumedOut",
    api_json.KnobsChangedJson: "KnobsChangedOut",
    api_json.LiveSettingsJson: "LiveSettingsOut",
    api_json.CheckpointJson: "Checkpoint",
    api_json.MergeJson: "MergeOut",
    api_json.MetricJson: "MetricOut",
    api_json.SeriesJson: "SeriesOut",
    api_json.StudyTableJson: "StudyOut",
    api_json.StudyLaunchedJson: "StudyLaunchedOut",
    api_json.CaptureJson: "CaptureOut",
    api_json.TraceJson: "TraceOut",
    api_json.EnvironmentJson: "EnvironmentOut",
    api_json.RetentionJson: "RetentionOut",
    api_json.RetentionPreviewJson: "PreviewOut",
}
NAMES = {float: "number", int: "integer", str: "string", bool: "boolean", types.NoneType: "null"}


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    """Return the API's schemas by name."""
    return document()["components"]["schemas"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("shape", "name"), ANSWERS.items(), ids=ANSWERS.values())
def test_the_command_line_reads_what_the_api_answers(shape: type, name: str, schemas: dict[str, Any]) -> None:
    assert list(differences(shape, schemas[name], schemas, name)) == []


def differences(shape: Any, node: dict[str, Any], schemas: dict[str, Any], place: str) -> typing.Iterator[str]:
    """Yield what a type of the client says otherwise than a node of the schema."""
    if "$ref" in node:
        node = schemas[node["$ref"].rpartition("/")[2]]
    origin, inner = get_origin(shape), get_args(shape)
    if is_typeddict(shape):
        if node.get("additionalProperties") is True:  # the schema does not say what is in it
            return
        for key, kind in get_type_hints(shape).items():
            known = node["properties"].get(key)
            yield from [f"{place}.{key}"] if known is None else differences(kind, known, schemas, f"{place}.{key}")
    elif origin in (types.UnionType, typing.Union):
        choices = node.get("anyOf", [])
        for kind, choice in zip(inner, choices, strict=False):
            yield from differences(kind, choice, schemas, place)
        if len(inner) != len(choices):
            yield f"{place}: {shape} is {node}"
    elif origin in (list, Sequence):
        yield from differences(inner[0], node.get("items", {}), schemas, f"{place}[]")
    elif origin in (dict, Mapping):
        more = node.get("additionalProperties", {})
        yield from () if more is True else differences(inner[1], more, schemas, f"{place}{{}}")
    elif origin is Literal:
        if set(inner) != set(node.get("enum", ())):
            yield f"{place}: {shape} is {node}"
    elif node.get("type") != NAMES[shape]:
        yield f"{place}: {shape} is {node}"
