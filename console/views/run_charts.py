"""Which charts and chips the overview of a run shows, and the hard limits that its own spec sets."""

from dataclasses import dataclass
from typing import Literal

from django.utils.translation import gettext as _

from console.catalog_words import phase_label
from jobs.catalog.runspec import RunSpec
from profiling.phases import PHASES

GAP_LIMIT = 1e-3
"""Largest difference of log-probabilities between vLLM and trainer that correct weights show in float32, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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
    title: str
    hint: str
    lines: tuple[Line, ...]
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
    """Return the eight charts of the overview."""
    return _grpo(spec) if spec.algorithm == "grpo" else _sft(spec)


def overview_chips(spec: RunSpec) -> tuple[Chip, ...]:
    """Return the chips of the overview."""
    if spec.algorithm == "sft":
        return (
            Chip(name="loss/sft", label=_("Loss")),
            Chip(name="eval/loss", label=_("Held-out loss")),
            Chip(name="policy/grad_norm", label=_("Gradient norm")),
            Chip(name="policy/learning_rate", label=_("Learning rate")),
            Chip(name="train/epoch", label=_("Epoch")),
        )
    gap = GAP_LIMIT if spec.knob("memory.precision") == "float32" else None
    return (
        Chip(name="reward/mean", label=_("Reward")),
        Chip(name="eval/accuracy", label=_("Held-out accuracy"), unit="share"),
        Chip(name="kl/reference", label=_("KL to reference")),
        Chip(name="policy/entropy", label=_("Entropy")),
        Chip(name="response/truncated_share", label=_("Truncated"), unit="share"),
        Chip(name="groups/without_signal_share", label=_("Groups without signal"), unit="share"),
        Chip(name="sync/max_logprob_diff", label=_("vLLM gap"), limit=gap),
    )


def _grpo(spec: RunSpec) -> tuple[ChartPlan, ...]:
    samples = spec.int_knob("rollout.samples_per_prompt")
    total = samples * spec.int_knob("rollout.prompts_per_step")
    longest = spec.int_knob("rollout.max_new_tokens")
    low = 1 - spec.float_knob("algorithm.clip_ratio_low")
    high = 1 + spec.float_knob("algorithm.clip_ratio_high")
    evaluates = spec.int_knob("eval.every_steps")
    held_out = _(", ○ held-out every %(n)s") % {"n": evaluates} if evaluates else ""
    return (
        ChartPlan(
            key="reward",
            title=_("Reward"),
            hint=_("mean of %(n)s") % {"n": f"{total:,}"} + held_out,
            lines=(
                Line(name="reward/mean", label=_("Reward")),
                Line(name="eval/reward", label=_("Held-out"), color="--run-1", is_points=True),
            ),
        ),
        ChartPlan(
            key="kl",
            title=_("KL to reference"),
            hint=_("%(estimator)s, nats per token") % {"estimator": spec.knob("algorithm.kl_estimator")},
            lines=(Line(name="kl/reference", label=_("KL to reference")),),
        ),
        ChartPlan(
            key="entropy",
            title=_("Entropy"),
            hint=_("nats per token"),
            lines=(Line(name="policy/entropy", label=_("Entropy")),),
        ),
        ChartPlan(
            key="length",
            title=_("Response length"),
            hint=_("tokens, mean and p95"),
            lines=(
                Line(name="response/length_mean", label=_("mean")),
                Line(name="response/length_p95", label=_("p95"), color="--run-7", is_dashed=True),
            ),
            limits=(Limit(value=longest, label=_("limit %(n)s") % {"n": f"{longest:,}"}),),
        ),
        ChartPlan(
            key="groups",
            title=_("Groups without signal"),
            hint=_("all %(n)s rewards equal") % {"n": samples},
            lines=(Line(name="groups/without_signal_share", label=_("Groups without signal")),),
            unit="share",
        ),
        ChartPlan(
            key="clip",
            title=_("Clip fraction"),
            hint=_("ratio outside %(low)s–%(high)s") % {"low": f"{low:g}", "high": f"{high:g}"},
            lines=(Line(name="policy/clip_fraction", label=_("Clip fraction")),),
            unit="share",
        ),
        _gradient(spec),
        _step_time(),
    )


def _sft(spec: RunSpec) -> tuple[ChartPlan, ...]:
    def single(key: str, title: str, hint: str, name: str, unit: str = "") -> ChartPlan:
        return ChartPlan(key=key, title=title, hint=hint, lines=(Line(name=name, label=title),), unit=unit)

    evaluates = spec.int_knob("eval.every_steps")
    held_out = _(", ○ held-out every %(n)s") % {"n": evaluates} if evaluates else ""
    return (
        ChartPlan(
            key="loss",
            title=_("Loss"),
            hint=_("nats per token") + held_out,
            lines=(
                Line(name="loss/sft", label=_("Loss")),
                Line(name="eval/loss", label=_("Held-out"), color="--run-1", is_points=True),
            ),
        ),
        single("eval", _("Held-out loss"), _("nats per token"), "eval/loss"),
        _gradient(spec),
        single("rate", _("Learning rate"), _("of the step's last update"), "policy/learning_rate"),
        single(
            "update",
            _("Update speed"),
            _("tokens trained on per second"),
            "throughput/update_tokens_per_second",
            "tok/s",
        ),
        single("epoch", _("Epoch"), _("passes over the data"), "train/epoch"),
        single("reporting", _("Reporting time"), _("of each step, seconds"), "time/event_seconds", "s"),
        _step_time(),
    )


def _gradient(spec: RunSpec) -> ChartPlan:
    limit = spec.float_knob("optimizer.max_grad_norm")
    hint = _("before clipping at %(limit)s") % {"limit": f"{limit:g}"} if limit > 0 else _("not clipped")
    line = Line(name="policy/grad_norm", label=_("Gradient norm"))
    return ChartPlan(key="gradient", title=_("Gradient norm"), hint=hint, lines=(line,))


def _step_time() -> ChartPlan:
    lines = tuple(
        Line(name=f"time/{phase.key}_seconds", label=phase_label(phase.key), color=f"--{phase.token}")
        for phase in PHASES
        if phase.key not in ("load", "export")
    )
    return ChartPlan(
        key="time", title=_("Step time"), hint=_("stacked by phase"), lines=lines, unit="s", is_stacked=True
    )
