"""What diagnosis says of a run as it is now, and of a trace: by question, what fires first, each with its next step."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from console.budget import expensive
from console.labels.catalog import knob_label
from console.views.run.config import show
from console.views.run.files import visible_run
from console.views.run.symptoms import clone_url
from jobs.accounts.access import allows
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import trainers
from jobs.diagnosis.rules import changed, diagnose_run, in_reach, why_unchanged
from jobs.models import Run, Trace
from jobs.telemetry.attempt_spec import latest_spec_json
from profiling.diagnosis.finding import QUESTIONS, Finding, KnobChange, amount

WHY_UNCHANGED = {
    "no_effect": gettext_lazy("%(now)s now. It has no effect with the run's other settings."),
    "as_it_is": gettext_lazy("already %(now)s"),
    "limit": gettext_lazy("%(now)s now, which is the limit"),
    "choose": gettext_lazy("%(now)s now. Choose the value in a clone."),
}
HOW = {
    "raise": gettext_lazy("raise it"),
    "lower": gettext_lazy("lower it"),
    "on": gettext_lazy("switch it on"),
    "off": gettext_lazy("switch it off"),
    "choose": gettext_lazy("look at it"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobChangeRow:
    """A knob to change: `text` is the change in words, or why no click makes it; `clone` the address of a clone that
    has it, or in which a person chooses the value; "" where none can."""

    label: str
    guide: str
    text: str
    clone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisRow:
    """One rule's answer for the page."""

    key: str
    state: str
    level: str
    title: str
    value: str
    threshold: str
    sentence: str
    advice: str
    definition: str
    source: str
    window: str
    changes: tuple[KnobChangeRow, ...]
    no_change: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    """One of the three questions, and what the rules answer to it."""

    title: str
    firing: int
    answered: tuple[DiagnosisRow, ...]
    lacking: tuple[DiagnosisRow, ...]


@require_GET
@expensive
def run_diagnosis(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show what the rules that need no capture say of the run by now."""
    run, role = visible_run(request, run_id)
    diagnosis = diagnose_run(run)
    # Told again only when a state has changed: what people read or have opened stays as it is.
    digest = sha256(repr([(one.key, one.state, one.level) for one in diagnosis.findings]).encode()).hexdigest()[:16]
    if request.GET.get("seen") == digest:
        return HttpResponse(status=204)
    context = {
        "run": run,
        "digest": digest,
        "computed_at": timezone.now(),
        "questions": questions(diagnosis.findings, run=run),
        "diagnosis": diagnosis,
        "can_edit": allows(role, "editor"),
        "is_live": True,
    }
    return render(request, "diagnosis/findings.html", context)


def questions(findings: Iterable[Finding], *, run: Run | None, trace: Trace | None = None) -> list[QuestionRow]:
    """Return findings by question, each with the page that shows its window: the trace's for rules that look into its
    files, else the run's, which reaches further. `run` is the one that can be cloned.
    """
    spec = _spec(run) if run else None
    of_trace = reverse("trace", args=[trace.pk]) if trace else ""
    of_run = reverse("run", args=[run.pk, "timeline"]) if run else of_trace
    listed = list(findings)
    made = []
    for key, title in QUESTIONS.items():
        rows = tuple(
            _row(one, run, spec, of_trace if of_trace and one.rule.reads_files else of_run)
            for one in listed
            if one.rule.question == key
        )
        firing = sum(row.state == "fires" for row in rows)
        if rows:
            lacking = tuple(row for row in rows if row.state == "not_enough_data")
            answered = tuple(row for row in rows if row not in lacking)
            made.append(QuestionRow(title=_(title), firing=firing, answered=answered, lacking=lacking))
    return made


def _row(finding: Finding, run: Run | None, spec: RunSpec | None, timeline: str) -> DiagnosisRow:
    rule, observation = finding.rule, finding.observation
    is_firing = finding.state == "fires"
    changes = rule.changes if spec is None else in_reach(rule.changes, spec)
    window = ""
    if observation is not None and observation.end > observation.begin > 0:
        window = f"{timeline}?{urlencode({'from': observation.begin, 'to': observation.end})}"
    return DiagnosisRow(
        key=finding.key,
        state=finding.state,
        level=finding.level,
        title=_(rule.title),
        value=finding.value,
        threshold=f"{'<' if rule.is_low_bad else '>'} {amount(rule.watch, rule.unit)}",
        sentence=finding.sentence(_),
        advice=_(rule.advice) if is_firing else "",
        definition=_(rule.definition),
        source=_(rule.source),
        window=window,
        changes=tuple(_change_row(change, run, spec) for change in changes) if is_firing else (),
        no_change=_no_change(spec) if is_firing and rule.changes and not changes and spec else "",
    )


def _no_change(spec: RunSpec) -> str:
    """Say that none of a rule's knobs is one of the run's."""
    trainer = in_words(trainers()[spec.trainer.name].called(spec.trainer.version), _)
    return _("No setting of %(trainer)s for this algorithm changes it.") % {"trainer": trainer}


def _change_row(change: KnobChange, run: Run | None, spec: RunSpec | None) -> KnobChangeRow:
    label = knob_label(change.knob)
    value = changed(change, spec) if spec is not None else None
    if run is None or spec is None:
        text, clone = str(HOW[change.how]), ""
    elif value is None:
        why = why_unchanged(change, spec)
        text = f"{HOW[change.how]}: {WHY_UNCHANGED[why] % {'now': show(spec.knob(change.knob))}}"
        clone = clone_url(run, {}) if why == "choose" else ""
    else:
        words = {"before": show(spec.knob(change.knob)), "after": show(value)}
        text, clone = _("%(after)s instead of %(before)s") % words, clone_url(run, {change.knob: value})
    return KnobChangeRow(label=label, guide=reverse("guide-knob", args=[change.knob]), text=text, clone=clone)


def _spec(run: Run) -> RunSpec | None:
    try:
        return parse_spec(latest_spec_json(run))
    except SpecInvalid:  # launched by an older console
        return None


urlpatterns: list[URLPattern] = [
    path("runs/<run_id:run_id>/diagnosis", run_diagnosis, name="run-diagnosis"),
]
