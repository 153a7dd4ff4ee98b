"""Sentences on a difference of two traces: what its numbers are of, what differs beforehand, and the verdict."""

from collections.abc import Mapping, Sequence

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from console.labels.traces import share_text, time_text
from jobs.comparison.trace_verdict import TraceVerdict
from jobs.traces.difference import TraceComparison
from profiling.analysis.comparability import MOST_TOLD, Comparability, Factor
from profiling.counted import counted

UNITS: Mapping[str, Promise] = {
    "step": gettext_lazy("per step"),
    "window": gettext_lazy("per window"),
    "second": gettext_lazy("per second"),
    "token": gettext_lazy("per token"),
}
_VERSIONS: Mapping[str, Promise] = {
    "tool_version": gettext_lazy("version of the profiler"),
    "cuda_driver_version": gettext_lazy("CUDA driver"),
    "cuda_runtime_version": gettext_lazy("CUDA"),
    "hip_runtime_version": gettext_lazy("HIP"),
    "world_size": gettext_lazy("ranks"),
}
_WORK: Mapping[str, Promise] = {
    "device": gettext_lazy("a device"),
    "cpu": gettext_lazy("the CPU alone"),
    "": gettext_lazy("nothing"),
}


def unit_note(compared: TraceComparison) -> str:
    """Return what the numbers are of, and of how much of each side."""
    difference = compared.difference
    words: dict[str, object] = {"n": difference.steps_before, "m": difference.steps_after}
    if compared.per == "step":
        text = _("per step: mean of %(n)s steps before, %(m)s after")
        if "repetition" in compared.sources:
            text = _("per iteration, found by repetition: mean of %(n)s before, %(m)s after")
        return counted(text % words)
    words |= {"before": time_text(sum(compared.walls[0])), "after": time_text(sum(compared.walls[1]))}
    unit = str(UNITS[compared.per])
    if compared.of == "functions":
        return _("%(unit)s of sampled stacks, the time in which a function was the innermost one") % {"unit": unit}
    return _("%(unit)s, of %(before)s before and %(after)s after") % {"unit": unit, **words}


def differs_beforehand(fit: Comparability) -> str:
    """Return a sentence that names devices, numbers of ranks and versions that differ; "" where none does."""
    parts = []
    if all(fit.devices) and fit.devices[0] != fit.devices[1]:
        parts.append(_("%(before)s before, %(after)s after") % {"before": fit.devices[0], "after": fit.devices[1]})
    for key, (before, after) in fit.versions.items():
        words = {"what": str(_VERSIONS.get(key, key)), "before": before, "after": after}
        parts.append(_("%(what)s %(before)s before, %(after)s after") % words)
    return _("The recordings differ: %(parts)s.") % {"parts": "; ".join(parts)} if parts else ""


def verdict_text(verdict: TraceVerdict, fit: Comparability) -> str:
    """Return the verdict in a sentence."""
    change = share_text(abs(verdict.change)) if verdict.change is not None else ""
    words = {"change": change, "why": _reasons(fit.lowered), "spread": _spread(verdict)}
    match verdict.word:
        case "cannot":
            text = _("Verdict: the two cannot be compared: %(why)s.")
        case "same_recording":
            text = _("Verdict: both are the same part of one recording: nothing changed.")
        case "none":
            text = _("Verdict: no difference (below 2 %%, which clocks alone can move).")
        case "too_small":
            text = _("Verdict: %(change)s is too small to say%(spread)s.")
        case "slower":
            text = _("Verdict: likely slower, by %(change)s%(spread)s.")
        case "faster":
            text = _("Verdict: likely faster, by %(change)s%(spread)s.")
        case _:
            text = _("Verdict: per second both have the same time, so only shares of it can differ.")
    return text % words


def _spread(verdict: TraceVerdict) -> str:
    if verdict.low is None or verdict.high is None:
        return ""
    text = _(" (95 %% interval by the spread of steps: %(low)s to %(high)s)")
    return text % {"low": share_text(verdict.low), "high": share_text(verdict.high)}


def _reasons(lowered: Sequence[Factor]) -> str:
    return "; ".join(_reason(factor) for factor in lowered[:MOST_TOLD])


def _reason(factor: Factor) -> str:
    before, after = factor.before, factor.after
    match factor.key:
        case "device":
            text = _("another device (%(before)s, %(after)s)")
        case "source":
            text = _("recorded by other tools (%(before)s, %(after)s)")
        case "work":
            before, after = str(_WORK[before]), str(_WORK[after])
            text = _("work was recorded of %(before)s before, of %(after)s after")
        case "calls":
            text = _("%(before)s kernels or operators before, %(after)s after")
        case _:
            text = _("only %(share)s of the names of kernels, operators or functions in common (%(before)s, %(after)s)")
    return counted(text % {"before": before or "—", "after": after or "—", "share": share_text(factor.value)})
