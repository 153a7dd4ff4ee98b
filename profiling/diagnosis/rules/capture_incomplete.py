"""Part of what was asked for is not in the capture."""

from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence


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
        problems += [f"{whose}{note.text}" for note in one.store.notes if note.severity != "info"]
        if not any(lane.events for lane in one.store.lanes):
            problems.append(f"{whose}the file holds no event")
    begins = [one.store.begin for one in evidence.recorded]
    ends = [one.store.end for one in evidence.recorded]
    return Observation(
        value=float(len(problems)),
        begin=min(begins, default=0),
        end=max(ends, default=0),
        words={"problems": "; ".join(problems[:4])},
    )


PLUGIN = Rule(
    title="Incomplete capture",
    question="helped",
    definition="Number of things missing: workers without a file, empty files, cut-off ranges, warnings of the tool.",
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
