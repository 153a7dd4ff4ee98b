"""Two traces against each other: what explains the difference in step time, largest first."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.api.traces.traces import without_trash
from console.budget import expensive
from console.labels.catalog import phase_label
from console.labels.traces import CHANGES, ITEMS, KINDS, change_text, share_text, short_name, time_text, worker_text
from console.views.traces.page import page_of, unanswered, visible_trace
from jobs.models import Trace
from jobs.traces.files import NoAnswer
from jobs.traces.summary import NothingToCompare, compare
from profiling.analysis.difference import Difference, Item

_SHOWN = 40
_STEPS = 8
_MOST_OTHERS = 100


@dataclass(frozen=True, slots=True)
class Fall:
    """One row of a waterfall: from where to where on the common scale, in per cent; `tone` is good, bad or whole."""

    name: str
    title: str
    x: str
    width: str
    tone: str
    text: str
    share: str


@dataclass(frozen=True, slots=True)
class ItemLine:
    """What one kind of work takes in a step of each trace, in words; `key` is that of its color."""

    label: str
    title: str
    kind: str
    key: str
    change: str
    word: str
    before: str
    after: str
    delta: str
    tone: str
    share: str
    calls: str


@require_GET
@expensive
def trace_difference(request: HttpRequest, trace_id: str) -> HttpResponse:
    """Show what another trace does differently from this one."""
    trace, held = visible_trace(request, trace_id)
    wanted = request.GET.get("other", "")
    others = without_trash(
        Trace.objects.filter(project=trace.project, layers__state="ready").exclude(pk=trace.pk).distinct()
    )
    drop_first = request.GET.get("first") == "off"
    context = page_of(trace, held, tab="summary") | {
        "others": others.order_by("-created_at")[:_MOST_OTHERS],
        "other": None,
        "drop_first": drop_first,
        "problem": "",
    }
    if wanted:
        other, _held = visible_trace(request, wanted)
        try:
            context |= {"other": other, **_comparison(request, trace, other, drop_first=drop_first)}
        except NoAnswer as error:
            return unanswered(request, trace, context, error)
    return render(request, "trace/difference.html", context)


def _comparison(request: HttpRequest, trace: Trace, other: Trace, *, drop_first: bool) -> dict[str, object]:
    workers = [_worker(request.GET.get(name, "")) for name in ("worker", "other_worker")]
    try:
        comparison = compare(trace, other, worker=workers[0], other_worker=workers[1], drop_first=drop_first)
    except NothingToCompare as error:
        return {"problem": str(error)}
    return {
        "choices": [
            [(_name(one), worker_text(*one)) for one in table]
            for table in (comparison.workers, comparison.other_workers)
        ],
        "chosen": [_name(comparison.worker), _name(comparison.other_worker)],
        "is_cut": comparison.is_cut,
        **difference_context(comparison.difference),
    }


def _name(worker: tuple[str, int]) -> str:
    return f"{worker[0]}-{worker[1]}"


def _worker(text: str) -> tuple[str, int] | None:
    """Return the worker that "policy-0" names; None for anything else."""
    role, dash, rank = text[:60].rpartition("-")
    return (role, int(rank)) if dash and rank.isascii() and rank.isdigit() and len(rank) < 10 else None


def difference_context(difference: Difference) -> dict[str, object]:
    """Return what the page shows of a difference."""
    gained = difference.after - difference.before
    shown = [item for item in difference.items if item.change != "same"]
    return {
        "found": difference,
        "answer": _answer(difference, shown),
        "delta": change_text(gained),
        "before": time_text(difference.before),
        "after": time_text(difference.after),
        "kinds": _waterfall(difference, difference.kinds),
        "phases": _waterfall(difference, difference.phases) if difference.phases else [],
        "falls": _waterfall(difference, difference.items[:_STEPS]),
        "items": [_row(item) for item in shown[:_SHOWN]],
        "num_more": max(0, difference.num_items - min(len(shown), _SHOWN)),
        "rest": change_text(
            difference.rest + sum(item.delta for item in difference.items if item not in shown[:_SHOWN])
        ),
        "unexplained": change_text(difference.unexplained),
        "operators": [_row(item) for item in difference.operators if item.change != "same"][:_SHOWN],
    }


def _answer(difference: Difference, shown: list[Item]) -> str:
    gained = difference.after - difference.before
    words = {"after": time_text(difference.after), "before": time_text(difference.before), "delta": change_text(gained)}
    if abs(gained) < 0.01 * difference.before:
        sentence = _("A step takes %(after)s instead of %(before)s: less than 1 %% apart.") % words
    else:
        share = ("+" if gained > 0 else "") + share_text(gained / difference.before)
        sentence = _("A step takes %(after)s instead of %(before)s: %(delta)s (%(share)s).") % {**words, "share": share}
    same_way = [item for item in shown if item.delta * gained > 0][:2]
    if same_way and abs(gained) >= 0.01 * difference.before:
        names = ", ".join(f"{_label(item)} ({change_text(item.delta)})" for item in same_way)
        sentence += " " + _("Most of it: %(names)s.") % {"names": names}
    return sentence


def _label(item: Item) -> str:
    """Return what an item is called."""
    if item.kind == "phase":
        return phase_label(item.name) if item.name else _("Between the phases")
    if item.kind == "kind":
        return str(KINDS[item.name])
    if item.kind == "operator":
        return item.name or _("no operator")
    if item.kind in ITEMS:
        return short_name(item.name)
    cause = str(KINDS.get(item.kind, item.kind))
    return f"{cause}: {item.name}" if item.name else cause


def _row(item: Item) -> ItemLine:
    has_calls = item.calls_before or item.calls_after
    return ItemLine(
        label=_label(item),
        title=item.name,
        kind=str(ITEMS.get(item.kind, KINDS.get(item.kind, item.kind))),
        key="compute" if item.kind == "kernel" else item.kind,
        change=item.change,
        word=str(CHANGES[item.change]),
        before=time_text(item.before) if item.before or item.calls_before else "—",
        after=time_text(item.after) if item.after or item.calls_after else "—",
        delta=change_text(item.delta),
        tone="bad" if item.delta > 0 else "good",
        share=share_text(item.share),
        calls=f"{_count(item.calls_before)} → {_count(item.calls_after)}" if has_calls else "—",
    )


def _count(calls: float) -> str:
    """Return calls a step: of a mean of several steps they need not be whole."""
    return f"{calls:,.0f}" if calls >= 100 or calls == int(calls) else f"{calls:.3g}"


def _waterfall(difference: Difference, items: tuple[Item, ...]) -> list[Fall]:
    """Return rows from the step before to the step after; what the items leave out is one row."""
    gained = difference.after - difference.before
    moved = sum(item.delta for item in items)
    parts = [(_label(item), item.name, item.delta) for item in items if item.change != "same"]
    rest = gained - sum(delta for _label_, _name, delta in parts)
    if round(rest):
        title = _("everything else, and what nothing recorded explains") if moved != gained else ""
        parts.append((_("All else"), title, rest))
    levels, at = [difference.before], difference.before
    for _name, _title, delta in parts:
        at += delta
        levels.append(at)
    highest = max(*levels, difference.after) * 1.02 or 1.0
    rows = [_fall(_("Before"), "", 0, difference.before, highest, "whole", time_text(difference.before), "")]
    at = difference.before
    for name, title, delta in parts:
        tone = "bad" if delta > 0 else "good"
        share = share_text(delta / gained) if gained else ""
        rows.append(_fall(name, title, at, at + delta, highest, tone, change_text(delta), share))
        at += delta
    rows.append(_fall(_("After"), "", 0, difference.after, highest, "whole", time_text(difference.after), ""))
    return rows


def _fall(name: str, title: str, a: float, b: float, highest: float, tone: str, text: str, share: str) -> Fall:
    low, high = min(a, b), max(a, b)
    return Fall(
        name=name,
        title=title or name,
        x=f"{100 * low / highest:.3f}%",
        width=f"{max(100 * (high - low) / highest, 0.2):.3f}%",
        tone=tone,
        text=text,
        share=share,
    )


urlpatterns: list[URLPattern] = [path("traces/<slug:trace_id>/difference", trace_difference, name="trace-difference")]
