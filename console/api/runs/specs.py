"""Specs before they run: check, preview of the data, trial of the reward."""

from typing import Annotated

from django.http import HttpRequest
from ninja import Body, Router, Schema
from pydantic import JsonValue

from console.api.problem import EXPENSIVE, REFUSALS, ProblemOut, RequestProblem
from console.api.runs.spec_schema import SpecIn, spec_schema
from console.api.visible import ProjectSlug, caller, project_for
from console.budget import expensive
from jobs.accounts.privilege import check_privileged
from jobs.catalog.rules.rule import SpecFinding, findings, refused
from jobs.catalog.spec.parse import SpecInvalid
from jobs.catalog.spec.runspec import to_json
from jobs.catalog.value import Value
from jobs.cluster.ray_api import cluster_state
from jobs.preflight.client import TrialFailed, TrialUnavailable
from jobs.preflight.preview import DataPreview, RewardResult, preview_data, try_reward
from jobs.preflight.trial_switch import TrialForbidden
from jobs.runs.checks import Check, on_cluster, parse_for_cluster, run_checks

router = Router(tags=["specs"])


class CheckOut(Schema):
    """One thing that was checked: passed, failed, or unknown where the console cannot see it.

    Each of `fixes` is one change that would mend it, values by knob or dotted field.
    """

    state: str
    text: str
    field: str
    fixes: list[dict[str, Value]]

    @classmethod
    def of(cls, check: Check) -> "CheckOut":
        """Return a check as the API gives it."""
        return cls(state=check.state, text=check.text, field=check.field, fixes=[dict(each) for each in check.fixes])


class CheckFindingOut(Schema):
    """What a rule says of the spec; each of `fixes` is one change on offer, values by knob or dotted field."""

    rule: str
    level: str
    says: str
    why: str
    knobs: list[str]
    fixes: list[dict[str, Value]]
    source: str
    is_overridden: bool

    @classmethod
    def of(cls, finding: SpecFinding) -> "CheckFindingOut":
        """Return a finding as the API gives it."""
        return cls(
            rule=finding.rule,
            level=finding.level,
            says=finding.message,
            why=finding.why,
            knobs=list(finding.knobs),
            fixes=[dict(fix.changes) for fix in finding.fixes],
            source=finding.source,
            is_overridden=finding.is_overridden,
        )


class SpecCheckOut(Schema):
    """Whether the spec can be launched; if it parses, the complete spec with every default filled in."""

    is_launchable: bool
    problems: list[ProblemOut]
    checks: list[CheckOut]
    findings: list[CheckFindingOut]
    spec: dict[str, JsonValue] | None


class RewardTrialOut(Schema):
    """What the reward gave to a few completions."""

    results: list[RewardResult]


@router.get("/schema", response={200: dict[str, JsonValue], **REFUSALS}, summary="JSON schema of a spec")
def read_schema(request: HttpRequest) -> dict[str, JsonValue]:  # noqa: ARG001
    """Return the schema of a RunSpec with every knob's range and help."""
    return spec_schema()


@router.post("/check", response={200: SpecCheckOut, **EXPENSIVE}, summary="Check a spec without launching it")
@expensive
def check_spec(request: HttpRequest, spec: Annotated[SpecIn, Body()], project: ProjectSlug = None) -> SpecCheckOut:
    """Say everything that stands against launching this spec, field by field; nothing is queued."""
    home = project_for(request, project, "editor")
    try:
        checked = parse_for_cluster(spec)
    except SpecInvalid as error:
        problems = [ProblemOut(field=p.field, message=p.message) for p in error.problems]
        return SpecCheckOut(is_launchable=False, problems=problems, checks=[], findings=[], spec=None)
    checks = run_checks(checked, project=home, user=caller(request))
    settled = on_cluster(checked, cluster_state())
    ruled = [*check_privileged(checked, home, caller(request)), *refused(settled)]
    failed = [ProblemOut(field=p.field, message=p.message) for p in ruled]
    failed += [ProblemOut(field=c.field, message=c.text) for c in checks if c.state == "failed"]
    return SpecCheckOut(
        is_launchable=not failed,
        problems=failed,
        checks=[CheckOut.of(c) for c in checks],
        findings=[CheckFindingOut.of(finding) for finding in findings(settled)],
        spec=to_json(checked),
    )


@router.post("/preview", response={200: DataPreview, **EXPENSIVE}, summary="Preview the data of a spec")
@expensive
def preview_spec(request: HttpRequest, spec: Annotated[SpecIn, Body()], project: ProjectSlug = None) -> DataPreview:
    """Return five samples as the trainer will see them, lengths, and how many rows are too long."""
    home = project_for(request, project, "editor")
    checked = parse_for_cluster(spec)
    try:
        return preview_data(checked, project=home)
    except TrialFailed as failed:
        raise _refusal(failed) from failed


@router.post("/reward-trial", response={200: RewardTrialOut, **EXPENSIVE}, summary="Try the reward of a spec")
@expensive
def try_spec_reward(
    request: HttpRequest, spec: Annotated[SpecIn, Body()], project: ProjectSlug = None
) -> RewardTrialOut:
    """Return what the spec's reward gives to a few completions, bounded in time."""
    home = project_for(request, project, "editor")
    checked = parse_for_cluster(spec)
    try:
        return RewardTrialOut(results=list(try_reward(checked, project=home, user=caller(request))))
    except TrialFailed as failed:
        raise _refusal(failed) from failed


def _refusal(failed: TrialFailed) -> RequestProblem:
    unavailable = 403 if isinstance(failed, TrialForbidden) else 409
    status = unavailable if isinstance(failed, TrialUnavailable) else 422
    return RequestProblem(status, failed.message, field=failed.field)
