"""The tab Summary of a trace: where a step goes, and what took how long."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.labels.catalog import phase_label
from console.labels.numbers import size
from console.labels.traces import DEFINITIONS, KINDS, WITHOUT_STACKS, share_text, short_name, time_text, worker_text
from console.trace_use import use_panel
from console.views.traces.page import page_of, unanswered, visible_trace
from console.views.traces.steps import host_figure, step_remarks
from jobs.diagnosis.model_facts import of_run
from jobs.traces.files import NoAnswer, ready_layers
from jobs.traces.summary import summary_of
from profiling.analysis.budget import KINDS as ORDER
from profiling.analysis.budget import StepBudget, WorkerBudget, totals
from profiling.analysis.kernels import Kernel
from profiling.analysis.memory import MemoryCurve, MemoryTimeline
from profiling.analysis.operators import Operator
from profiling.analysis.rollout import RolloutSummary
from profiling.analysis.stretches import By
from profiling.analysis.summary import TraceSummary, WorkerSummary

_SHOWN = 15
_LARGEST = 2**63 - 1
_MOST_BARS = 24
_LEAST = 0.15  # per cent of a bar: thinner parts cannot be seen


@dataclass(frozen=True, slots=True)
class TraceBarSegment:
    """A part of a bar: x and width in per cent of it; `is_narrow`: its label does not fit in on a phone."""

    key: str
    title: str
    x: str
    width: str
    label: str
    label_x: str
    is_narrow: bool


@dataclass(frozen=True, slots=True)
class StackedBar:
    """One stacked bar; `total` as a text, `note` under its name."""

    name: str
    note: str
    total: str
    segments: tuple[TraceBarSegment, ...]


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row of a table, and its name in short."""

    row: Kernel | Operator
    short: str


@dataclass(frozen=True, slots=True)
class GapLine:
    """An idle stretch; `begin` and `end` in Unix ns leave room around it, so that what ends and follows is in sight."""

    at: str
    length: str
    key: str
    word: str
    inside: str
    phase: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class RolloutPanel:
    """Generation in words: `tail` of the longest of `tails` rollouts, `line` the requests over time as SVG has them."""

    summary: RolloutSummary
    tail: str
    tails: int
    mean: str
    rate: str
    line: str


@dataclass(frozen=True, slots=True)
class MemoryPanel:
    """Memory of one device, and each curve with its line as SVG has it."""

    timeline: MemoryTimeline
    whose: str
    fragmentation: str
    curves: list[tuple[MemoryCurve, str]]


@require_GET
@expensive
def trace_summary(request: HttpRequest, trace_id: str) -> HttpResponse:
    """Show the summary of a trace, or of a window of it."""
    trace, held = visible_trace(request, trace_id)
    context = page_of(trace, held, tab="summary")
    window = _window(request)
    drop_first = request.GET.get("first") == "off"
    by: By = "window" if request.GET.get("by") == "window" else "steps"
    if not ready_layers(trace):
        return render(request, "trace/summary.html", {**context, "summary": None})
    try:
        summary = summary_of(trace, window=window, drop_first=drop_first, by=by)
    except NoAnswer as error:
        return unanswered(request, trace, context, error)
    worker = _chosen(summary, request.GET.get("worker", ""))
    context |= summary_context(summary, worker)
    context |= {"window": window, "drop_first": drop_first, "by": by, "kept_query": _query(window, drop_first, by)}
    if worker is not None:
        run = of_run(trace, summary.numbers)
        context["use"] = use_panel(request.GET.dict(), summary, worker, run)
    return render(request, "trace/summary.html", context)


def _query(window: tuple[int, int] | None, drop_first: bool, by: By) -> str:
    """Return what keeps the window and what was chosen of its steps in an address that names a worker."""
    chosen = ("&first=off" if drop_first else "") + ("&by=window" if by == "window" else "")
    return f"&from={window[0]}&to={window[1]}{chosen}" if window else chosen


def _window(request: HttpRequest) -> tuple[int, int] | None:
    """Return the window that the address names in Unix ns; None without a whole one."""
    begin, end = request.GET.get("from", ""), request.GET.get("to", "")
    if not all(text.isascii() and text.isdigit() and len(text) < 20 for text in (begin, end)):
        return None
    return (int(begin), int(end)) if int(begin) < int(end) <= _LARGEST else None


def _chosen(summary: TraceSummary, name: str) -> WorkerSummary | None:
    """Return the worker that "role-rank" names, else the first one."""
    return next((one for one in summary.workers if _key(one) == name), next(iter(summary.workers), None))


def summary_context(summary: TraceSummary, worker: WorkerSummary | None) -> dict[str, object]:
    """Return what the page shows of a summary and of one of its workers."""
    workers = {_key(one): one for one in summary.workers}
    key = _key(worker) if worker else ""
    budget = next((one for one in summary.budget.workers if worker and _key(one) == key), None)
    return {
        "summary": summary,
        "last_step": summary.budget.steps[-1].number if summary.budget.steps else -1,
        "choices": [(name, worker_text(one.role, one.rank), one.label) for name, one in workers.items()],
        "chosen": key,
        "worker": worker,
        "worker_name": worker_text(worker.role, worker.rank) if worker else "",
        "answer": _answer(summary, budget),
        "remarks": step_remarks(summary, worker) if worker and summary.has_clock else [],
        "path": _path_bar(summary),
        "bars": _worker_bars(summary) if summary.has_clock else [],
        "step_bars": _step_bars(budget) if budget and len(budget.steps) > 1 else [],
        "legend": _legend(summary),
        "phase_legend": [
            (phase, phase_label(phase) if phase else _("Between the phases")) for phase in _phases(summary)
        ],
        "figures": _figures(summary, worker, budget) if worker and summary.has_clock else [],
        "kernels": _named(worker.kernels) if worker else [],
        "operators": _named(worker.operators) if worker else [],
        "ranges": _named(worker.ranges) if worker else [],
        "idle": _idle(worker) if worker else [],
        "functions": _functions(worker) if worker else [],
        "gaps": _gaps(worker, summary) if worker else [],
        "late": [(worker_text(one.role, one.rank), one) for one in summary.late],
        "has_engine": any(one.role.startswith("vllm") for one in summary.workers),
        "engines": [(key, worker_text(one.role, one.rank)) for key, one in workers.items() if one.rollout],
        "rollout": _rollout(worker.rollout) if worker and worker.rollout else None,
        "memory": [_memory(one) for one in summary.memory],
        "by_phase": _by_phase(worker) if worker else [],
    }


def _key(worker: WorkerSummary | WorkerBudget) -> str:
    return f"{worker.role}-{worker.rank}"


def _answer(summary: TraceSummary, budget: WorkerBudget | None) -> str:
    """Say in a sentence where the time goes."""
    if not summary.has_clock and any(worker.kernels for worker in summary.workers):
        return _("It is known how long each kernel ran, but not when: nothing is known about what lies between them.")
    if budget is None or not budget.steps:
        most = max(summary.memory, key=lambda one: one.peak, default=None)
        return _("Memory reached %(size)s.") % {"size": size(most.peak)} if most else ""
    parts = budget.by_kind()
    wall = sum(parts.values())
    if not budget.is_recorded:
        sentence = _(
            "Of %(worker)s only phases and ranges were recorded, no operator and no kernel: where they are is known, "
            "what fills them is not."
        )
        return sentence % {"worker": worker_text(budget.role, budget.rank)}
    worst = sorted((kind for kind in parts if kind not in ("compute", "not_recorded")), key=lambda kind: -parts[kind])
    each = time_text(wall / len(budget.steps))
    words = {
        "worker": worker_text(budget.role, budget.rank),
        "compute": share_text(parts.get("compute", 0) / wall),
        "time": each,
    }
    if summary.has_steps:
        sentence = _("%(worker)s computes in %(compute)s of a step of %(time)s.") % words
    else:
        sentence = _("%(worker)s computes in %(compute)s of %(time)s.") % words
    if worst and parts[worst[0]] >= 0.02 * wall:
        more = _("The largest loss: %(kind)s, %(share)s.")
        sentence += " " + more % {"kind": KINDS[worst[0]], "share": share_text(parts[worst[0]] / wall)}
    return sentence[:1].upper() + sentence[1:]


def _figures(summary: TraceSummary, worker: WorkerSummary, budget: WorkerBudget | None) -> list[dict[str, str]]:
    """Return key numbers, each with its definition."""
    steps = summary.budget.steps
    walls = sorted(step.end - step.begin for step in steps)
    figures = []
    if summary.has_steps:
        text = _("mean of %(n)s steps, %(low)s–%(high)s") if len(steps) > 1 else _("one step")
        note = text % {"n": len(steps), "low": time_text(walls[0]), "high": time_text(walls[-1])}
        if summary.source == "repetition":
            note = _("%(note)s; found by repetition") % {"note": note}
        figures.append({"label": _("Step time"), "value": time_text(sum(walls) / len(walls)), "note": note})
        figures += host_figure(worker)
    busy = worker.busy / worker.recorded if worker.recorded and worker.has_work else None
    what = _("operators, no device") if worker.has_work else _("no operators: record with the torch profiler")
    if worker.operators and not worker.has_work:
        what = _("launches without the device's work: record it, too")
    what = _("of the time recorded, any kernel, collective or copy") if worker.has_device else what
    figures.append(
        {
            "label": _("Device busy") if worker.has_device else _("CPU busy"),
            "value": share_text(busy),
            "note": what,
        }
    )
    talk = worker.communication
    wall = sum(step.wall for step in budget.steps) if budget else 0
    exposed = talk.exposed / wall if talk and wall else None
    note = _("fraction of the steps; %(hidden)s of it is hidden") % {
        "hidden": share_text(talk.overlapped / talk.busy if talk and talk.busy else None)
    }
    lacking = _("no collective was recorded")
    figures.append(
        {"label": _("Exposed communication"), "value": share_text(exposed), "note": note if talk else lacking}
    )
    launches = worker.launches
    lacking = _("no kernels: record on a GPU")
    note = _("of kernels run shorter than their launch took; middle kernel %(time)s")
    figures.append(
        {
            "label": _("Short kernels"),
            "value": share_text(launches.short_share if launches else None),
            "note": note % {"time": time_text(launches.median_kernel)} if launches else lacking,
        }
    )
    note = _("median from launch to start; 99th percentile %(time)s")
    figures.append(
        {
            "label": _("Launch delay"),
            "value": time_text(launches.delay_p50 if launches else None),
            "note": note % {"time": time_text(launches.delay_p99)} if launches else lacking,
        }
    )
    return figures


def _phases(summary: TraceSummary) -> list[str]:
    phases = {part.phase: None for step in summary.budget.path for part in step.parts}
    return list(phases)


def _path_bar(summary: TraceSummary) -> list[StackedBar]:
    """Return the critical path of a mean step: phases by who the step waited for, and the same time by kind."""
    path = summary.budget.path
    if not path:
        return []
    phases: dict[str, int] = {}
    who: dict[str, set[str]] = {}
    for step in path:
        for part in step.parts:
            phases[part.phase] = phases.get(part.phase, 0) + part.ns
            who.setdefault(part.phase, set()).add(worker_text(part.role, part.rank))
    names = {key: phase_label(key) if key else _("Between the phases") for key in phases}
    titles = {key: f"{names[key]} ({', '.join(sorted(who[key]))})" for key in phases}
    return [
        _bar(_("Phases"), _("by the worker that ends last"), phases, titles, len(path)),
        _bar(
            _("Kinds"),
            _("of that worker, in that phase"),
            totals(path),
            {key: str(KINDS[key]) for key in KINDS},
            len(path),
        ),
    ]


def _worker_bars(summary: TraceSummary) -> list[StackedBar]:
    words = {key: str(word) for key, word in KINDS.items()}
    labels = {(one.role, one.rank): one.label for one in summary.workers}
    return [
        _bar(
            worker_text(one.role, one.rank),
            labels.get((one.role, one.rank), "") if one.is_recorded else _("phases only"),
            one.by_kind(),
            words,
            len(one.steps),
        )
        for one in summary.budget.workers[:_MOST_BARS]
    ]


def _step_bars(budget: WorkerBudget) -> list[StackedBar]:
    words = {key: str(word) for key, word in KINDS.items()}
    longest = max(step.wall for step in budget.steps)
    return [
        _bar(_("step %(step)s") % {"step": step.step}, "", totals([step]), words, 1, scale=longest)
        for step in budget.steps[:_MOST_BARS]
    ]


def _bar(name: str, note: str, parts: dict[str, int], words: dict[str, str], steps: int, scale: int = 0) -> StackedBar:
    """Return a bar of the mean of some steps; without a scale it fills its width."""
    whole = sum(parts.values())
    full = scale * steps or whole or 1
    segments, at = [], 0.0
    for key, ns in parts.items():
        width = 100 * ns / full
        share = share_text(ns / whole if whole else None)
        if width >= _LEAST:
            segments.append(
                TraceBarSegment(
                    key=key or "rest",
                    title=f"{words.get(key, key)}: {time_text(ns / max(steps, 1))}, {share}",
                    x=f"{at:.3f}%",
                    width=f"{width:.3f}%",
                    label=share if width > 6 else "",
                    label_x=f"{at + 0.6:.3f}%",
                    is_narrow=width < 16,
                )
            )
        at += width
    return StackedBar(name=name, note=note, total=time_text(whole / max(steps, 1)), segments=tuple(segments))


def _legend(summary: TraceSummary) -> list[tuple[str, str, str]]:
    """Return key, word and definition of each kind that occurs."""
    tables: list[Sequence[StepBudget]] = [one.steps for one in summary.budget.workers]
    shown = {kind for table in [*tables, summary.budget.path] for kind in totals(table)}
    has_stacks = any(worker.has_stacks for worker in summary.workers)
    words = {**DEFINITIONS, **({} if has_stacks else {"unattributed": WITHOUT_STACKS})}
    return [(kind, str(KINDS[kind]), str(words[kind])) for kind in ORDER if kind in shown]


def _named(rows: Sequence[Kernel | Operator]) -> list[NamedRow]:
    """Return the rows that a table shows."""
    return [NamedRow(row=row, short=short_name(row.name)) for row in rows[:_SHOWN]]


def _idle(worker: WorkerSummary) -> list[dict[str, str]]:
    whole = max(worker.recorded, 1)
    return [
        {
            "key": cause,
            "word": str(KINDS[cause]),
            "definition": str(
                WITHOUT_STACKS if cause == "unattributed" and not worker.has_stacks else DEFINITIONS[cause]
            ),
            "time": time_text(ns),
            "share": share_text(ns / whole),
        }
        for cause, ns in sorted(worker.idle.items(), key=lambda item: -item[1])
    ]


def _functions(worker: WorkerSummary) -> list[tuple[str, str, int]]:
    """Return the functions of the program behind idle time: name, time and in how many gaps."""
    return [(one.name, time_text(one.ns), one.gaps) for one in worker.python[:_SHOWN]]


def _gaps(worker: WorkerSummary, summary: TraceSummary) -> list[GapLine]:
    return [
        GapLine(
            at=time_text(gap.begin - summary.begin),
            length=time_text(gap.end - gap.begin),
            key=gap.cause,
            word=str(KINDS[gap.cause]),
            inside=gap.inside,
            phase=phase_label(gap.phase) if gap.phase else "",
            begin=max(0, gap.begin - (gap.end - gap.begin)),
            end=gap.end + (gap.end - gap.begin),
        )
        for gap in worker.gaps[:_SHOWN]
    ]


def _by_phase(worker: WorkerSummary) -> list[tuple[str, str, str, str]]:
    whole = sum(worker.device_by_phase.values()) or 1
    return [
        (key, phase_label(key) if key else _("Between the phases"), time_text(ns), share_text(ns / whole))
        for key, ns in worker.device_by_phase.items()
    ]


def _rollout(rollout: RolloutSummary) -> RolloutPanel:
    tails = [tail.share for tail in rollout.tails]
    return RolloutPanel(
        summary=rollout,
        tail=share_text(max(tails) if tails else None),
        tails=len(tails),
        mean=f"{rollout.mean_requests:.3g}",
        rate=f"{rollout.tokens / rollout.seconds:,.0f}" if rollout.seconds else "—",
        line=_line([(at, float(requests)) for at, requests in rollout.points], float(rollout.most_requests)),
    )


def _memory(timeline: MemoryTimeline) -> MemoryPanel:
    highest = max((curve.peak for curve in timeline.curves), default=0.0)
    return MemoryPanel(
        timeline=timeline,
        whose=worker_text(timeline.role, timeline.rank) if timeline.role or timeline.rank >= 0 else "",
        fragmentation=share_text(timeline.fragmentation),
        curves=[(curve, _line(list(curve.points), highest)) for curve in timeline.curves],
    )


def _line(points: Sequence[tuple[int, float]], highest: float) -> str:
    """Return the points of a step line in a box of 1000 by 100, as SVG writes them."""
    if not points:
        return ""
    first, last = points[0][0], points[-1][0]
    width = max(last - first, 1)
    points_text, before = [], None
    for at, value in points:
        x, y = 1000 * (at - first) / width, 100 - 100 * value / (highest or 1)
        if before is not None:
            points_text.append(f"{x:.1f},{before:.1f}")
        points_text.append(f"{x:.1f},{y:.1f}")
        before = y
    return " ".join(points_text)


urlpatterns: list[URLPattern] = [path("traces/<slug:trace_id>/summary", trace_summary, name="trace-summary")]
