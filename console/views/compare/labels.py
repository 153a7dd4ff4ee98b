"""What a comparison says in sentences: headline, support and badge of each verdict."""

import math
from dataclasses import dataclass

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.compare_numbers import gap_text, percent_text, times_text, value_text
from console.labels.catalog import metric_label, phase_label
from console.views.compare.conditions import condition_sentence
from console.views.compare.sides import ComparedRun
from jobs.catalog.metric import metric
from jobs.comparison.read import StepWindow
from jobs.comparison.stats import MIN_STEPS, ConfidenceInterval, RunSpread
from jobs.comparison.verdict import DROPPED_STEPS, RunVerdict

RANK = ("better", "worse", "no_difference", "not_comparable", "not_enough")
ICONS = {
    "better": "check",
    "worse": "x",
    "no_difference": "minus",
    "not_comparable": "alert-triangle",
    "not_enough": "help-circle",
}
STATES = {
    "better": "finished",
    "worse": "failed",
    "no_difference": "queued",
    "not_comparable": "warning",
    "not_enough": "missing",
}
AS_FACTOR = 1.4
"""From this ratio on a speed is said as a factor, below it as a percentage with its interval."""


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
        "not_comparable": _("Not comparable"),
        "not_enough": _("Not enough data"),
    }
    return words[badge]


def say(verdict: RunVerdict, *, side: ComparedRun, base: ComparedRun, window: StepWindow | None) -> VerdictText:
    """Return a verdict in words."""
    names = (_name(side), _name(base))
    return said_as(
        verdict, side=side, headline=headline(verdict, *names), support=_support(verdict, side, base, window)
    )


def said_as(verdict: RunVerdict, *, side: ComparedRun, headline: SafeString, support: str) -> VerdictText:
    """Return a verdict with this headline and support; `side` is the run to clone if it is better."""
    return VerdictText(
        side=side,
        badge=verdict.badge,
        word=badge_word(verdict.badge),
        icon=ICONS[verdict.badge],
        state=STATES[verdict.badge],
        headline=headline,
        support=support,
    )


def _name(side: ComparedRun) -> SafeString:
    return format_html(
        '<b class="cmp-name" data-run-color="{}" title="{}">{}</b>', side.color, side.run.name, side.short
    )


def headline(verdict: RunVerdict, run: SafeString, base: SafeString) -> SafeString:
    """Return the sentence that a verdict opens with; `run` and `base` are the names as markup."""
    names = {"run": run, "base": base}
    if verdict.badge == "not_enough":
        return format_html(_("Not enough common steps to tell {run} and {base} apart."), **names)
    outcome = _outcome(verdict)
    not_shown = _("no difference shown in %(metric)s so far") % {"metric": _metric(verdict)}
    outcome_text = (outcome or not_shown) if verdict.outcome else _("they share no reward or loss")
    if verdict.speed is not None and not verdict.is_speed_comparable:
        text = _("{run} against {base}: step times are not comparable; {outcome}.")
        return format_html(text, outcome=outcome_text, **names)
    if verdict.speed is None or not verdict.speed.excludes(1):
        if outcome == "":
            return format_html(_("{run} and {base} show no difference so far."), **names)
        return format_html(
            _("{run} against {base}: {outcome}; step times show no difference."), outcome=outcome, **names
        )
    ratio = _inverse(verdict.speed)
    if ratio.value >= 1:
        text = _("{run} is {size} faster than {base} per step{why}; {outcome}.")
    else:
        text = _("{run} is {size} slower than {base} per step{why}; {outcome}.")
    return format_html(text, size=_size(ratio), why=_why(verdict), outcome=outcome_text, **names)


def _size(speed: ConfidenceInterval) -> str:
    """Return how much faster or slower: 1.53×, or 7 % ± 2 %. `speed` is the base's step time over the run's."""
    ratio = speed if speed.value >= 1 else _inverse(speed)
    if ratio.value >= AS_FACTOR:
        return f"{times_text(ratio.value)}×"
    if speed.value < 1:
        return percent_text(1 - speed.value, speed.half)
    return percent_text(speed.value - 1, speed.half)


def _why(verdict: RunVerdict) -> str:
    """Return the phase that the difference comes from, "" where none stands out."""
    if verdict.reason is None:
        return ""
    ratio = verdict.reason.ratio.value
    words = {"phase": phase_label(verdict.reason.phase).lower(), "share": percent_text(abs(ratio - 1))}
    return (
        _(", because %(phase)s is %(share)s shorter") if ratio < 1 else _(", because %(phase)s is %(share)s longer")
    ) % words


def _metric(verdict: RunVerdict) -> str:
    return metric_label(verdict.outcome).lower()


def _outcome(verdict: RunVerdict) -> str:
    """Return how the outcome differs, "" where no difference shows."""
    gain = verdict.gain
    if gain is None or not gain.excludes(0):
        return ""
    size = gap_text(abs(gain.value), gain.half, metric(verdict.outcome).unit)[0].removeprefix("+")
    words = {"metric": _metric(verdict), "size": size}
    return (_("%(metric)s is higher by %(size)s") if gain.value > 0 else _("%(metric)s is lower by %(size)s")) % words


def _support(verdict: RunVerdict, side: ComparedRun, base: ComparedRun, window: StepWindow | None) -> str:
    for one in (side, base):
        if not one.run.step:
            return _("%(name)s has not completed a step yet.") % {"name": one.short}
    why = condition_sentence(verdict.conditions, run=side.short, base=base.short)
    return " ".join(part for part in (why, _speed(verdict, window), _gain(verdict)) if part)


def _speed(verdict: RunVerdict, window: StepWindow | None) -> str:
    if verdict.speed is None or verdict.times is None or window is None:
        have = window.high if window else 0
        return _("Step times need %(needed)s common steps after the first %(dropped)s; there are %(have)s.") % {
            "needed": MIN_STEPS,
            "dropped": DROPPED_STEPS,
            "have": max(0, have - DROPPED_STEPS),
        }
    own, theirs = verdict.times
    ratio = verdict.speed if verdict.speed.value >= 1 else _inverse(verdict.speed)
    words = {
        "from": value_text(theirs.value, "s"),
        "to": value_text(own.value, "s"),
        "low": times_text(ratio.low),
        "high": times_text(ratio.high),
        "n": f"{verdict.speed.n:,}",
        "dropped": DROPPED_STEPS,
    }
    text = _(
        "Median step time %(from)s → %(to)s "
        "(95 %% interval of the ratio at the same steps %(low)s–%(high)s, %(n)s steps, first %(dropped)s dropped)."
    )
    return text % words


def spread_sentence(spread: RunSpread) -> str:
    """Return what intervals of step times add for one run each, and what that rests on."""
    words = {"share": f"{math.expm1(spread.reach) * 100:.1f} %", "n": spread.num_runs}
    if spread.num_runs:
        text = _(
            "One run each: step times of one configuration may differ by %(share)s, as %(n)s repeats in this project "
            "say, and intervals cover that. Of the outcome they cover no other seed."
        )
    else:
        text = _(
            "One run each: step times of one configuration may differ by %(share)s, as seeds of the demo did on CPU, "
            "and intervals cover that; repeats in this project will say it of your machines. Of the outcome they cover "
            "no other seed."
        )
    return text % words


def _inverse(ratio: ConfidenceInterval) -> ConfidenceInterval:
    return ConfidenceInterval(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low, n=ratio.n)


def _gain(verdict: RunVerdict) -> str:
    if not verdict.outcome:
        return _("They have no reward and no loss in common.")
    if verdict.gain is None:
        return _("%(metric)s needs %(needed)s common steps.") % {
            "metric": metric_label(verdict.outcome),
            "needed": MIN_STEPS,
        }
    difference, half = gap_text(verdict.gain.value, verdict.gain.half, metric(verdict.outcome).unit)
    words = {
        "metric": metric_label(verdict.outcome),
        "difference": difference,
        "half": half,
        "n": verdict.gain.n,
        "size": half.removeprefix("± "),
    }
    text = ngettext(
        "%(metric)s differs by %(difference)s %(half)s (mean of the last %(n)s common step)",
        "%(metric)s differs by %(difference)s %(half)s (mean of the last %(n)s common steps)",
        verdict.gain.n,
    )
    shown = verdict.gain.excludes(0)
    more = "." if shown else _(": no difference shown; a gap under %(size)s would not be seen.") % words
    if not shown and not verdict.gain.half:
        more = _(": no difference shown.")
    return text % words + more


def order(verdicts: list[RunVerdict]) -> list[RunVerdict]:
    """Return the verdicts as they are told: better first, the fastest of them in front."""
    return sorted(verdicts, key=lambda v: (RANK.index(v.badge), v.speed.value if v.speed else 1.0))
