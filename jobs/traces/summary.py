"""What the analysis says of a trace: its files, on one clock with the phases of its run."""

from jobs.models import Trace
from jobs.telemetry.spans import as_phase_spans
from jobs.traces.files import files_of, recordings
from jobs.traces.phases import read_phases
from jobs.traces.results import answer
from profiling.analysis.stretches import By
from profiling.analysis.summary import TraceSummary, summarise
from profiling.evidence import PhaseSpans

Window = tuple[int, int]


def phases_beside(trace: Trace) -> PhaseSpans:
    """Return the phases of the run at the time of a trace, without their details; none without a run."""
    return as_phase_spans(read_phases(trace, depth=0).lanes)


def summary_of(
    trace: Trace,
    *,
    window: Window | None = None,
    drop_first: bool = False,
    by: By = "steps",
    patience: float | None = None,
) -> TraceSummary:
    """Return what was recorded in a window of a trace, all of it by default, by step or as one. Raises: NoAnswer."""
    spans, files = phases_beside(trace), files_of(trace)

    def work() -> TraceSummary:
        with recordings(files) as recorded:
            return summarise(recorded, spans, window, drop_first=drop_first, by=by)

    about = (files, digest(spans), window, drop_first, by)
    return answer(trace, about, TraceSummary, work, patience=patience)


def digest(spans: PhaseSpans) -> tuple[int, int, int]:
    """Return what tells these phases from those of the same time a moment later."""
    return len(spans), int(spans.start.sum()), int(spans.duration.sum())
