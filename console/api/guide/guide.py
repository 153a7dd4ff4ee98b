"""The guide as data: recipes, what was trained on which devices, advice, symptoms and rules. Texts are English."""

from collections.abc import Iterable, Mapping
from typing import Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import JsonValue

from console.api.problem import REFUSALS, RequestProblem
from jobs.catalog.advice import QUESTIONS, Advice, advice
from jobs.catalog.device_table import DeviceRow, rows
from jobs.catalog.recipe import Recipe, recipes
from jobs.catalog.rules.condition import Condition
from jobs.catalog.rules.expression import Expression
from jobs.catalog.rules.rule import SpecRule, rules
from jobs.catalog.rules.symptom import Remedy, Symptom, symptoms
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
    spec: dict[str, JsonValue]


class RecipesOut(Schema):
    """The recipes, in the order of their ids."""

    recipes: list[RecipeOut]


class DeviceRowsOut(Schema):
    """The rows that answer; none means that nobody reported it, not that it cannot run."""

    rows: list[DeviceRow]


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
    metrics: list[list[Condition]]
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
def list_recipes(request: HttpRequest) -> RecipesOut:  # noqa: ARG001
    """Return every recipe with its whole spec."""
    return RecipesOut(recipes=[_recipe(each) for each in recipes().values()])


@router.get("/devices", response={200: DeviceRowsOut, **REFUSALS}, summary="What was trained on which devices")
def list_devices(
    request: HttpRequest,  # noqa: ARG001
    size: float | None = None,
    method: str | None = None,
    device: str | None = None,
) -> DeviceRowsOut:
    """Return the published configurations that answer a question; size is in billions of parameters."""
    if size is not None and not 0 < size < 1e5:
        raise RequestProblem(422, f"{size} is no model size. Use billions of parameters, as in 7.6.", field="size")
    return DeviceRowsOut(rows=list(rows(model_billion=size, method=method, device=device)))


@router.get("/advice", response={200: AdviceListOut, **REFUSALS}, summary="Advice")
def list_advice(
    request: HttpRequest,  # noqa: ARG001
    question: Literal["too_slow", "does_not_fit", "does_not_learn", "cannot_see_inside"] | None = None,
) -> AdviceListOut:
    """Return what to change for a question, or for all four."""
    chosen = QUESTIONS if question is None else (question,)
    return AdviceListOut(advice=[_advice(each) for each in advice().values() if each.question in chosen])


@router.get("/symptoms", response={200: CatalogSymptomsOut, **REFUSALS}, summary="Symptoms")
def list_symptoms(request: HttpRequest, trainer: str | None = None) -> CatalogSymptomsOut:  # noqa: ARG001
    """Return what goes wrong, how it shows, why, and what to try; of a trainer or of all."""
    _check_trainer(trainer)
    listed = [_symptom(each) for each in symptoms().values() if _concerns(each.trainers, trainer)]
    return CatalogSymptomsOut(symptoms=listed)


@router.get("/rules", response={200: CatalogRulesOut, **REFUSALS}, summary="Rules")
def list_rules(
    request: HttpRequest,  # noqa: ARG001
    trainer: str | None = None,
    level: Literal["error", "warning", "note"] | None = None,
) -> CatalogRulesOut:
    """Return the rules, all or those of a trainer or level."""
    _check_trainer(trainer)
    here = (each for each in rules().values() if _concerns(each.trainers, trainer) and level in (None, each.level))
    return CatalogRulesOut(rules=[_rule(each) for each in here])


def _check_trainer(name: str | None) -> None:
    if name is not None and name not in trainers():
        raise RequestProblem(422, f"There is no trainer {name!r}. Use one of {', '.join(trainers())}.", field="trainer")


def _concerns(names: Iterable[str], trainer: str | None) -> bool:
    concerned = tuple(names)
    return trainer is None or not concerned or trainer in concerned


def _recipe(each: Recipe) -> RecipeOut:
    return RecipeOut(
        id=each.id,
        label=each.label,
        help=each.help,
        prerequisites=list(each.prerequisites),
        hardware=each.hardware,
        source=each.source,
        version=each.version,
        tags=list(each.tags),
        based_on=each.based_on,
        spec=dict(each.raw),
    )


def _advice(each: Advice) -> AdviceOut:
    return AdviceOut(
        id=each.id,
        question=each.question,
        title=each.title,
        trainers=list(each.trainers),
        algorithms=list(each.algorithms),
        when=each.when,
        changes=[CatalogChange(knob=change.knob, to=change.to) for change in each.changes],
        effect=dict(each.effect),
        evidence=each.evidence,
        source=each.source,
    )


def _rule(each: SpecRule) -> CatalogRule:
    return CatalogRule(
        id=each.id,
        level=each.level,
        trainers=list(each.trainers),
        since=each.since,
        before=each.before,
        algorithms=list(each.algorithms),
        when=each.when.text,
        says=each.message,
        why=each.why,
        knobs=list(each.knobs),
        fixes=[_changes(fix) for fix in each.fixes],
        source=each.source,
        kind=each.kind,
    )


def _changes(change: Mapping[str, Expression]) -> list[CatalogChange]:
    return [CatalogChange(knob=knob, to=made.text) for knob, made in change.items()]


def _symptom(each: Symptom) -> CatalogSymptom:
    return CatalogSymptom(
        id=each.id,
        title=each.title,
        trainers=list(each.trainers),
        algorithms=list(each.algorithms),
        when=each.when.text if each.when else "",
        signal=each.signal,
        causes=list(each.causes),
        source=each.source,
        logs=[
            CatalogLogLine(pattern=line.pattern.pattern, text=line.text, file=line.file, source=line.source)
            for line in each.logs
        ],
        metrics=[list(signal.conditions) for signal in each.metrics],
        remedies=[_remedy(remedy) for remedy in each.remedies],
    )


def _remedy(each: Remedy) -> CatalogRemedy:
    return CatalogRemedy(
        title=each.title,
        changes=_changes(each.change),
        trainers=list(each.trainers),
        algorithms=list(each.algorithms),
        when=each.when.text if each.when else "",
        source=each.source,
    )
