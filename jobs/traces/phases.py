"""The phases of the run that a trace is of, at the time of the trace: its first layer, before any file has arrived."""

from dataclasses import replace
from datetime import datetime, timedelta

from jobs.models import Trace
from jobs.telemetry.spans import SpansAnswer, read_spans

LIMIT = 20_000
_EARLIER = timedelta(seconds=60)  # a capture says that it records a little after its first step has begun


def read_phases(trace: Trace, *, depth: int | None = None) -> SpansAnswer:
    """Return the run's spans that touch the trace, of the capture's attempt; none for a trace without a run.

    With `depth` only those that are nested no deeper: 0 for phases without their details.
    """
    if trace.run_id is None:
        return SpansAnswer(through_seq=0, n=0, of=0, lanes=())
    begin, end = window(trace)
    if begin is None and trace.capture is None:
        return SpansAnswer(through_seq=0, n=0, of=0, lanes=())
    answer = read_spans(run_id=trace.run_id, from_ns=begin, to_ns=end, limit=LIMIT, depth=depth)
    if trace.capture is None:
        return answer
    lanes = tuple(lane for lane in answer.lanes if lane.attempt == trace.capture.attempt)
    return replace(answer, lanes=lanes, n=sum(len(lane.spans) for lane in lanes))


def window(trace: Trace) -> tuple[int | None, int | None]:
    """Return from when to when a trace may reach (Unix ns): its files and its capture's states; None for open."""
    begins, ends = [], []
    for facts in trace.layers.filter(state="ready").values_list("facts", flat=True):
        if not facts.get("has_clock", True):
            continue  # it is laid out somewhere
        if isinstance(facts.get("begin"), int) and isinstance(facts.get("end"), int):
            begins.append(facts["begin"])
            ends.append(facts["end"])
    if trace.capture is not None:
        times = trace.capture.state_times
        if at := _ns(times.get("recording")):
            begins.append(at - round(_EARLIER.total_seconds() * 1e9) if not begins else at)
        if at := _ns(times.get("stopping") or times.get("failed")):
            ends.append(at)
        elif not ends or trace.capture.ended_at is None:
            return (min(begins) if begins else None), None  # it goes on
    return (min(begins) if begins else None), (max(ends) if ends else None)


def _ns(text: str | None) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e9) if text else None
    except ValueError:
        return None
