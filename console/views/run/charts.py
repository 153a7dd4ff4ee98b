"""Which charts and chips the overview of a run shows, and the hard limits that its own spec sets."""

from dataclasses import dataclass
from typing import Any, Literal

from django.utils.translation import gettext as _

from console.labels.catalog import phase_label
from console.views.run.labels import timed_phases
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from profiling.phases import PHASES

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
    """Return the charts of the overview: eight of the built-in trainer's, of others those that they report."""
    if is_in(spec.algorithm, "distillation"):
        return _distilled(_rl(spec) if is_in(spec.algorithm, "rl") else _sft(spec))
    if is_in(spec.algorithm, "rl"):
        return _rl(spec)
    if is_in(spec.algorithm, "labeled"):
        return _labels(spec)
    return _pairs(spec) if is_in(spec.algorithm, "pairs") else _sft(spec)


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


def _distance(spec: RunSpec) -> ChartPlan:
    """How far the policy is from its reference; without one the learning rate, as the built-in trainer tells none."""
    if spec.is_native and not spec.needs("reference"):
        return _single("rate", _("Learning rate"), _("of the step's last update"), "policy/learning_rate")
    return ChartPlan(
        key="kl",
        title=_("KL to reference"),
        hint=_("%(estimator)s, nats per token") % {"estimator": _knob_value(spec, "algorithm.kl_estimator", "k1")},
        lines=(ChartLine(name="kl/reference", label=_("KL to reference")),),
    )


def _rl(spec: RunSpec) -> tuple[ChartPlan, ...]:
    samples = _knob_number(spec, "rollout.samples_per_prompt", 1)
    total = samples * _knob_number(spec, "rollout.prompts_per_step")
    longest = _knob_number(spec, "rollout.max_new_tokens")
    evaluates = _knob_number(spec, "eval.every_steps")
    held_out = _(", ○ held-out every %(n)s") % {"n": evaluates} if evaluates else ""
    return (
        ChartPlan(
            key="reward",
            title=_("Reward"),
            hint=_("mean of %(n)s") % {"n": f"{total:,}"} + held_out,
            lines=(
                ChartLine(name="reward/mean", label=_("Reward")),
                ChartLine(name="eval/reward", label=_("Held-out"), color="--run-1", is_points=True),
            ),
        ),
        _distance(spec),
        ChartPlan(
            key="entropy",
            title=_("Entropy"),
            hint=_("nats per token"),
            lines=(ChartLine(name="policy/entropy", label=_("Entropy")),),
        ),
        ChartPlan(
            key="length",
            title=_("Response length"),
            hint=_("tokens, mean and p95"),
            lines=_two_lines("response/length_mean", _("mean"), "response/length_p95", _("p95")),
            limits=(Limit(value=longest, label=_("limit %(n)s") % {"n": f"{longest:,}"}),) if longest else (),
        ),
        _baseline(spec, samples, longest),
        _explained() if spec.is_native and spec.needs("critic") else _clip(spec),
        _gradient(spec),
        _step_time() if timed_phases(spec) else _whole_step_time(),
    )


def _distilled(charts: tuple[ChartPlan, ...]) -> tuple[ChartPlan, ...]:
    """Return an overview with what a teacher says in the place of what such a run does not have."""
    of_teacher = {
        "loss": ChartPlan(
            key="loss",
            title=_("Distillation loss"),
            hint=_("nats per token"),
            lines=(ChartLine(name="loss/distillation", label=_("Loss")),),
        ),
        "kl": _gap(),
        "rate": _gap(),
        "clip": _overlap(),
        "epoch": _overlap(),
        "groups": _entropies(),
        "update": _entropies(),
    }
    return tuple(of_teacher.get(chart.key, chart) for chart in charts)


def _gap() -> ChartPlan:
    return _single("gap", _("Gap to the teacher"), _("KL of student from teacher, nats per token"), "teacher/gap")


def _overlap() -> ChartPlan:
    title = _("Overlap with the teacher")
    return _single("overlap", title, _("of the likeliest tokens"), "teacher/overlap", "share")


def _entropies() -> ChartPlan:
    return _single("teacher", _("The teacher's entropy"), _("nats per token"), "teacher/entropy")


def _baseline(spec: RunSpec, samples: int, longest: int) -> ChartPlan:
    """Return the chart of what rewards are held against: the critic's values, or the group."""
    if spec.needs("critic"):
        return _critic()
    return _groups(spec, samples) if spec.is_native and samples > 1 else _truncated(longest)


def _explained() -> ChartPlan:
    title, hint = _("Explained variance"), _("of the returns, by the critic's values")
    return _single("explained", title, hint, "value/explained_variance")


def _groups(spec: RunSpec, samples: int) -> ChartPlan:
    if _knob_value(spec, "algorithm.dynamic_sampling"):
        return ChartPlan(
            key="groups",
            title=_("Groups drawn"),
            hint=_("in a step, and those with rewards that differ"),
            lines=(
                ChartLine(name="groups/kept", label=_("with variance")),
                ChartLine(name="groups/sampled", label=_("drawn"), color="--run-7", is_dashed=True),
            ),
            unit="groups",
        )
    title = _("Zero-variance groups")
    line = ChartLine(name="groups/zero_variance_fraction", label=title)
    return ChartPlan(
        key="groups", title=title, hint=_("all %(n)s rewards equal") % {"n": samples}, lines=(line,), unit="share"
    )


def _critic() -> ChartPlan:
    line = ChartLine(name="loss/value", label=_("Value loss"))
    return ChartPlan(key="critic", title=_("Value loss"), hint=_("squared error of the critic"), lines=(line,))


def _truncated(longest: int) -> ChartPlan:
    line = ChartLine(name="response/truncated_fraction", label=_("Truncated"))
    hint = _("responses cut at %(n)s tokens") % {"n": f"{longest:,}"}
    return ChartPlan(key="truncated", title=_("Truncated"), hint=hint, lines=(line,), unit="share")


def _clip(spec: RunSpec) -> ChartPlan:
    low, high = _knob_value(spec, "algorithm.clip_ratio_low"), _knob_value(spec, "algorithm.clip_ratio_high")
    hint = ""
    if low is not None and high is not None:
        hint = _("ratio outside %(low)s–%(high)s") % {"low": f"{1 - low:g}", "high": f"{1 + high:g}"}
    line = ChartLine(name="policy/clip_fraction", label=_("Clip fraction"))
    return ChartPlan(key="clip", title=_("Clip fraction"), hint=hint, lines=(line,), unit="share")


def _held_out_too(training: str, held_out: str) -> tuple[ChartLine, ...]:
    """The lines of a metric of training and of the same one over held-out data."""
    return (
        ChartLine(name=training, label=_("Training")),
        ChartLine(name=held_out, label=_("Held-out"), color="--run-1", is_points=True),
    )


def _two_lines(first: str, label: str, second: str, second_label: str) -> tuple[ChartLine, ...]:
    """The lines of two metrics, the second dashed."""
    return (
        ChartLine(name=first, label=label),
        ChartLine(name=second, label=second_label, color="--run-7", is_dashed=True),
    )


def _pairs(spec: RunSpec) -> tuple[ChartPlan, ...]:
    return (
        _single("loss", _("Loss"), _("of the batch's pairs"), "loss/pairs"),
        ChartPlan(
            key="accuracy",
            title=_("Pairs in order"),
            hint=_("chosen above rejected"),
            lines=_held_out_too("pairs/accuracy", "eval/pairs_accuracy"),
            unit="share",
        ),
        ChartPlan(
            key="rewards",
            title=_("Rewards of the pairs"),
            hint=_("mean of the batch"),
            lines=_two_lines("pairs/chosen_reward", _("chosen"), "pairs/rejected_reward", _("rejected")),
        ),
        *(_likelihoods(spec) or _margins(spec)),
        _single("eval", _("Held-out loss"), _("of held-out pairs"), "eval/pairs_loss"),
        _gradient(spec),
        _single("rate", _("Learning rate"), _("of the step's last update"), "policy/learning_rate"),
        _whole_step_time(),
    )


def _labels(spec: RunSpec) -> tuple[ChartPlan, ...]:
    return (
        ChartPlan(
            key="loss",
            title=_("Loss"),
            hint=_("of the batch's responses, ○ held-out"),
            lines=_held_out_too("loss/labels", "eval/labels_loss"),
        ),
        ChartPlan(
            key="accuracy",
            title=_("Labels right"),
            hint=_("on the label's side of the reference point"),
            lines=_held_out_too("labels/accuracy", "eval/labels_accuracy"),
            unit="share",
        ),
        ChartPlan(
            key="rewards",
            title=_("Rewards by label"),
            hint=_("mean of the batch"),
            lines=_two_lines("labels/desirable_reward", _("desirable"), "labels/undesirable_reward", _("undesirable")),
        ),
        _single("point", _("Reference point"), _("nats of a whole response"), "labels/reference_point"),
        ChartPlan(
            key="likelihoods",
            title=_("Likelihood of the responses"),
            hint=_("nats of a whole response"),
            lines=_two_lines(
                "labels/desirable_logprob", _("desirable"), "labels/undesirable_logprob", _("undesirable")
            ),
        ),
        _gradient(spec),
        _single("rate", _("Learning rate"), _("of the step's last update"), "policy/learning_rate"),
        _whole_step_time(),
    )


def _likelihoods(spec: RunSpec) -> tuple[ChartPlan, ...]:
    """Whether the chosen responses stay likely, where responses are compared with a reference."""
    if not is_in(spec.algorithm, "anchored"):
        return ()
    lines = _two_lines("pairs/chosen_logprob", _("chosen"), "pairs/rejected_logprob", _("rejected"))
    hint = _("nats of a whole response")
    return (ChartPlan(key="likelihoods", title=_("Likelihood of the responses"), hint=hint, lines=lines),)


def _margins(spec: RunSpec) -> tuple[ChartPlan, ...]:
    """How far apart a reward model scores the two responses of a pair; other trainers do not say."""
    if not spec.is_native:
        return ()
    lines = _held_out_too("pairs/margin", "eval/pairs_margin")
    return (ChartPlan(key="margin", title=_("Margin of pairs"), hint=_("chosen less rejected"), lines=lines),)


def _single(key: str, title: str, hint: str, name: str, unit: str = "") -> ChartPlan:
    return ChartPlan(key=key, title=title, hint=hint, lines=(ChartLine(name=name, label=title),), unit=unit)


def _sft(spec: RunSpec) -> tuple[ChartPlan, ...]:
    evaluates = _knob_number(spec, "eval.every_steps")
    held_out = _(", ○ held-out every %(n)s") % {"n": evaluates} if evaluates else ""
    common = (
        ChartPlan(
            key="loss",
            title=_("Loss"),
            hint=_("nats per token") + held_out,
            lines=(
                ChartLine(name="loss/sft", label=_("Loss")),
                ChartLine(name="eval/loss", label=_("Held-out"), color="--run-1", is_points=True),
            ),
        ),
        _single("eval", _("Held-out loss"), _("nats per token"), "eval/loss"),
        _gradient(spec),
        _single("rate", _("Learning rate"), _("of the step's last update"), "policy/learning_rate"),
    )
    if not spec.is_native:
        return (*common, _whole_step_time())
    return (
        *common,
        _single(
            "update",
            _("Update speed"),
            _("tokens trained on per second"),
            "throughput/update_tokens_per_second",
            "tok/s",
        ),
        _single("epoch", _("Epoch"), _("passes over the data"), "train/epoch"),
        _single("reporting", _("Reporting time"), _("of each step, seconds"), "time/event_seconds", "s"),
        _step_time(),
    )


def _gradient(spec: RunSpec) -> ChartPlan:
    limit = float(_knob_value(spec, "optimizer.max_grad_norm") or 0)
    hint = _("before clipping at %(limit)s") % {"limit": f"{limit:g}"} if limit > 0 else _("not clipped")
    line = ChartLine(name="policy/grad_norm", label=_("Gradient norm"))
    return ChartPlan(key="gradient", title=_("Gradient norm"), hint=hint, lines=(line,))


def _knob_value(spec: RunSpec, knob_id: str, default: Any = None) -> Any:
    """Return a knob's value; `default` where the run has no such knob, or it is not set."""
    chosen = spec.knobs.get(knob_id)
    return default if chosen is None or chosen.value is None else chosen.value


def _knob_number(spec: RunSpec, knob_id: str, default: int = 0) -> int:
    return int(_knob_value(spec, knob_id, default))


def _whole_step_time() -> ChartPlan:
    return _single("time", _("Step time"), _("from one step to the next"), "time/step_seconds", "s")


def _step_time() -> ChartPlan:
    lines = tuple(
        ChartLine(name=f"time/{phase.key}_seconds", label=phase_label(phase.key), color=f"--{phase.token}")
        for phase in PHASES
        if phase.key not in ("load", "export")
    )
    return ChartPlan(
        key="time", title=_("Step time"), hint=_("stacked by phase"), lines=lines, unit="s", is_stacked=True
    )
