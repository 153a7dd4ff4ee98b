"""Part of what was asked for is not in the capture."""

import re
from collections.abc import Iterator

from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence, RecordedTrace

_MOST_LEFT_OUT = 0.01  # of a file's events
_LEFT_OUT = re.compile(r"^([\d,]+) (?:event|row|range|sample)s?\b.* left out\b")
_CUT = re.compile(r"cut off|damaged|the rest is left out|still open when .* ended and (?:are|is) cut|none of that work")
"""How readers say it (profiling/trace/formats); what else they note is no fault of the capture."""


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    capture = evidence.capture
    if capture is None and not evidence.recorded:
        return InsufficientData(what="capture")
    problems = list(capture.problems) if capture else []
    if capture:
        absent = sorted(set(capture.asked) - set(capture.here))
        if absent:
            problems.append(f"no file of {', '.join(absent[:5])}{' and others' if len(absent) > 5 else ''}")
    for one in evidence.recorded:
        whose = f"{one.role} {one.rank}: " if one.role else ""
        problems += [f"{whose}{text}" for text in _faults(one)]
    begins = [one.store.begin for one in evidence.recorded]
    ends = [one.store.end for one in evidence.recorded]
    return Observation(
        value=float(len(problems)),
        begin=min(begins, default=0),
        end=max(ends, default=0),
        words={"problems": "; ".join(problem.removesuffix(".") for problem in problems[:4])},
    )


def _faults(recorded: RecordedTrace) -> Iterator[str]:
    """Yield what is missing in a file: all of it, its end, or more than 1 % of its events."""
    facts = recorded.store.facts
    if not facts.events and not facts.samples:
        yield "the file holds no event"
    for note in recorded.store.notes:
        count = _LEFT_OUT.match(note.text)
        lost = int(count[1].replace(",", "")) if count else 0
        if _CUT.search(note.text) or lost > _MOST_LEFT_OUT * (facts.events + lost):
            yield note.text


PLUGIN = Rule(
    title="Incomplete capture",
    question="helped",
    definition="Number of things missing: workers without a file, empty files, files that are cut off, files of which "
    "more than 1 % of the events are left out.",
    unit="count",
    watch=0,
    bad=2,
    source="reports of cut-off and empty captures in the issue threads of Ray and verl",
    needs=("capture",),
    fires="{value} things are missing or cut off: {problems}.",
    clear="Every worker that was asked for is here, and no file is empty or cut off.",
    advice="Record again, for fewer steps or ranks, and let the run go on for a minute after the last of them.",
    evaluate=_evaluate,
)
