"""What diagnosis says of a run: every rule's answer, and what to change or to record next."""

from typing import Any

from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import EXPENSIVE, ProblemsOut, RequestProblem
from console.api.traces.traces import API_PATIENCE, trace_for
from console.api.visible import run_for
from console.budget import expensive
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.diagnosis.rules import Diagnosis, changed, diagnose_run, diagnose_trace, in_reach
from jobs.models import Run
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.traces.files import NoAnswer
from profiling.diagnosis.finding import Finding

router = Router(tags=["runs"])
traces = Router(tags=["traces"])


class KnobChangeOut(Schema):
    """A knob to turn; `value` is what a clone would have, null where only a person can say."""

    knob: str
    how: str = Field(description="raise, lower, on, off or choose")
    value: Any


class FindingOut(Schema):
    """A rule's answer. `begin` and `end` are the window of its evidence in Unix ns, null where there is none."""

    rule: str
    title: str
    question: str = Field(description="where, why or helped")
    state: str = Field(description="fires, clear or not_enough_data")
    level: str = Field(description="watch or bad where it fires, else empty")
    value: float | None
    threshold: float
    unit: str
    sentence: str = Field(description="What was found, or what to record next")
    definition: str
    source: str
    advice: str
    role: str
    rank: int | None
    begin: int | None
    end: int | None
    turns: list[KnobChangeOut]


class DiagnosisOut(Schema):
    """What fires first, the bad before what is to be watched; then what is clear, then what lacks data."""

    findings: list[FindingOut]
    first_step: int | None = Field(description="of the whole steps that were looked at, null where there are none")
    last_step: int | None
    num_steps: int
    looked: int = Field(description="ns of the files, from their beginning, that rules looked into; 0 without files")
    whole: int = Field(description="ns of the files: more than `looked` where they hold very many events")


@router.get("/{run_id}/diagnosis", response={200: DiagnosisOut, **EXPENSIVE}, summary="What diagnosis says of a run")
@expensive
def list_findings(request: HttpRequest, run_id: str) -> DiagnosisOut:
    """Return what the rules that need no capture say of the run's newest whole steps, worked out now."""
    run = run_for(request, run_id)
    spec = _spec(run)
    return _diagnosis_out(diagnose_run(run), spec)


@traces.get(
    "/{trace_id}/diagnosis",
    response={200: DiagnosisOut, 503: ProblemsOut, **EXPENSIVE},
    summary="What diagnosis says of a trace",
)
@expensive
def list_trace_findings(request: HttpRequest, trace_id: str) -> DiagnosisOut:
    """Return what every rule says of the files of a trace that are imported, and of the run around them.

    503 while it is being computed: ask again.
    """
    trace = trace_for(request, trace_id)
    try:
        diagnosis = diagnose_trace(trace, patience=API_PATIENCE)
    except NoAnswer as error:
        raise RequestProblem(error.status, str(error)) from error
    return _diagnosis_out(diagnosis, _spec(trace.run) if trace.run else None)


def _diagnosis_out(diagnosis: Diagnosis, spec: RunSpec | None) -> DiagnosisOut:
    first, last, count = diagnosis.steps or (None, None, 0)
    return DiagnosisOut(
        findings=[finding_out(one, spec) for one in diagnosis.findings],
        first_step=first,
        last_step=last,
        num_steps=count,
        looked=diagnosis.looked,
        whole=diagnosis.whole,
    )


def _spec(run: Run) -> RunSpec | None:
    try:
        return parse_spec(latest_spec_json(run))
    except SpecInvalid:  # launched by an older console
        return None


def finding_out(finding: Finding, spec: RunSpec | None) -> FindingOut:
    """Return a finding as the API says it; `spec` is the run that would be cloned."""
    rule, observation = finding.rule, finding.observation
    has_window = observation is not None and observation.end > observation.begin > 0
    return FindingOut(
        rule=finding.key,
        title=rule.title,
        question=rule.question,
        state=finding.state,
        level=finding.level,
        value=observation.value if observation else None,
        threshold=rule.watch,
        unit=rule.unit,
        sentence=finding.sentence(),
        definition=rule.definition,
        source=rule.source,
        advice=rule.advice,
        role=observation.role if observation else "",
        rank=observation.rank if observation and observation.rank >= 0 else None,
        begin=observation.begin if observation and has_window else None,
        end=observation.end if observation and has_window else None,
        turns=[
            KnobChangeOut(knob=change.knob, how=change.how, value=changed(change, spec) if spec else None)
            for change in (rule.changes if spec is None else in_reach(rule.changes, spec))
        ],
    )
