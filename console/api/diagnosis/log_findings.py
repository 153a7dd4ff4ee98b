"""What stands out in the log of a run, and the rules by which a project knows lines of logs."""

from datetime import datetime
from functools import partial

from django.http import HttpRequest
from ninja import Field, Router, Schema

from console.api.problem import EXPENSIVE, REFUSALS, RequestProblem
from console.api.visible import caller, project_for, run_for
from console.budget import expensive
from console.middleware.caller_gone import check_caller
from jobs.diagnosis.log_findings import log_findings
from jobs.diagnosis.log_rules import LogRuleRefused, log_rules_of, set_log_rules
from jobs.models import Project
from jobs.telemetry.logs import LogLine

router = Router(tags=["runs"])
projects = Router(tags=["projects"])


class FirstErrorOut(Schema):
    """The first error of the process that failed first; `line` is where it begins, `text` what it says in the end."""

    line: LogLine
    text: str


class KindOfLineOut(Schema):
    """Errors or warnings that are the same but for their numbers; `newest` is one of them."""

    level: str = Field(description="error or warning")
    count: int
    num_processes: int
    newest: LogLine
    first_at: datetime
    said: str = Field(description="Without prefixes, numbers as #")
    label: str = Field(description='By a rule of the project or a symptom; "" where nobody knows it')
    remedies: list[str]
    symptom_id: str = Field(description='As /catalog/symptoms has it; "" for a rule of the project')


class LogFindingsOut(Schema):
    """What stands out in the newest `num_lines` errors and warnings of an attempt; `is_whole`: those are all."""

    attempt: int
    first_error: FirstErrorOut | None
    kinds: list[KindOfLineOut]
    num_lines: int
    is_whole: bool


class LogRuleOut(Schema):
    """Lines that match `pattern` (RE2, without regard to case) are called `label`; `remedy` says what to do."""

    pattern: str
    label: str
    remedy: str
    level: str = Field(description="error or warning")


class LogRuleIn(Schema):
    """A rule for lines of logs; `pattern` is an expression of RE2."""

    model_config = {"extra": "forbid"}

    pattern: str
    label: str
    remedy: str = ""
    level: str = Field("error", description="error or warning")


class LogRulesIn(Schema):
    """All rules of the project's own; the first that matches a line counts."""

    model_config = {"extra": "forbid"}

    rules: list[LogRuleIn]


class LogRulesOut(Schema):
    """The project's own rules."""

    rules: list[LogRuleOut]


@router.get("/{run_id}/log-findings", response={200: LogFindingsOut, **EXPENSIVE}, summary="What its log shows")
@expensive
def read_log_findings(request: HttpRequest, run_id: str) -> LogFindingsOut:
    """Return the first error of a failed run, and its errors and warnings by kind."""
    findings = log_findings(run_for(request, run_id), check=partial(check_caller, request))
    return LogFindingsOut.from_orm(findings)


@projects.get("/{slug:project}/log-rules", response={200: LogRulesOut, **REFUSALS}, summary="Rules for lines of logs")
def read_log_rules(request: HttpRequest, project: str) -> LogRulesOut:
    """Return the project's own rules for lines of logs."""
    return _rules(project_for(request, project))


@projects.put("/{slug:project}/log-rules", response={200: LogRulesOut, **REFUSALS}, summary="Set rules for logs")
def put_log_rules(request: HttpRequest, project: str, body: LogRulesIn) -> LogRulesOut:
    """Have these rules in place of those that there are. Admins only."""
    home = project_for(request, project, "admin")
    try:
        set_log_rules(project=home, raw=[rule.dict() for rule in body.rules], user=caller(request))
    except LogRuleRefused as error:
        raise RequestProblem(422, str(error), field=f"rules.{error.field}") from error
    return _rules(home)


def _rules(project: Project) -> LogRulesOut:
    return LogRulesOut(rules=[LogRuleOut.from_orm(rule) for rule in log_rules_of(project)])
