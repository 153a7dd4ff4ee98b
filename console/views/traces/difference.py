"""Two traces against each other: what explains the difference in step time, largest first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.api.traces.traces import without_trash
from console.budget import expensive
from console.labels.catalog import phase_label
from console.labels.traces import CHANGES, ITEMS, KINDS, change_text, share_text, short_name, time_text, worker_text
from console.labels.verdicts import UNITS, differs_beforehand, unit_note, verdict_text
from console.views.traces.page import page_of, unanswered, visible_trace
from console.views.traces.windows import NoWindow, window_in_ms
from jobs.comparison.trace_verdict import verdict_of
from jobs.models import Trace
from jobs.traces.difference import Compared, NothingToCompare, Per, TraceComparison, compare, worker_key, worker_of
from jobs.traces.files import NoAnswer
from profiling.analysis.difference import Difference, Item

_SHOWN = 40
_STEPS = 8
_MOST_OTHERS = 100
_FIELDS = ("from_ms", "to_ms", "tokens")


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
    context = page_of(trace, held, tab="summary") | {
        "others": others.order_by("-created_at")[:_MOST_OTHERS],
        "other": None,
        "drop_first": request.GET.get("first") == "off",
        "units": UNITS.items(),
        **_fields(request.GET.dict()),
        "problem": "",
    }
    if wanted:
        other, _held = visible_trace(request, wanted)
        try:
            context |= {"other": other, **_comparison(request, trace, other)}
        except NoAnswer as error:
            return unanswered(request, trace, context, error)
    return render(request, "trace/difference.html", context)


def _comparison(request: HttpRequest, trace: Trace, other: Trace) -> dict[str, object]:
    texts = request.GET.dict()
    try:
        before, after = (_side(texts, one, prefix) for one, prefix in ((trace, ""), (other, "other_")))
        comparison = compare(
            trace, other, before=before, after=after, drop_first=texts.get("first") == "off", per=_per(texts)
        )
    except (NothingToCompare, NoWindow) as error:
        return {"problem": str(error)}
    return {
        "choices": [
            [(worker_key(one), worker_text(*one)) for one in table]
            for table in (comparison.workers, comparison.other_workers)
        ],
        "chosen": [worker_key(comparison.worker), worker_key(comparison.other_worker)],
        "is_cut": comparison.is_cut,
        **difference_context(comparison),
    }


def _fields(texts: Mapping[str, str]) -> dict[str, object]:
    """Return what the form holds of units, windows and tokens."""
    sides = ((_("Before"), ""), (_("After"), "other_"))
    windows = [(title, prefix, *(texts.get(prefix + key, "")[:30] for key in _FIELDS)) for title, prefix in sides]
    return {
        "asked_per": texts.get("per", ""),
        "windows": windows,
        "is_narrowed": any(text for row in windows for text in row[2:]),
    }


def _side(texts: Mapping[str, str], trace: Trace, prefix: str) -> Compared:
    """Return what of a trace is compared. Raises: NoWindow."""
    tokens = texts.get(f"{prefix}tokens", "").strip()
    count = float(tokens) if tokens.isascii() and tokens.isdigit() and len(tokens) < 13 else 0.0
    if tokens and not count:
        raise NoWindow(
            _("Tokens: %(text)r is no number of tokens. Give a whole number above 0.") % {"text": tokens[:30]}
        )
    window = window_in_ms(texts, trace, prefix)
    return Compared(worker=worker_of(texts.get(f"{prefix}worker", "")), window=window, tokens=count)


def _per(texts: Mapping[str, str]) -> Per:
    per = texts.get("per", "")
    return cast(Per, per) if per in UNITS else ""


def difference_context(comparison: TraceComparison) -> dict[str, object]:
    """Return what the page shows of a difference."""
    difference = comparison.difference
    gained = difference.after - difference.before
    shown = [item for item in difference.items if item.change != "same"]
    return {
        "found": difference,
        "answer": _answer(comparison, shown),
        "per": comparison.per,
        "unit": UNITS[comparison.per],
        "unit_note": unit_note(comparison),
        "delta": change_text(gained),
        "before": time_text(difference.before),
        "after": time_text(difference.after),
        "kinds": _waterfall(difference, difference.kinds) if difference.kinds else [],
        "phases": _waterfall(difference, difference.phases) if difference.phases else [],
        "falls": _waterfall(difference, difference.items[:_STEPS]),
        "items": [_row(item) for item in shown[:_SHOWN]],
        "num_more": max(0, difference.num_items - min(len(shown), _SHOWN)),
        "rest": change_text(
            difference.rest + sum(item.delta for item in difference.items if item not in shown[:_SHOWN])
        ),
        "unexplained": change_text(difference.unexplained),
        "has_operators": comparison.of == "work",
        "operators": [_row(item) for item in difference.operators if item.change != "same"][:_SHOWN],
    }


_TAKES: Mapping[str, tuple[Promise, Promise]] = {
    "step": (
        gettext_lazy("A step takes %(after)s instead of %(before)s: less than 1 %% apart."),
        gettext_lazy("A step takes %(after)s instead of %(before)s: %(delta)s (%(share)s)."),
    ),
    "window": (
        gettext_lazy("The window takes %(after)s instead of %(before)s: less than 1 %% apart."),
        gettext_lazy("The window takes %(after)s instead of %(before)s: %(delta)s (%(share)s)."),
    ),
    "token": (
        gettext_lazy("A token takes %(after)s instead of %(before)s: less than 1 %% apart."),
        gettext_lazy("A token takes %(after)s instead of %(before)s: %(delta)s (%(share)s)."),
    ),
}


def _answer(comparison: TraceComparison, shown: list[Item]) -> str:
    """Say the verdict, what differs beforehand, how the times differ, and what makes most of it."""
    difference = comparison.difference
    gained = difference.after - difference.before
    is_apart = abs(gained) >= 0.01 * difference.before
    fit = comparison.comparability
    sentences = [verdict_text(verdict_of(comparison), fit), differs_beforehand(fit)]
    if comparison.per in _TAKES:
        words = {"after": time_text(difference.after), "before": time_text(difference.before)}
        if is_apart:
            share = ("+" if gained > 0 else "") + share_text(gained / difference.before)
            words |= {"delta": change_text(gained), "share": share}
        sentences.append(str(_TAKES[comparison.per][is_apart]) % words)
    moved = [item for item in shown if item.delta * gained > 0] if comparison.per in _TAKES else shown
    if moved and (is_apart or comparison.per not in _TAKES):
        names = ", ".join(f"{_label(item)} ({change_text(item.delta)})" for item in moved[:2])
        sentences.append(_("Most of it: %(names)s.") % {"names": names})
    return " ".join(sentence for sentence in sentences if sentence)


def _label(item: Item) -> str:
    """Return what an item is called."""
    if item.kind == "phase":
        return phase_label(item.name) if item.name else _("Between the phases")
    if item.kind == "kind":
        return str(KINDS[item.name])
    if item.kind == "operator":
        return item.name or _("no operator")
    if item.kind == "function":
        return item.name
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
