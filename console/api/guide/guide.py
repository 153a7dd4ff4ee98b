"""The guide as data: recipes, what was trained on which devices, advice, symptoms and rules. Texts are English."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from jobs.catalog.advice import QUESTIONS, advice
from jobs.catalog.device_table import DeviceRow, rows
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import rules
from jobs.catalog.rules.symptom import Symptom, symptoms
from jobs.catalog.trainer import trainers

router = Router(tags=["catalog"])


class RecipeOut(Schema):
    """A complete configuration; `spec` is what `POST /runs` takes."""

    id: str
    label: str
    help: str
    prerequisites: list[str]
    hardware: str
    source: str
    version: str
    tags: list[str]
    based_on: str
    spec: dict[str, Any]


class RecipesOut(Schema):
    """The recipes, in the order of their ids."""

    recipes: list[RecipeOut]


class DeviceRowOut(Schema):
    """A published configuration. `max_batch` is the largest batch that was reported, no limit."""

    id: str
    model: str
    size: float = Field(description="Class of the model, billions of parameters")
    is_mixture: bool
    method: str
    num_devices: int
    device: str
    memory_gb: int
    max_batch: int | None
    train_engine: str
    rollout_engine: str
    settings: dict[str, Any]
    notes: str
    evidence: str = Field(description="run, stated or settings")
    source: str


class DeviceRowsOut(Schema):
    """The rows that answer; none means that nobody reported it, not that it cannot run."""

    rows: list[DeviceRowOut]


class CatalogChange(Schema):
    """A knob, and the value or direction that is advised, in words or as an expression over the run."""

    knob: str
    to: str


class AdviceOut(Schema):
    """One piece of advice."""

    id: str
    question: str
    title: str
    trainers: list[str]
    algorithms: list[str]
    when: str
    changes: list[CatalogChange]
    effect: dict[str, str]
    evidence: str
    source: str


class AdviceListOut(Schema):
    """Advice by question, each in the order of trying."""

    advice: list[AdviceOut]


class CatalogLogLine(Schema):
    """A line of the log by which a symptom is known: a regular expression, and the text it was taken from."""

    pattern: str
    text: str
    file: str
    source: str


class CatalogCondition(Schema):
    """A statistic of a metric's last values, and the number that it is above or below."""

    metric: str
    over: str
    statistic: str
    window: int
    above: float | None
    below: float | None


class CatalogRemedy(Schema):
    """What to try; `changes` are expressions over the run."""

    title: str
    changes: list[CatalogChange]
    trainers: list[str]
    algorithms: list[str]
    when: str
    source: str


class CatalogSymptom(Schema):
    """A symptom; of `metrics` each list is enough, and all of its conditions have to hold."""

    id: str
    title: str
    trainers: list[str]
    algorithms: list[str]
    when: str
    signal: str
    causes: list[str]
    source: str
    logs: list[CatalogLogLine]
    metrics: list[list[CatalogCondition]]
    remedies: list[CatalogRemedy]


class CatalogSymptomsOut(Schema):
    """The symptoms, in the order of the catalogue."""

    symptoms: list[CatalogSymptom]


class CatalogRule(Schema):
    """A rule; `when`, what stands in braces in `says` and `why`, and the values of `fixes` are expressions."""

    id: str
    level: str
    trainers: list[str]
    since: str
    before: str
    algorithms: list[str]
    when: str
    says: str
    why: str
    knobs: list[str]
    fixes: list[list[CatalogChange]]
    source: str
    kind: str


class CatalogRulesOut(Schema):
    """The rules, in the order of the catalogue."""

    rules: list[CatalogRule]


@router.get("/recipes", response={200: RecipesOut, **REFUSALS}, summary="Recipes")
def list_recipes(request: HttpRequest) -> dict[str, Any]:  # noqa: ARG001
    """Return every recipe with its whole spec."""
    names = ("id", "label", "help", "hardware", "source", "version", "based_on")
    found = [
        {name: getattr(each, name) for name in names}
        | {"prerequisites": list(each.prerequisites), "tags": list(each.tags), "spec": dict(each.raw)}
        for each in recipes().values()
    ]
    return {"recipes": found}


@router.get("/devices", response={200: DeviceRowsOut, **REFUSALS}, summary="What was trained on which devices")
def list_devices(
    request: HttpRequest,  # noqa: ARG001
    size: float | None = None,
    method: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Return the published configurations that answer a question; size is in billions of parameters."""
    if size is not None and not 0 < size < 1e5:
        raise RequestProblem(422, f"{size} is no model size. Use billions of parameters, as in 7.6.", field="size")
    return {"rows": [_device_row(row) for row in rows(model_billion=size, method=method, device=device)]}


@router.get("/advice", response={200: AdviceListOut, **REFUSALS}, summary="Advice")
def list_advice(
    request: HttpRequest,  # noqa: ARG001
    question: Literal["too_slow", "does_not_fit", "does_not_learn", "cannot_see_inside"] | None = None,
) -> dict[str, Any]:
    """Return what to change for a question, or for all four."""
    asked = QUESTIONS if question is None else (question,)
    names = ("id", "question", "title", "when", "evidence", "source")
    found = [
        {name: getattr(each, name) for name in names}
        | {"trainers": list(each.trainers), "algorithms": list(each.algorithms), "effect": dict(each.effect)}
        | {"changes": [{"knob": change.knob, "to": change.to} for change in each.changes]}
        for each in advice().values()
        if each.question in asked
    ]
    return {"advice": found}


@router.get("/symptoms", response={200: CatalogSymptomsOut, **REFUSALS}, summary="Symptoms")
def list_symptoms(request: HttpRequest, trainer: str | None = None) -> dict[str, Any]:  # noqa: ARG001
    """Return what goes wrong, how it shows, why, and what to try; of a trainer or of all."""
    _check_trainer(trainer)
    return {"symptoms": [_symptom(each) for each in symptoms().values() if _concerns(each.trainers, trainer)]}


@router.get("/rules", response={200: CatalogRulesOut, **REFUSALS}, summary="Rules")
def list_rules(
    request: HttpRequest,  # noqa: ARG001
    trainer: str | None = None,
    level: Literal["error", "warning", "note"] | None = None,
) -> dict[str, Any]:
    """Return the rules, all or those of a trainer or level."""
    _check_trainer(trainer)
    names = ("id", "level", "since", "before", "says", "why", "source", "kind")
    found = [
        {name: getattr(each, name) for name in names}
        | {"trainers": list(each.trainers), "algorithms": list(each.algorithms), "knobs": list(each.knobs)}
        | {"when": each.when.text, "fixes": [_changes(fix) for fix in each.fixes]}
        for each in rules().values()
        if _concerns(each.trainers, trainer) and level in (None, each.level)
    ]
    return {"rules": found}


def _check_trainer(name: str | None) -> None:
    if name is not None and name not in trainers():
        raise RequestProblem(422, f"There is no trainer {name!r}. Use one of {', '.join(trainers())}.", field="trainer")


def _concerns(names: Iterable[str], trainer: str | None) -> bool:
    given = tuple(names)
    return trainer is None or not given or trainer in given


def _changes(change: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"knob": knob, "to": made.text} for knob, made in change.items()]


def _device_row(row: DeviceRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in DeviceRow.__slots__} | {"settings": dict(row.settings)}


def _symptom(each: Symptom) -> dict[str, Any]:
    return {
        "id": each.id,
        "title": each.title,
        "trainers": list(each.trainers),
        "algorithms": list(each.algorithms),
        "when": each.when.text if each.when else "",
        "signal": each.signal,
        "causes": list(each.causes),
        "source": each.source,
        "logs": [
            {"pattern": line.pattern.pattern, "text": line.text, "file": line.file, "source": line.source}
            for line in each.logs
        ],
        "metrics": [
            [{name: getattr(one, name) for name in type(one).__slots__} for one in signal.conditions]
            for signal in each.metrics
        ],
        "remedies": [
            {
                "title": remedy.title,
                "changes": _changes(remedy.change),
                "trainers": list(remedy.trainers),
                "algorithms": list(remedy.algorithms),
                "when": remedy.when.text if remedy.when else "",
                "source": remedy.source,
            }
            for remedy in each.remedies
        ],
    }
