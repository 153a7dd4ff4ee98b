"""What stands out in a run's log: the first error of the process that failed first, and kinds of errors and warnings.

Lines of one kind are the same but for numbers and addresses. A kind has a name where a rule of the project or a symptom
of the catalog knows it. What is read is bounded, as every search is.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jobs.catalog.log_level import PATTERNS, Level
from jobs.catalog.log_line import is_of_profiler, read_line, tells_of_lost_peer
from jobs.catalog.rules.symptom import MAX_LINE, symptom_of_line
from jobs.catalog.spec.parse import parse_spec
from jobs.diagnosis.log_rules import LogRule, log_rules_of
from jobs.diagnosis.symptoms import begun_attempt
from jobs.models import Attempt, Run
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.telemetry.line_pattern import LinePattern, level_pattern
from jobs.telemetry.logs import LogFilter, LogLine, read_logs

FAILURE_WINDOW = timedelta(minutes=30)  # before the end: longer than NCCL waits for a rank that is gone
MOST_ERRORS = 500
MOST_LINES = 5000
MOST_KINDS = 50
_TRACEBACK = "Traceback (most recent call last)"
_TRACEBACK_LINES = 200
_SUPERVISING = ("driver", "runner")  # they tell of workers' ends
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+(?:\.\d+)?")

Check = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstError:
    """The first error of the process that failed first. `line` is where it begins, `text` what it says in the end."""

    line: LogLine
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfLine:
    """Lines that are the same but for their numbers; `newest` is one of them.

    `label` and `remedies` are the rule's that knows it, or those of the symptom with this id of the catalog.
    """

    level: Level
    count: int
    num_processes: int
    newest: LogLine
    first_at: datetime
    said: str
    label: str = ""
    remedies: tuple[str, ...] = ()
    symptom_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFindings:
    """What stands out in the log of an attempt. `is_whole`: every error and warning was looked at."""

    attempt: int
    first_error: FirstError | None
    kinds: tuple[KindOfLine, ...]
    num_lines: int
    is_whole: bool


def log_findings(run: Run, *, check: Check = lambda: None) -> LogFindings:
    """Return what stands out in the log of the attempt that began last."""
    attempt = begun_attempt(run)
    rules = log_rules_of(run.project)
    expression = "|".join([PATTERNS["warning"], *(f"(?i:{rule.pattern})" for rule in rules)])
    pattern = level_pattern(expression)
    page = read_logs(
        run_id=run.pk, wanted=LogFilter(attempt=attempt.number, pattern=pattern), limit=MOST_LINES, check=check
    )
    lines = [line for line in page.lines if not is_of_profiler(line.text)]
    return LogFindings(
        attempt=attempt.number,
        first_error=_first_error(attempt, check) if attempt.state == "failed" else None,
        kinds=_kinds(run, lines, rules)[:MOST_KINDS],
        num_lines=len(lines),
        is_whole=not page.has_older,
    )


def _first_error(attempt: Attempt, check: Check) -> FirstError | None:
    """Return the first error of whom the cause names; else of the first worker that does not tell of another's end."""
    since = attempt.ended_at - FAILURE_WINDOW if attempt.ended_at else None
    for begin in [since, None] if since else [None]:
        wanted = LogFilter(attempt=attempt.number, level="error", since=begin)
        lines = _oldest(attempt.run_id, wanted, check)
        if lines:
            first = _of_first_failing(attempt, lines)
            return FirstError(line=first, text=_message_of(attempt.run_id, first, check))
    return None


def _oldest(run_id: str, wanted: LogFilter, check: Check) -> Sequence[LogLine]:
    page = read_logs(run_id=run_id, wanted=wanted, after="0.0", limit=MOST_ERRORS, check=check)
    return [line for line in page.lines if not is_of_profiler(line.text)]


def _of_first_failing(attempt: Attempt, lines: Sequence[LogLine]) -> LogLine:
    named_process = (attempt.cause.get("role"), attempt.cause.get("rank") or 0)
    own = [line for line in lines if (line.role, line.rank) == named_process and line.role not in _SUPERVISING]
    workers = [line for line in lines if line.role not in _SUPERVISING]
    for some in (own, workers, lines):
        first = next((line for line in some if not tells_of_lost_peer(line.text)), None)
        if first is not None:
            return first
    return lines[0]


def _message_of(run_id: str, first: LogLine, check: Check) -> str:
    """Return what an error says: of a traceback its end, where the exception stands."""
    said = read_line(first.text[:MAX_LINE]).said
    if not said.startswith(_TRACEBACK):
        return said
    process = LogFilter(role=first.role, rank=first.rank, attempt=first.attempt)
    following = read_logs(run_id=run_id, wanted=process, after=first.cursor, limit=_TRACEBACK_LINES, check=check).lines
    texts = (read_line(line.text[:MAX_LINE]).said for line in following if line.stream == first.stream)
    return next((text for text in texts if text and not text[0].isspace()), said)


def _kinds(run: Run, lines: Sequence[LogLine], rules: Sequence[LogRule]) -> tuple[KindOfLine, ...]:
    """Return the kinds of these lines, errors and what comes often first."""
    by_said: dict[str, list[LogLine]] = {}
    for line in lines:
        by_said.setdefault(_NUMBERS.sub("#", read_line(line.text[:MAX_LINE]).said), []).append(line)
    samples = [own[-1].text for own in by_said.values()]
    errors = set(level_pattern(PATTERNS["error"]).matching(samples))
    rule_by_place: dict[int, LogRule] = {}
    for rule in rules:
        for place in LinePattern(rule.pattern).matching(samples):
            rule_by_place.setdefault(place, rule)
    spec = parse_spec(latest_spec_json(run))
    kinds = []
    for place, (said, own) in enumerate(by_said.items()):
        level: Level = "error" if place in errors else "warning"
        label = symptom_id = ""
        remedies: tuple[str, ...] = ()
        if (rule_of := rule_by_place.get(place)) is not None:
            level, label = rule_of.level, rule_of.label
            remedies = (rule_of.remedy,) if rule_of.remedy else ()
        elif (symptom := symptom_of_line(read_line(own[-1].text[:MAX_LINE]).said, spec)) is not None:
            label, symptom_id = symptom.title, symptom.id
            remedies = tuple(remedy.title for remedy in symptom.remedies)
        kinds.append(
            KindOfLine(
                level=level,
                count=len(own),
                num_processes=len({(line.role, line.rank) for line in own}),
                newest=own[-1],
                first_at=own[0].at,
                said=said,
                label=label,
                remedies=remedies,
                symptom_id=symptom_id,
            )
        )
    return tuple(sorted(kinds, key=lambda kind: (kind.level != "error", not kind.label, -kind.count)))
