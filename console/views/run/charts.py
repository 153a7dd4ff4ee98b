"""Which charts and chips the overview of a run shows, and the hard limits that its own spec sets."""

from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext as _

from jobs.catalog.algorithm import is_in
from jobs.catalog.metric import metric
from jobs.catalog.overview import KNOB, TOPICS, OverviewChart, OverviewLine, charts_of
from jobs.catalog.spec.runspec import RunSpec

GAP_LIMIT = 1e-3
"""Largest difference of log-probabilities between vLLM and trainer that correct weights show in float32, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """One metric in a chart; `color` is a CSS variable."""

    name: str
    label: str
    color: str = "--run-0"
    is_dashed: bool = False
    is_points: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A hard limit: a dashed line with its number."""

    value: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPlan:
    """One chart of the overview. `hint` defines the number, `unit` is the metric dictionary's."""

    key: str
    topic: str
    title: str
    hint: str
    lines: tuple[ChartLine, ...]
    unit: str = ""
    is_stacked: bool = False
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """The newest value of a metric above the charts; it fires only against a hard limit, never against taste."""

    name: str
    label: str
    unit: str = ""
    limit: float | None = None
    side: Literal["above", "below"] = "above"


def overview_charts(spec: RunSpec) -> tuple[ChartPlan, ...]:
    """Return the charts of the overview that the run reports, in the order learning, rollout, stability, speed."""
    return tuple(_plan(chart, spec) for chart in charts_of(spec))


def _plan(chart: OverviewChart, spec: RunSpec) -> ChartPlan:
    limit = _knob_number(spec, chart.limit_knob) if chart.limit_knob else 0
    return ChartPlan(
        key=chart.key,
        topic=_(TOPICS[chart.topic]),
        title=_(chart.title),
        hint=_hint(chart, spec),
        lines=tuple(_line(line) for line in chart.lines),
        unit=metric(chart.lines[0].metric).unit,
        is_stacked=chart.is_stacked,
        limits=(Limit(value=limit, label=_("limit %(n)s") % {"n": f"{limit:,}"}),) if limit else (),
    )


def _line(line: OverviewLine) -> ChartLine:
    color = f"--{line.token}" if line.token else {"": "--run-0", "points": "--run-1", "dashed": "--run-7"}[line.look]
    return ChartLine(
        name=line.metric,
        label=_(line.label or metric(line.metric).label),
        color=color,
        is_dashed=line.look == "dashed",
        is_points=line.look == "points",
    )


def _hint(chart: OverviewChart, spec: RunSpec) -> str:
    """Return the hint with the run's knobs in it; "" where the run has no such knob."""
    values = {knob: _knob_value(spec, knob) for knob in KNOB.findall(chart.hint)}
    if chart.hint_at_zero and not all(values.values()):
        return _(chart.hint_at_zero)
    if None in values.values():
        return ""
    return KNOB.sub(lambda place: _written(values[place[1]]), _(chart.hint))


def _written(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return str(value)


def overview_chips(spec: RunSpec) -> tuple[Chip, ...]:
    """Return the chips of the overview."""
    if is_in(spec.algorithm, "distillation"):
        is_sampled = is_in(spec.algorithm, "rl")
        return (
            Chip(name="teacher/gap", label=_("Gap to the teacher")),
            Chip(name="teacher/overlap", label=_("Overlap with the teacher"), unit="share"),
            Chip(name="eval/accuracy", label=_("Held-out accuracy"), unit="share")
            if is_sampled
            else Chip(name="eval/loss", label=_("Held-out loss")),
            Chip(name="policy/entropy", label=_("Entropy")),
            Chip(name="policy/grad_norm", label=_("Gradient norm")),
            Chip(name="policy/learning_rate", label=_("Learning rate")),
        )
    if is_in(spec.algorithm, "answers"):
        return (
            Chip(name="loss/sft", label=_("Loss")),
            Chip(name="eval/loss", label=_("Held-out loss")),
            Chip(name="policy/grad_norm", label=_("Gradient norm")),
            Chip(name="policy/learning_rate", label=_("Learning rate")),
            Chip(name="train/epoch", label=_("Epoch")),
        )
    if is_in(spec.algorithm, "labeled"):
        return (
            Chip(name="loss/labels", label=_("Loss")),
            Chip(name="labels/accuracy", label=_("Labels right"), unit="share"),
            Chip(name="eval/labels_accuracy", label=_("Held-out labels right"), unit="share"),
            Chip(name="labels/reference_point", label=_("Reference point"), unit="nats"),
            Chip(name="policy/grad_norm", label=_("Gradient norm")),
            Chip(name="policy/learning_rate", label=_("Learning rate")),
        )
    if not is_in(spec.algorithm, "rl"):
        return (
            Chip(name="loss/pairs", label=_("Loss")),
            Chip(name="pairs/accuracy", label=_("Pairs in order"), unit="share"),
            Chip(name="eval/pairs_accuracy", label=_("Held-out pairs in order"), unit="share"),
            Chip(name="policy/grad_norm", label=_("Gradient norm")),
            Chip(name="policy/learning_rate", label=_("Learning rate")),
        )
    if not spec.is_native:
        return (
            Chip(name="reward/mean", label=_("Reward")),
            Chip(name="kl/reference", label=_("KL to reference")),
            Chip(name="policy/entropy", label=_("Entropy")),
            Chip(name="policy/clip_fraction", label=_("Clip fraction"), unit="share"),
            Chip(name="response/truncated_fraction", label=_("Truncated"), unit="share"),
            Chip(name="throughput/tokens_per_second_per_gpu", label=_("Throughput"), unit="tok/s/GPU"),
        )
    gap = GAP_LIMIT if spec.knob("memory.precision") == "float32" else None
    baseline = (
        Chip(name="value/explained_variance", label=_("Explained variance"))
        if spec.needs("critic")
        else Chip(name="groups/zero_variance_fraction", label=_("Zero-variance groups"), unit="share")
    )
    has_reference = spec.needs("reference")
    return (
        Chip(name="reward/mean", label=_("Reward")),
        Chip(name="eval/accuracy", label=_("Held-out accuracy"), unit="share"),
        *((Chip(name="kl/reference", label=_("KL to reference")),) if has_reference else ()),
        Chip(name="policy/entropy", label=_("Entropy")),
        Chip(name="response/truncated_fraction", label=_("Truncated"), unit="share"),
        baseline,
        Chip(name="sync/max_logprob_diff", label=_("Rollout gap"), limit=gap),
    )


def _knob_value(spec: RunSpec, knob_id: str, default: Any = None) -> Any:
    """Return a knob's value; `default` where the run has no such knob, or it is not set."""
    chosen = spec.knobs.get(knob_id)
    return default if chosen is None or chosen.value is None else chosen.value


def _knob_number(spec: RunSpec, knob_id: str, default: int = 0) -> int:
    return int(_knob_value(spec, knob_id, default))
