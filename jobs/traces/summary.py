"""What the analysis says of a trace: its files, on one clock with the phases of its run; and of two traces together."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from jobs.models import Trace
from jobs.telemetry.spans import as_phase_spans
from jobs.traces.files import File, files_of, recordings
from jobs.traces.phases import read_phases
from jobs.traces.results import answer
from profiling.analysis.difference import ComparedCapture, Difference, difference
from profiling.analysis.phases import phases_of
from profiling.analysis.stretches import By
from profiling.analysis.summary import TraceSummary, open_works, summarise
from profiling.analysis.work import WorkerEvents
from profiling.evidence import PhaseSpans, RecordedTrace

Window = tuple[int, int]
Worker = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceComparison:
    """What differs, which worker of each trace it is about, and who there are.

    `is_cut`: one of the traces holds too many events, so that only its first steps are used.
    """

    difference: Difference
    worker: Worker
    other_worker: Worker
    workers: tuple[Worker, ...]
    other_workers: tuple[Worker, ...]
    is_cut: bool


class NothingToCompare(ValueError):
    """Two traces cannot be held against each other; the sentence says why and what to record."""


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

    about = (files, _digest(spans), window, drop_first, by)
    return answer(trace, about, TraceSummary, work, patience=patience)


def _digest(spans: PhaseSpans) -> tuple[int, int, int]:
    """Return what tells these phases from those of the same time a moment later."""
    return len(spans), int(spans.start.sum()), int(spans.duration.sum())


def compare(
    one: Trace,
    other: Trace,
    *,
    worker: Worker | None = None,
    other_worker: Worker | None = None,
    drop_first: bool = False,
    patience: float | None = None,
) -> TraceComparison:
    """Return what differs from one trace to another.

    By default the first worker that both have, else the first of each. Raises: NothingToCompare; NoAnswer.
    """
    sides = [(trace.name, files_of(trace), phases_beside(trace)) for trace in (one, other)]

    def work() -> TraceComparison:
        (name, files, spans), (other_name, other_files, other_spans) = sides
        both = sorted(_workers(files) & _workers(other_files))
        alone, other_alone = worker or next(iter(both), None), other_worker or worker or next(iter(both), None)
        with (
            recordings(_files_of(files, alone)) as before,
            recordings(_files_of(other_files, other_alone)) as after,
        ):
            left, is_left_cut = _side(name, before, spans, drop_first)
            right, is_right_cut = _side(other_name, after, other_spans, drop_first)
            common = sorted(set(left) & set(right))
            own = _chosen(left, worker or (common[0] if common else None), name)
            theirs = _chosen(right, other_worker or (own if own in right else None), other_name)
            return TraceComparison(
                difference=difference(left[own], right[theirs]),
                worker=own,
                other_worker=theirs,
                workers=tuple(sorted({*left, *_workers(files)})),
                other_workers=tuple(sorted({*right, *_workers(other_files)})),
                is_cut=is_left_cut or is_right_cut,
            )

    about = ([(files, _digest(spans)) for _name, files, spans in sides], worker, other_worker, drop_first)
    return answer(one, about, TraceComparison, work, patience=patience)


def _workers(files: Sequence[File]) -> set[Worker]:
    """Return the workers that the files are of, as the run says; of some files nobody says it."""
    return {(file.role, file.rank) for file in files if file.role}


def _files_of(files: Sequence[File], worker: Worker | None) -> Sequence[File]:
    """Return the files of one worker where it is known of all of them, so that the others need not be read."""
    if worker is None or not all(file.role for file in files):
        return files
    role = worker[0].partition("/")[0]  # one process of several
    return [file for file in files if (file.role, file.rank) == (role, worker[1])] or files


def _side(
    name: str, recorded: Sequence[RecordedTrace], spans: PhaseSpans, drop_first: bool
) -> tuple[dict[Worker, ComparedCapture], bool]:
    """Return the workers of a trace with its steps, and whether it was cut. Raises: NothingToCompare."""
    works, steps, is_cut = open_works(recorded, spans)
    if not works:
        text = _("%(name)s holds no events of a worker yet. Wait until its files are imported, or record operators.")
        raise NothingToCompare(text % {"name": name})
    steps = steps[1:] if drop_first and len(steps) > 1 else steps
    if not steps:
        text = _(
            "%(name)s has no complete step, and differences are computed per step. Record at least one complete step."
        )
        raise NothingToCompare(text % {"name": name})
    by_worker = {}
    for key, work in works.items():
        own = tuple(step for step in steps if step.begin < work.end and work.begin < step.end)
        if own:
            by_worker[key] = ComparedCapture(
                work=work, steps=own, phases=phases_of(spans, role=key[0], rank=key[1], work=work)
            )
    return by_worker, is_cut


def _chosen(sides: dict[Worker, ComparedCapture], worker: Worker | None, name: str) -> Worker:
    if worker is None:
        return max(sides, key=lambda key: (_weight(sides[key].work), -key[1]))
    if worker not in sides:
        text = _("%(worker)s did nothing in %(name)s. Its workers are %(workers)s.")
        workers = ", ".join(f"{role} {rank}".strip() for role, rank in sorted(sides))
        raise NothingToCompare(text % {"worker": f"{worker[0]} {worker[1]}".strip(), "name": name, "workers": workers})
    return worker


def _weight(work: WorkerEvents) -> int:
    return len(work.device) or len(work.events)
