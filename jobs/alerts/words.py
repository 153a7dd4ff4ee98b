"""What an incident says, in the language of whoever reads it: a title and a sentence, made of its data."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.catalog.metric import metric
from jobs.models import AlertIncident
from jobs.runs.stored_sentences import say_stored
from profiling.counted import counted


def title(incident: AlertIncident) -> str:
    """Return what is wrong, in a few words that name the object."""
    data = incident.data
    name = str(data.get("name", ""))
    texts = {
        "failed": _("%(name)s failed"),
        "stopped": _("%(name)s was stopped"),
        "finished": _("%(name)s finished"),
        "retried": _("%(name)s starts again by itself"),
        "lost_contact": _("%(name)s lost contact"),
        "waiting": _("%(name)s waits in the queue"),
        "no_progress": _("%(name)s makes no step"),
        "threshold": _("%(name)s: %(metric)s"),
        "absence": _("%(name)s does not report %(metric)s"),
        "symptom": _("%(name)s: %(found)s"),
        "diagnosis": _("%(name)s: %(found)s"),
        "queue": _("The queue is long"),
        "disk": _("The console's disk is filling up"),
        "node_gone": _("Node %(node)s is gone"),
        "gpus_gone": _("Node %(node)s has lost GPUs"),
        "ray": _("Ray does not answer"),
        "ingest": _("The ingest process is away or behind"),
        "worker": _("The worker is away"),
    }
    label = metric(str(data["metric"])).label if "metric" in data else ""
    values = {"name": name, "metric": label, "found": _(str(data.get("found") or "-")), "node": data.get("node", "")}
    return texts.get(str(data.get("what", "")), _("Alert")) % values


def sentence(incident: AlertIncident) -> str:
    """Return what was seen, with the numbers; "" where the title says all."""
    return _SENTENCES.get(str(incident.data.get("what", "")), _nothing)(incident.data)


def _nothing(_data: Mapping[str, Any]) -> str:
    return ""


def _ended(data: Mapping[str, Any]) -> str:
    parts = [say_stored(str(data.get("cause") or ""))]
    if data.get("log_line"):
        parts.append(str(data["log_line"]))
    return " · ".join(part for part in parts if part)


def _for_minutes(data: Mapping[str, Any]) -> str:
    return counted(_("For %(minutes)s minutes by now.") % {"minutes": f"{data.get('minutes', 0):g}"})


def _threshold(data: Mapping[str, Any]) -> str:
    texts = {
        "above": _("It is %(value)s, above %(limit)s, for %(n)s reports (step %(step)s)."),
        "below": _("It is %(value)s, below %(limit)s, for %(n)s reports (step %(step)s)."),
        "not_finite": _("It is %(value)s, for %(n)s reports (step %(step)s)."),
    }
    values = {"value": data.get("value"), "limit": f"{data.get('limit', 0):g}", "n": data.get("reports", 0)}
    return counted(texts[str(data.get("direction", "above"))] % {**values, "step": data.get("step", "—")})


def _queue(data: Mapping[str, Any]) -> str:
    n = int(data.get("length", 0))
    text = ngettext(
        "%(n)s run waits; the first for %(minutes)s minutes.",
        "%(n)s runs wait; the first for %(minutes)s minutes.",
        n,
    )
    return counted(text % {"n": n, "minutes": f"{data.get('minutes', 0):g}"})


def _disk(data: Mapping[str, Any]) -> str:
    text = _("%(free)s GiB of %(total)s GiB are free.") % {"free": data.get("free_gib"), "total": data.get("total_gib")}
    if data.get("hours") is not None:
        text += " " + _("At the pace of the last hours it is full in %(hours)s hours.") % {"hours": data["hours"]}
    return counted(text)


def _gpus(data: Mapping[str, Any]) -> str:
    return _("It had %(had)s, now it has %(has)s.") % {"had": data.get("had"), "has": data.get("has")}


def _said(data: Mapping[str, Any]) -> str:
    return str(data.get("said") or "")


_SENTENCES = {
    "failed": _ended,
    "stopped": _ended,
    "finished": _ended,
    "retried": _ended,
    "lost_contact": _for_minutes,
    "waiting": _ended,
    "no_progress": _for_minutes,
    "absence": _for_minutes,
    "threshold": _threshold,
    "symptom": _said,
    "diagnosis": _said,
    "queue": _queue,
    "disk": _disk,
    "gpus_gone": _gpus,
    "ray": _said,
    "ingest": _said,
    "worker": _said,
}
