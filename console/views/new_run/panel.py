"""What the right side of the New run page says: only what is known, counted or tried; never an estimate."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.views.plan.findings import FixButton, fix_button
from console.views.plan.panel import ROLE_WORDS
from jobs.accounts.access import User
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import knobs
from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.placement import placement_of
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.cluster.ray_api import ClusterState
from jobs.models import Project
from jobs.preflight.client import TrialFailed
from jobs.preflight.preview import DataPreview, ModelFacts, RenderedSample, RewardResult, Segment, try_reward
from jobs.runs.admission import demand
from jobs.runs.checks import (
    Check,
    check_cluster,
    check_data,
    check_lengths,
    check_model,
    check_trainer,
    longest_sequence,
    on_cluster,
    place,
)
from profiling.counted import counted

HISTOGRAM_WIDTH = 560
HISTOGRAM_HEIGHT = 64
_SPECIAL = re.compile(r"(<\|[^|<>\n]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk)>|\[(?:INST|/INST|BOS|EOS|PAD|UNK|SEP|CLS)\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPanel:
    """Numbers that follow from the form alone, and what the run asks of the cluster."""

    numbers: tuple[tuple[str, str, str], ...]  # label, value, how it comes about
    workers: tuple[tuple[str, int], ...]
    asks: str
    state: str  # a state badge's key
    message: str  # when it would start


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """A stretch of rendered text; special tokens stand alone."""

    text: str
    is_trained: bool
    is_special: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """A row as it will be trained on; of a pair the chosen side, and the rejected one, else empty."""

    num_tokens: int
    pieces: tuple[TextSpan, ...]
    answer: str
    rejected: tuple[TextSpan, ...]
    num_rejected_tokens: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramBar:
    """A bar of the length histogram, in pixels of its drawing."""

    x: str
    y: str
    width: str
    height: str
    title: str
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewPanel:
    """Data, model and checks. `limit_x` is where the longest allowed length lies in the histogram."""

    checks: tuple[tuple[Check, tuple[FixButton, ...]], ...]
    data: DataPreview | None
    model: ModelFacts | None
    data_caption: str
    model_caption: str
    samples: tuple[ShownRow, ...]
    bars: tuple[HistogramBar, ...]
    limit: int
    limit_x: str
    limit_anchor: str
    passes: str
    length_line: str
    is_prompt_only: bool

    @property
    def failed(self) -> list[Check]:
        """Checks that refuse the launch."""
        return [c for c, _fixes in self.checks if c.state == "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPanel:
    """The reward's trial, or the sentence why there is none and beside which field it stands."""

    results: tuple[RewardResult, ...]
    problem: str
    field: str
    mean: float
    is_flat: bool  # the same for right and wrong: nothing could be learned from it

    @property
    def rows(self) -> list[tuple[RewardResult, str]]:
        """Each result with its milliseconds, as text."""
        return [(r, _milliseconds(r.seconds)) for r in self.results]

    @property
    def total_ms(self) -> str:
        """The milliseconds of all, as text."""
        return _milliseconds(sum(r.seconds for r in self.results))


def summary_panel(spec: RunSpec, state: ClusterState, *, project: Project, user: User) -> SummaryPanel:
    """Return what follows from the form, and what the queue and the quotas would say now."""
    verdict = place(spec, state, project=project, user=user) if state.is_reachable else None
    if verdict is None:
        badge, message = "missing", state.problem or _("The cluster does not answer.")
    elif not verdict.fits:
        badge, message = "failed", verdict.reason
    elif verdict.is_admitted:
        badge, message = "ready", _("Resources are free now")
    else:
        badge, message = "queued", verdict.reason
    return SummaryPanel(
        numbers=_numbers(spec), workers=_workers(spec), asks=_asks(spec, state), state=badge, message=message
    )


def launch_label(spec: RunSpec, state: ClusterState) -> str:
    """Return what the launch button says it will do, or which devices are missing: what needs GPUs goes on no CPUs."""
    device = _device(spec, state)
    if device == "auto":
        return ngettext("Launch %(n)s worker", "Launch %(n)s workers", spec.num_workers) % {"n": spec.num_workers}
    if device == "cuda" and state.is_reachable and not state.gpus_total:
        return _("Needs %(asks)s; the cluster has none") % {"asks": _asks(spec, state)}
    return _("Launch on %(asks)s") % {"asks": _asks(spec, state)}


def hardware_caption(state: ClusterState) -> str:
    """Return what the cluster has, or that it does not say."""
    if not state.is_reachable:
        return _("the cluster does not answer now")
    values = {"cpus": f"{state.cpus_total:g}", "gpus": f"{state.gpus_total:g}"}
    if state.gpus_total:
        return counted(_("the cluster has %(gpus)s GPUs, %(cpus)s CPUs") % values)
    return counted(_("the cluster has %(cpus)s CPUs, no GPU") % values)


def preview_panel(spec: RunSpec, *, project: Project, state: ClusterState) -> PreviewPanel:
    """Try data and model and return what came of it; what cannot be tried is among the checks."""
    data, data_checks = check_data(spec, project=project)
    model, model_checks = check_model(spec, project=project)
    checks = [*model_checks, *data_checks, *check_lengths(spec, model), *check_trainer(spec)]
    checks += check_cluster(spec, state)
    limit = _limit(spec)
    top = max([*(data.edges if data else ()), limit * 1.04, 1])
    return PreviewPanel(
        checks=_with_fixes(spec, dict.fromkeys(checks)),  # what stops the model stops the data, and is said once
        data=data,
        model=model,
        data_caption=_data_caption(data),
        model_caption=_model_caption(model),
        samples=tuple(map(_shown_row, data.samples)) if data else (),
        bars=_bars(data, top, limit) if data else (),
        limit=limit,
        limit_x=f"{limit / top * HISTOGRAM_WIDTH:.1f}",
        limit_anchor="end" if limit / top > 0.85 else "middle",
        passes=_passes(spec, data),
        length_line=_length_line(spec, data) if data else "",
        is_prompt_only=is_in(spec.algorithm, "rl"),
    )


def _shown_row(sample: RenderedSample) -> ShownRow:
    return ShownRow(
        num_tokens=sample.num_tokens,
        pieces=pieces(sample.segments),
        answer=sample.answer,
        rejected=pieces(sample.rejected),
        num_rejected_tokens=sample.num_rejected_tokens,
        label={"desirable": _("desirable"), "undesirable": _("undesirable")}.get(sample.label, ""),
    )


def _length_line(spec: RunSpec, data: DataPreview) -> str:
    """Return how many rows the limit cuts or leaves out, and whether all were measured; "" if none is too long."""
    if not (data.num_too_long or data.num_left_out):
        return ""
    words = {
        "long": f"{data.num_too_long:,}",
        "out": f"{data.num_left_out:,}",
        "share": f"{data.share_truncated * 100:.1f} %",
        "measured": f"{data.num_measured:,}",
    }
    if not spec.is_native:
        text = _("%(long)s rows (%(share)s) are longer than the limit")
    elif is_in(spec.algorithm, "answers"):
        text = _(
            "%(long)s rows (%(share)s) are cut at the limit, %(out)s left out, as nothing to learn remains of them"
        )
    else:
        text = _("%(out)s rows (%(share)s) are left out: longer than the limit")
    if data.is_sampled:
        text = _("About %(what)s. Measured on %(measured)s rows.") % {**words, "what": text}
    return counted(text % words)


def _with_fixes(spec: RunSpec, checks: Iterable[Check]) -> tuple[tuple[Check, tuple[FixButton, ...]], ...]:
    """Return the checks, those that refuse the launch first, each with the buttons that mend it."""
    rows = [(check, tuple(fix_button(changes, spec) for changes in check.fixes)) for check in checks]
    return tuple(sorted(rows, key=lambda row: row[0].state != "failed"))


def reward_panel(spec: RunSpec, *, project: Project, user: User) -> RewardPanel:
    """Try the reward and return what it gave."""
    try:
        results = try_reward(spec, project=project, user=user)
    except TrialFailed as failed:
        return RewardPanel(results=(), problem=failed.message, field=failed.field, mean=0.0, is_flat=False)
    rewards = [r.reward for r in results]
    return RewardPanel(
        results=results,
        problem="",
        field="reward.source",
        mean=sum(rewards) / len(rewards) if rewards else 0.0,
        is_flat=len(set(rewards)) == 1 and len(rewards) > 1,
    )


def pieces(segments: tuple[Segment, ...]) -> tuple[TextSpan, ...]:
    """Return segments cut at special tokens, so that these can be drawn as what they are."""
    spans = []
    for segment in segments:
        for number, text in enumerate(_SPECIAL.split(segment.text)):
            if text:
                spans.append(TextSpan(text=text, is_trained=segment.is_trained, is_special=number % 2 == 1))
    return tuple(spans)


def _limit(spec: RunSpec) -> int:
    """Return the longest prompt, or sample, in tokens, as the preview takes it where the run leaves it open."""
    name = "rollout.max_prompt_tokens" if is_in(spec.algorithm, "rl") else "train.max_sequence_tokens"
    limit = spec.knobs[name].value if name in spec.knobs else None
    return int(limit or knobs()[name].default or 0)


def _numbers(spec: RunSpec) -> tuple[tuple[str, str, str], ...]:
    steps = spec.num_steps
    shown = f"{steps:,}" if steps else "—"
    longest = f"{longest_sequence(spec):,}" if longest_sequence(spec) else "—"
    if not is_in(spec.algorithm, "rl"):
        batch = spec.int_knob("train.batch_size")
        return (
            (_("Steps"), shown, _("one batch and its update each")),
            (_("Samples per step"), f"{batch:,}", _("batch size")),
            (_("Samples seen"), f"{steps * batch:,}" if steps else "—", _("steps times batch size")),
            (_("Longest sample"), longest, _("tokens")),
        )
    completions = spec.int_knob("rollout.prompts_per_step") * spec.int_knob("rollout.samples_per_prompt")
    return (
        (_("Steps"), shown, _("one rollout and its update each")),
        (_("Responses per step"), f"{completions:,}", _("prompts per step times samples per prompt")),
        (_("Responses in total"), f"{steps * completions:,}" if steps else "—", _("steps times responses per step")),
        (_("Longest sequence"), longest, _("tokens: longest prompt plus longest response")),
    )


def _workers(spec: RunSpec) -> tuple[tuple[str, int], ...]:
    return tuple(
        ("+".join(str(ROLE_WORDS.get(role, role)) for role in pool.split("+")), size)
        for pool, size in placement_of(spec).pools(spec).items()
    )


def _device(spec: RunSpec, state: ClusterState) -> str:
    """Return the device that the run asks for; "auto" where that is the cluster's, which does not answer."""
    if spec.hardware.device != "auto":
        return spec.hardware.device
    if spec.algorithm in trainers()[spec.trainer.name].needs_gpu:
        return "cuda"
    if not state.is_reachable:
        return "auto"
    return "cuda" if _is_refused_without_gpu(on_cluster(spec, state)) else state.device


def _is_refused_without_gpu(spec: RunSpec) -> bool:
    """Return True if a rule refuses the run on the CPU, and would not on a GPU."""
    return any(
        fix.changes.get("hardware.device") == "cuda"
        for finding in findings(spec)
        if finding.level == "error" and not finding.is_overridden
        for fix in finding.fixes
    )


def _asks(spec: RunSpec, state: ClusterState) -> str:
    device = _device(spec, state)
    device = state.device if device == "auto" else device
    cpus, gpus = demand(spec, device=device)
    if device == "cuda":
        return ngettext("%(n)s GPU", "%(n)s GPUs", int(gpus)) % {"n": f"{gpus:g}"}
    return ngettext("%(n)s CPU", "%(n)s CPUs", int(cpus)) % {"n": f"{cpus:g}"}


def _bars(data: DataPreview, top: float, limit: int) -> tuple[HistogramBar, ...]:
    most = max([*data.counts, 1])
    bars = []
    for low, high, count in zip(data.edges, data.edges[1:], data.counts, strict=False):
        height = max(count / most * HISTOGRAM_HEIGHT, 1.5 if count else 0)
        words = {"count": f"{count:,}", "low": f"{low:g}", "high": f"{high:g}"}
        bars.append(
            HistogramBar(
                x=f"{low / top * HISTOGRAM_WIDTH:.1f}",
                y=f"{HISTOGRAM_HEIGHT - height:.1f}",
                width=f"{max((high - low) / top * HISTOGRAM_WIDTH - 1, 1):.1f}",
                height=f"{height:.1f}",
                title=counted(_("%(count)s rows of %(low)s to %(high)s tokens") % words),
                is_over=low >= limit,
            )
        )
    return tuple(bars)


def _passes(spec: RunSpec, data: DataPreview | None) -> str:
    """Return how often the run goes through its training rows: a division, no estimate."""
    num_used = 0 if data is None else data.num_train - data.num_left_out
    if num_used <= 0 or not spec.num_steps or (data is not None and data.is_beginning):
        return "—"
    per_step = spec.int_knob("rollout.prompts_per_step" if is_in(spec.algorithm, "rl") else "train.batch_size")
    return f"{spec.num_steps * per_step / num_used:.2f}"


def _data_caption(data: DataPreview | None) -> str:
    if data is None:
        return ""
    if data.is_beginning:
        return counted(_("the first %(rows)s rows are shown") % {"rows": f"{data.num_rows:,}"})
    text = _("%(rows)s rows, %(eval)s held out")
    return counted(text % {"rows": f"{data.num_rows:,}", "eval": f"{data.num_eval:,}"})


def _model_caption(model: ModelFacts | None) -> str:
    if model is None:
        return ""
    size = _short_count(model.num_parameters) if model.num_parameters else "—"
    context = f"{model.context_tokens:,}" if model.context_tokens else "—"
    return _("%(size)s parameters, context %(context)s") % {"size": size, "context": context}


def _short_count(count: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.1f}" if seconds < 1 else f"{seconds * 1000:,.0f}"
