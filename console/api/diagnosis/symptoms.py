"""What a run looks like: symptoms, their evidence, and what to try."""

from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS
from console.api.visible import run_for
from jobs.catalog.rules.symptom import Match, Offer, SymptomEvidence, causes_of
from jobs.catalog.value import Value
from jobs.diagnosis.symptoms import RunSymptoms, run_symptoms

router = Router(tags=["runs"])


class EvidenceOut(Schema):
    """By what a symptom is known: a line of the log, with its place where it stands in the log, or numbers."""

    kind: str = Field(description="log or metric")
    text: str
    source: str
    role: str | None
    rank: int | None
    cursor: str | None = Field(description="Its place, as /logs takes it")


class RemedyOut(Schema):
    """What to try: `changes` are values by knob id for a run like this one; {} is advice in words."""

    title: str
    changes: dict[str, Value]
    source: str


class SymptomOut(Schema):
    """A symptom that the run has; remedies stand in the order in which to try them, and none moves a knob against those
    of a symptom before this one."""

    id: str
    title: str
    tone: str = Field(description="alarm; good: a state to be glad of")
    follows: list[str] = Field(description="Ids of the run's symptoms that may have caused this one")
    signal: str
    causes: list[str]
    source: str
    evidence: list[EvidenceOut]
    remedies: list[RemedyOut]


class SymptomsOut(Schema):
    """What the attempt looks like at `computed_at`, from so many lines of its log and so many metrics."""

    attempt: int
    computed_at: datetime
    num_lines: int
    num_metrics: int
    symptoms: list[SymptomOut]
    hints: list[SymptomOut] = Field(description="Where time goes, which is no fault")


@router.get("/{run_id}/symptoms", response={200: SymptomsOut, **REFUSALS}, summary="What the run looks like")
def list_symptoms(request: HttpRequest, run_id: str) -> SymptomsOut:
    """Return the symptoms that the newest lines of the log, the cause and the newest metrics match, worked out now."""
    run_facts = run_symptoms(run_for(request, run_id), now=timezone.now())
    return SymptomsOut(
        attempt=run_facts.attempt,
        computed_at=run_facts.computed_at,
        num_lines=run_facts.num_lines,
        num_metrics=run_facts.num_metrics,
        symptoms=[_symptom(match, run_facts) for match in run_facts.matches if match.symptom.tone != "hint"],
        hints=[_symptom(match, run_facts) for match in run_facts.matches if match.symptom.tone == "hint"],
    )


def _symptom(match: Match, run_facts: RunSymptoms) -> SymptomOut:
    symptom = match.symptom
    return SymptomOut(
        id=symptom.id,
        title=symptom.title,
        tone=symptom.tone,
        follows=list(causes_of(symptom, {each.symptom.id for each in run_facts.matches})),
        signal=symptom.signal,
        causes=list(symptom.causes),
        source=symptom.source,
        evidence=[_evidence(each, run_facts) for each in match.evidence],
        remedies=[_remedy(offer) for offer in match.remedies],
    )


def _evidence(evidence: SymptomEvidence, run_facts: RunSymptoms) -> EvidenceOut:
    line = run_facts.lines.get(evidence.text) if evidence.kind == "log" else None
    return EvidenceOut(
        kind=evidence.kind,
        text=evidence.text,
        source=evidence.source,
        role=line.role if line else None,
        rank=line.rank if line else None,
        cursor=line.cursor if line else None,
    )


def _remedy(offer: Offer) -> RemedyOut:
    return RemedyOut(title=offer.title, changes=dict(offer.fix.changes) if offer.fix else {}, source=offer.source)
