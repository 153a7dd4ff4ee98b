"""The card of the Overview that says what a run looks like; a remedy that changes knobs is one click from a clone."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from console.labels.catalog import knob_label
from console.views.run.config import show
from console.views.run.files import visible_run
from jobs.accounts.access import allows
from jobs.catalog.rules.symptom import Match, Offer, SymptomEvidence, causes_of, symptoms
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value, value_text
from jobs.diagnosis.symptoms import RunSymptoms, run_symptoms
from jobs.models import Run
from jobs.telemetry.attempt_spec import latest_spec_json


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """A line of the log or a sentence of numbers; `place` and `url` lead to the line where it is one."""

    kind: str
    text: str
    source: str
    place: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyRow:
    """What to try; `summary` are the changes in words and `url` the clone that has them, both "" for advice."""

    title: str
    summary: str
    url: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SymptomRow:
    """One symptom of the run; `since` is the step from which on its metrics show it, None where that is not known;
    `follows` are the titles of those of the run that may have caused it."""

    id: str
    title: str
    tone: str
    since: int | None
    follows: tuple[str, ...]
    signal: str
    causes: tuple[str, ...]
    source: str
    evidence: tuple[EvidenceRow, ...]
    remedies: tuple[RemedyRow, ...]


@require_GET
def symptoms_card(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show what the run looks like now; nothing where nothing matches."""
    run, role = visible_run(request, run_id)
    run_facts = run_symptoms(run, now=timezone.now(), say=_)
    spec = parse_spec(latest_spec_json(run))
    rows = [_row(match, run, spec, run_facts) for match in run_facts.matches]
    context = {
        "found": run_facts,
        "rows": [row for row in rows if row.tone != "hint" and not row.follows],
        "consequences": [row for row in rows if row.tone != "hint" and row.follows],
        "hints": [row for row in rows if row.tone == "hint"],
        "can_edit": allows(role, "editor"),
        "has_attempts": run.latest_attempt > 1,
    }
    return render(request, "run/symptoms.html", context)


def clone_url(run: Run, changes: Mapping[str, Value]) -> str:
    """Return the address of New run as a clone of the run with these knobs set."""
    sets = [("set", f"{knob_id}={value_text(value)}") for knob_id, value in changes.items()]
    return f"{reverse('new-run')}?{urlencode([('from', run.pk), *sets])}"


def _row(match: Match, run: Run, spec: RunSpec, run_facts: RunSymptoms) -> SymptomRow:
    symptom, present = match.symptom, {each.symptom.id for each in run_facts.matches}
    return SymptomRow(
        id=symptom.id,
        title=_(symptom.title),
        tone=symptom.tone,
        since=run_facts.since.get(symptom.id),
        follows=tuple(_(symptoms()[name].title) for name in causes_of(symptom, present)),
        signal=_(symptom.signal),
        causes=tuple(_(cause) for cause in symptom.causes),
        source=symptom.source,
        evidence=tuple(_evidence(each, run, run_facts) for each in match.evidence),
        remedies=tuple(_remedy(offer, run, spec) for offer in match.remedies),
    )


def _evidence(evidence: SymptomEvidence, run: Run, run_facts: RunSymptoms) -> EvidenceRow:
    line = run_facts.lines.get(evidence.text) if evidence.kind == "log" else None
    url = place = ""
    if line is not None:
        place = line.role if line.role == "driver" else f"{line.role} {line.rank}"
        url = f"{reverse('run', args=[run.pk, 'logs'])}?{urlencode({'line': line.cursor})}"
    return EvidenceRow(kind=evidence.kind, text=evidence.text, source=evidence.source, place=place, url=url)


def _remedy(offer: Offer, run: Run, spec: RunSpec) -> RemedyRow:
    changes = offer.fix.changes if offer.fix is not None else {}
    return RemedyRow(
        title=offer.title,
        summary=", ".join(_change(name, spec.knob(name), value) for name, value in changes.items()),
        url=clone_url(run, changes) if changes else "",
        source=offer.source,
    )


def _change(knob_id: str, before: Value, after: Value) -> str:
    words = {"label": knob_label(knob_id), "before": _shown(before), "after": _shown(after)}
    return _("%(label)s: %(after)s instead of %(before)s") % words


def _shown(value: Value) -> str:
    return _("not set") if value in (None, "") else show(value)


urlpatterns: list[URLPattern] = [
    path("runs/<run_id:run_id>/symptoms", symptoms_card, name="run-symptoms"),
]
