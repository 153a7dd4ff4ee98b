"""What is known: knobs and metrics."""

import math

from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from jobs.catalog.knob import Knob, applicable, knobs
from jobs.catalog.metric import MetricInfo, metrics
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value

router = Router(tags=["catalog"])


class FlagOut(Schema):
    """The options that versions of a trainer have for a knob; an empty bound or list of algorithms is none."""

    trainer: str
    names: list[str]
    since: str
    before: str
    algorithms: list[str]
    default: Value
    is_live: bool = Field(description="A run under way takes another value at its next step")


class NeedOut(Schema):
    """Another knob, and the values of it under which this one means something: some, or all above a number."""

    knob: str
    values: list[Value]
    above: float | None


class KnobOut(Schema):
    """A knob: what it takes, what it means, and where it applies. A missing bound is null."""

    id: str
    label: str
    type: str
    default: Value
    defaults: dict[str, Value]
    low: float | None
    high: float | None
    choices: list[str]
    unit: str
    help: str
    effects: dict[str, str]
    source: str
    algorithms: list[str]
    trainers: list[str]
    flags: list[FlagOut]
    needs: list[NeedOut]
    is_essential: bool
    is_optional: bool
    is_privileged: bool


class KnobsOut(Schema):
    """Knobs in the order of the form."""

    knobs: list[KnobOut]


class CatalogMetricsOut(Schema):
    """The dictionary of metrics."""

    metrics: list[MetricInfo]


@router.get("/knobs", response={200: KnobsOut, **REFUSALS}, summary="Knobs")
def list_knobs(
    request: HttpRequest,  # noqa: ARG001
    algorithm: str | None = None,
    trainer: str | None = None,
    version: str | None = None,
) -> KnobsOut:
    """Return the knobs, all or those that apply to an algorithm and a trainer, or to one version of it.

    A version needs an algorithm and a trainer beside it; then choices and ranges are those that it takes.
    """
    every = list(knobs().values())
    _check("algorithm", algorithm, {a for k in every for a in k.algorithms})
    _check("trainer", trainer, {t for k in every for t in k.trainers})
    if version is not None:
        if algorithm is None or trainer is None:
            raise RequestProblem(422, "Name the trainer and the algorithm beside its version.", field="version")
        _check("version", version, set(trainers()[trainer].versions))
        return KnobsOut(knobs=[_knob(knob) for knob in applicable(algorithm, trainer, version).values()])
    here = [k for k in every if algorithm in (None, *k.algorithms) and trainer in (None, *k.trainers)]
    return KnobsOut(knobs=[_knob(k) for k in here])


@router.get("/metrics", response={200: CatalogMetricsOut, **REFUSALS}, summary="Metrics")
def list_metrics(request: HttpRequest) -> CatalogMetricsOut:  # noqa: ARG001
    """Return label, unit, definition and better direction of every known metric."""
    return CatalogMetricsOut(metrics=list(metrics().values()))


def _check(field: str, value: str | None, choices: set[str]) -> None:
    if value is not None and value not in choices:
        raise RequestProblem(
            422, f"There is no {field} {value!r}. Use one of {', '.join(sorted(choices))}.", field=field
        )


def _knob(knob: Knob) -> KnobOut:
    return KnobOut(
        id=knob.id,
        label=knob.label,
        type=knob.type,
        default=knob.default,
        defaults=dict(knob.defaults),
        low=knob.low if math.isfinite(knob.low) else None,
        high=knob.high if math.isfinite(knob.high) else None,
        choices=list(knob.choices),
        unit=knob.unit,
        help=knob.help,
        effects=dict(knob.effects),
        source=knob.source,
        algorithms=list(knob.algorithms),
        trainers=list(knob.trainers),
        flags=[
            FlagOut(
                trainer=flag.trainer,
                names=list(flag.names),
                since=flag.since,
                before=flag.before,
                algorithms=list(flag.algorithms),
                default=flag.default,
                is_live=flag.is_live,
            )
            for flag in knob.flags
        ],
        needs=[NeedOut(knob=need.knob, values=list(need.values), above=need.above) for need in knob.needs],
        is_essential=knob.is_essential,
        is_optional=knob.is_optional,
        is_privileged=knob.is_privileged,
    )
