"""What may stand next in a filter line: names while one is typed, then the values that runs of the project have."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.catalog.knob import knobs
from jobs.catalog.metric import metrics
from jobs.models import STATES, Project, RunFact, RunKey
from jobs.runs.find.fields import NUMBERS, PARTS, WHOLE, is_metric
from jobs.runs.find.names import KEYS, SHORT, knob_meant
from jobs.runs.find.terms import Kind

MOST = 12
_BEGUN = re.compile(r'-?(?P<token>(?:"[^"]*"?|[^\s()"])*)$')
_NAMED = re.compile(r"^(?P<name>[A-Za-z][\w./@-]*)(?P<symbol>:|>=|<=|!=|==|=|>|<)(?P<value>.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """What to put in place of the piece that is typed, and a few words about it."""

    text: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCompletion:
    """Suggestions for characters `start` to `end` of the line, the best first."""

    start: int
    end: int
    suggestions: tuple[Suggestion, ...]


def complete(project: Project, line: str, at: int) -> LineCompletion:
    """Return what may stand where the cursor is, after `at` characters of the line.

    Values come from the index by a few short look-ups, however many runs there are.
    """
    begun = _BEGUN.search(line[:at])
    token = begun["token"] if begun else ""
    named = _NAMED.match(token)
    if named is None:
        names = _names(project, token.strip('"'))
        return LineCompletion(start=at - len(token), end=at, suggestions=tuple(names[:MOST]))
    done, _comma, last = named["value"].rpartition(",")
    values = _values(project, named["name"], named["symbol"], last.strip('"').lower())
    start = at - len(last)
    taken = {value.strip('"').lower() for value in done.split(",")}
    return LineCompletion(
        start=start, end=at, suggestions=tuple(v for v in values if v.text.strip('"') not in taken)[:MOST]
    )


def _names(project: Project, part: str) -> list[Suggestion]:
    """Return names that begin with the part, then those in which it stands."""
    wanted = part.lower()
    matches = [s for s in _all_names(project, wanted) if wanted in s.text.lower()]
    return sorted(matches, key=lambda s: (not s.text.lower().startswith(wanted), "." in s.text or "/" in s.text))


def _all_names(project: Project, wanted: str) -> Iterator[Suggestion]:
    for key in KEYS:
        yield Suggestion(text=f"{key}:", about=str(_ABOUT.get(key, "")))
    for name in NUMBERS:
        yield Suggestion(text=name, about=_("number of a run"))
    yield Suggestion(text="or", about=_("one of both"))
    yield Suggestion(text="not", about=_("leave out"))
    for short, knob_id in SHORT.items():
        yield Suggestion(text=short, about=knob_id)
    if not wanted:
        return
    seen = RunKey.objects.filter(project=project, name__icontains=wanted).exclude(kind="field").order_by("name")
    for kind, name in seen.values_list("kind", "name")[: 4 * MOST]:
        if kind == "tag":
            yield Suggestion(text=f"tag:{_quoted(name)}", about=_("tag"))
        elif kind == "metric":
            yield Suggestion(text=name, about=str(_(metrics()[name].label)) if name in metrics() else _("metric"))
        elif name in knobs():
            yield Suggestion(text=name, about=str(_(knobs()[name].label)))


def _values(project: Project, name: str, symbol: str, part: str) -> list[Suggestion]:
    if name == "tag":
        rows = RunKey.objects.filter(project=project, kind="tag", name__icontains=part).order_by("name")
        return [Suggestion(text=_quoted(tag), about="") for tag in rows.values_list("name", flat=True)[: 2 * MOST]]
    if name == "state":
        return [Suggestion(text=state, about="") for state in STATES if part in state]
    kind, key = _kind(name)
    own = [Suggestion(text="me", about=_("your runs"))] if name == "by" and "me".startswith(part) else []
    row = RunKey.objects.filter(project=project, kind=kind, name=key).first()
    if row is None:
        return own
    if symbol in (":", "=", "==", "!="):
        texts = [text for text in _distinct(row, "text", part) if part in text]
        numbers = [] if texts else [_number(value) for value in _distinct(row, "number", None)]
        return [*own, *(Suggestion(text=_quoted(t), about="") for t in [*texts, *numbers] if part in t)]
    numbered = RunFact.objects.filter(key=row, number__isnull=False).values_list("number", flat=True)
    least, most = numbered.order_by("number").first(), numbered.order_by("-number").first()
    if least is None or most is None:
        return []
    ends = ((least, _("the least of all runs")), (most, _("the most of all runs")))
    return [Suggestion(text=_number(value), about=about) for value, about in ends if _number(value).startswith(part)]


def _distinct(key: RunKey, column: str, begins: str | None) -> Iterator[Any]:
    """Yield distinct values from the index, each by one look-up: those from `begins` on, then from the first."""
    rows = (
        RunFact.objects.filter(key=key, **{f"{column}__isnull": False}).order_by(column).values_list(column, flat=True)
    )
    seen: set[Any] = set()
    for first in dict.fromkeys((begins, None)):
        value = (rows if first is None else rows.filter(**{f"{column}__gte": first})).first()
        while value is not None and len(seen) < 3 * MOST:
            if value not in seen:
                seen.add(value)
                yield value
            value = rows.filter(**{f"{column}__gt": value}).first()


def _kind(name: str) -> tuple[Kind, str]:
    if is_metric(name):
        return "metric", name
    if name in WHOLE or name in PARTS:
        return "field", WHOLE.get(name, name)
    return ("field", name) if name in NUMBERS else ("knob", knob_meant(name))


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e6 else f"{value:.4g}"


def _quoted(text: str) -> str:
    return f'"{text}"' if re.search(r"[\s(),]", text) else text


_ABOUT = {
    "state": "running, failed, …",
    "algorithm": "grpo, sft, …",
    "by": "me, …",
    "name": gettext_lazy("part of the name"),
    "tag": "baseline, …",
}
