"""What a comparison says in sentences: headline, support and badge of each verdict."""

from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.compare_numbers import gap_text, times_text, value_text
from console.labels.catalog import metric_label
from console.views.compare.sides import ComparedRun
from jobs.catalog.metric import metric
from jobs.comparison.read import StepWindow
from jobs.comparison.stats import MIN_STEPS, ConfidenceInterval
from jobs.comparison.verdict import DROPPED_STEPS, RunVerdict

RANK = ("better", "worse", "no_difference", "not_enough")
ICONS = {"better": "check", "worse": "x", "no_difference": "minus", "not_enough": "help-circle"}
STATES = {"better": "finished", "worse": "failed", "no_difference": "queued", "not_enough": "missing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictText:
    """One verdict in words; `headline` is markup with the runs' names in their colors."""

    side: ComparedRun
    badge: str
    word: str
    icon: str
    state: str
    headline: SafeString
    support: str


def badge_word(badge: str) -> str:
    """Return the word on a verdict's badge."""
    words = {
        "better": _("Better"),
        "worse": _("Worse"),
        "no_difference": _("No difference shown"),
        "not_enough": _("Not enough data"),
    }
    return words[badge]


def say(found: RunVerdict, *, side: ComparedRun, base: ComparedRun, window: StepWindow | None) -> VerdictText:
    """Return a verdict in words."""
    names = (_name(side), _name(base))
    return said_as(found, side=side, headline=headline(found, *names), support=_support(found, side, base, window))


def said_as(found: RunVerdict, *, side: ComparedRun, headline: SafeString, support: str) -> VerdictText:
    """Return a verdict with this headline and support; `side` is the run to clone if it is better."""
    return VerdictText(
        side=side,
        badge=found.badge,
        word=badge_word(found.badge),
        icon=ICONS[found.badge],
        state=STATES[found.badge],
        headline=headline,
        support=support,
    )


def _name(side: ComparedRun) -> SafeString:
    return format_html(
        '<b class="cmp-name" data-run-color="{}" title="{}">{}</b>', side.color, side.run.name, side.short
    )


def headline(found: RunVerdict, run: SafeString, base: SafeString) -> SafeString:
    """Return the sentence that a verdict opens with; `run` and `base` are the names as markup."""
    names = {"run": run, "base": base}
    if found.badge == "not_enough":
        return format_html(_("Not enough common steps to tell {run} and {base} apart."), **names)
    outcome = _outcome(found)
    if found.speed is None or not found.speed.excludes(1):
        if outcome == "":
            return format_html(_("{run} and {base} show no difference so far."), **names)
        return format_html(
            _("{run} against {base}: {outcome}; step times show no difference."), outcome=outcome, **names
        )
    if found.speed.value < 1:
        text = _("{run} is {times}× faster than {base} per step; {outcome}.")
        times = times_text(1 / found.speed.value)
    else:
        text = _("{run} is {times}× slower than {base} per step; {outcome}.")
        times = times_text(found.speed.value)
    said = outcome or (_("no difference shown in %(metric)s so far") % {"metric": _metric(found)})
    return format_html(text, times=times, outcome=said if found.outcome else _("they share no reward or loss"), **names)


def _metric(found: RunVerdict) -> str:
    return metric_label(found.outcome).lower()


def _outcome(found: RunVerdict) -> str:
    """Return how the outcome differs, "" where no difference shows."""
    gain = found.gain
    if gain is None or not gain.excludes(0):
        return ""
    size = gap_text(abs(gain.value), gain.half, metric(found.outcome).unit)[0].removeprefix("+")
    words = {"metric": _metric(found), "size": size}
    return (_("%(metric)s is higher by %(size)s") if gain.value > 0 else _("%(metric)s is lower by %(size)s")) % words


def _support(found: RunVerdict, side: ComparedRun, base: ComparedRun, window: StepWindow | None) -> str:
    for one in (side, base):
        if not one.run.step:
            return _("%(name)s has not done a step yet.") % {"name": one.short}
    return f"{_speed(found, window)} {_gain(found)}"


def _speed(found: RunVerdict, window: StepWindow | None) -> str:
    if found.speed is None or found.times is None or window is None:
        have = window.high if window else 0
        return _("Step times need %(needed)s common steps after the first %(dropped)s; there are %(have)s.") % {
            "needed": MIN_STEPS,
            "dropped": DROPPED_STEPS,
            "have": max(0, have - DROPPED_STEPS),
        }
    mine, theirs = found.times
    ratio = found.speed if found.speed.value >= 1 else _inverse(found.speed)
    words = {
        "from": value_text(theirs.value, "s"),
        "to": value_text(mine.value, "s"),
        "low": times_text(ratio.low),
        "high": times_text(ratio.high),
        "n": f"{found.speed.n:,}",
        "dropped": DROPPED_STEPS,
    }
    text = _(
        "Median step time %(from)s → %(to)s "
        "(95 %% interval of the ratio %(low)s–%(high)s, %(n)s steps, first %(dropped)s dropped)."
    )
    return text % words


def _inverse(ratio: ConfidenceInterval) -> ConfidenceInterval:
    return ConfidenceInterval(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low, n=ratio.n)


def _gain(found: RunVerdict) -> str:
    if not found.outcome:
        return _("They have no reward and no loss in common.")
    if found.gain is None:
        return _("%(metric)s needs %(needed)s common steps.") % {
            "metric": metric_label(found.outcome),
            "needed": MIN_STEPS,
        }
    difference, half = gap_text(found.gain.value, found.gain.half, metric(found.outcome).unit)
    words = {
        "metric": metric_label(found.outcome),
        "difference": difference,
        "half": half,
        "n": found.gain.n,
        "size": half.removeprefix("± "),
    }
    text = ngettext(
        "%(metric)s differs by %(difference)s %(half)s (mean of the last %(n)s common step)",
        "%(metric)s differs by %(difference)s %(half)s (mean of the last %(n)s common steps)",
        found.gain.n,
    )
    shown = found.gain.excludes(0)
    more = "." if shown else _(": no difference shown; a gap under %(size)s would not be seen.") % words
    if not shown and not found.gain.half:
        more = _(": no difference shown.")
    return text % words + more


def order(verdicts: list[RunVerdict]) -> list[RunVerdict]:
    """Return the verdicts as they are told: better first, the fastest of them in front."""
    return sorted(verdicts, key=lambda v: (RANK.index(v.badge), v.speed.value if v.speed else 1.0))
