"""What the tab Summary says of the steps of a trace: where they are from, and what lies outside them."""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from console.labels.traces import share_text, time_text
from profiling.analysis.outside import Outside
from profiling.analysis.summary import TraceSummary, WorkerSummary

TELLING = 0.01
"""From this share of the device's time on, what lies outside all steps is said."""


def host_figure(worker: WorkerSummary) -> list[dict[str, str]]:
    """Return the step of the CPU alone as a figure; [] where the trace marks no steps of a device's work."""
    outside = worker.outside
    if outside is None or outside.host_step is None or not worker.has_device:
        return []
    note = _("of the CPU alone, which may run ahead of the device")
    return [{"label": _("CPU step"), "value": time_text(outside.host_step), "note": note}]


def step_remarks(summary: TraceSummary, worker: WorkerSummary) -> list[str]:
    """Return sentences on the steps: found, cut or without work, and the device's time that lies outside them."""
    beside = _beside(worker.outside) if worker.outside else []
    match summary.source:
        case "repetition":
            text = _("Nothing marks steps: these were found by repetition of the kernels. Numbers are per iteration.")
            return [text, *beside]
        case "window":
            return [_("The window counts as one: no steps were asked for, or none lies whole in it."), *beside]
    return beside


def _beside(outside: Outside) -> list[str]:
    sentences = []
    if outside.share >= TELLING:
        text = _("%(share)s of the device's time (%(time)s) lies outside all steps and counts in none.")
        sentences.append(text % {"share": share_text(outside.share), "time": time_text(outside.outside)})
    if outside.before and outside.share >= TELLING:
        text = ngettext(
            "%(n)s operation of %(time)s was launched before the recording of the first step.",
            "%(n)s operations of %(time)s were launched before the recording of the first step.",
            outside.before,
        )
        sentences.append(text % {"n": f"{outside.before:,}", "time": time_text(outside.before_ns)})
    if outside.dropped:
        text = ngettext(
            "Step %(steps)s is left out: the recording ended before its work on the device did.",
            "Steps %(steps)s are left out: the recording ended before their work on the device did.",
            len(outside.dropped),
        )
        sentences.append(text % {"steps": ", ".join(map(str, outside.dropped[:5]))})
    return sentences
