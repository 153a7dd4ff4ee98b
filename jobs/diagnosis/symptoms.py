"""What a run looks like: the symptoms that its log, its exit cause and its metrics match.

What is read is bounded, however long the run is: the newest lines of each process, which are those around a failure,
and the newest values of the metrics that some symptom asks for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.catalog.rules.rule import Say
from jobs.catalog.rules.symptom import (
    Match,
    asked_for,
    causes_first,
    evidence_of,
    loudness,
    matches,
    without_contradictions,
)
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.diagnosis.numbers import read_lines
from jobs.models import Attempt, HealthMark, LogChunk, Run
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.telemetry.logs import LogLine

MAX_LINES = 2000  # of all processes together, less where there are few
MIN_LINES = 50  # of each process, however many there are
OWN_LINES = 500  # of the process that the cause names
MAX_LANES = 40  # processes and streams that are looked at; the cause's own comes first, then low ranks
_CHUNKS_AT_ONCE = 20

Lane = tuple[str, int, str]  # role, rank, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSymptoms:
    """What was found, from how much. Of `matches` what is alike loud and known is in the order in which it began,
    causes before what follows from them, and no remedy moves a knob against those of an earlier one. `since` has the
    step from which marks of health name a symptom; `lines` the line of the log that a text of evidence is, where it is
    one."""

    attempt: int
    computed_at: datetime
    num_lines: int
    num_metrics: int
    matches: tuple[Match, ...]
    since: Mapping[str, int]
    lines: Mapping[str, LogLine]


def run_symptoms(run: Run, *, now: datetime, say: Say = str) -> RunSymptoms:
    """Return what the run looks like by now. While its latest attempt waits in the queue, the one before is meant.

    `say` gives a text in the reader's language, see `jobs.catalog.rules.symptom.matches`.
    """
    spec = parse_spec(latest_spec_json(run))
    attempt = begun_attempt(run)
    lines = newest_lines(attempt)
    numbers = newest_numbers(run, spec)
    causes = [str(attempt.cause.get(key) or "") for key in ("text", "log_line")]  # a line of the log is better evidence
    texts = [*(text for text in causes if text), *(line.text for line in lines)]
    matched = matches(spec=spec, log_lines=texts, metrics=numbers, planned=run.num_steps, step=run.step, say=say)
    since = dict(HealthMark.objects.filter(run=run, end_step=None).values_list("finding", "begin_step"))
    begins = {match.symptom.id: since.get(match.symptom.id, math.inf) for match in matched}
    places = {name: place for place, name in enumerate(causes_first(begins))}
    matched.sort(key=lambda match: (*loudness(match), places[match.symptom.id]))
    matched = without_contradictions(matched, spec)
    evidence_lines = {evidence.text for match in matched for evidence in match.evidence if evidence.kind == "log"}
    return RunSymptoms(
        attempt=attempt.number,
        computed_at=now,
        num_lines=len(lines),
        num_metrics=len(numbers),
        matches=tuple(matched),
        since=since,
        lines={text: line for line in lines if (text := evidence_of(line.text)) in evidence_lines},
    )


def newest_lines(attempt: Attempt) -> list[LogLine]:
    """Return the newest lines of each process of the attempt, in the order they came, repeated ones once."""
    chunks = LogChunk.objects.filter(run_id=attempt.run_id, attempt=attempt.number)
    own = (attempt.cause.get("role"), attempt.cause.get("rank") or 0)
    lanes: list[Lane] = list(chunks.values_list("role", "rank", "stream").distinct().order_by("rank", "role", "stream"))
    lanes = sorted(lanes, key=lambda lane: lane[:2] != own)[:MAX_LANES]
    share = max(MIN_LINES, MAX_LINES // max(1, len(lanes)))
    newest: dict[str, tuple[int, int, LogLine]] = {}
    for lane in lanes:
        for place in _newest_of(attempt, lane, max(share, OWN_LINES) if lane[:2] == own else share):
            text = place[2].text
            if text.strip() and (text not in newest or newest[text][:2] < place[:2]):
                newest[text] = place
    return [line for _chunk, _number, line in sorted(newest.values(), key=lambda place: place[:2])]


def newest_numbers(run: Run, spec: RunSpec) -> dict[str, list[float | None]]:
    """Return the newest values of the driver's metrics that symptoms of such a run ask for, in the order of steps."""
    lines = read_lines(run.pk, asked_for(spec), step=run.step)
    return {name: list(values) for name, (_steps, values) in lines.items()}


def begun_attempt(run: Run) -> Attempt:
    """Return the run's newest attempt; while that waits in the queue, the one before."""
    newest = list(run.attempts.order_by("-number")[:2])
    return newest[-1] if newest[0].state == "queued" else newest[0]


def _newest_of(attempt: Attempt, lane: Lane, limit: int) -> Sequence[tuple[int, int, LogLine]]:
    """Return the newest lines of one process and stream with their places, the newest first."""
    role, rank, stream = lane
    chunks = LogChunk.objects.filter(
        run_id=attempt.run_id, attempt=attempt.number, role=role, rank=rank, stream=stream
    ).order_by("-first_line")[:limit]
    newest: list[tuple[int, int, LogLine]] = []
    for chunk in chunks.iterator(chunk_size=_CHUNKS_AT_ONCE):
        texts = chunk.text.split("\n")
        for i in range(len(texts) - 1, -1, -1):
            if len(newest) == limit:
                return newest
            line = LogLine(
                cursor=f"{chunk.pk}.{i}",
                attempt=attempt.number,
                role=role,
                rank=rank,
                stream=stream,
                line=chunk.first_line + i,
                at=chunk.at,
                text=texts[i],
            )
            newest.append((chunk.pk, i, line))
    return newest
