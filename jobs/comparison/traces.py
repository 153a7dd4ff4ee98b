"""Captures of several runs side by side: those of one tool and of overlapping steps stand in one row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from jobs.models import Capture
from jobs.telemetry.history import is_visible, limits_of
from profiling.config import is_torch

MAX_PER_RUN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTrace:
    """One capture, its files at hand. `steps` are the first and last one, None while not known.

    `is_dead`: the run was resumed before the last of them, so they are no part of its history.
    """

    capture: Capture
    steps: tuple[int, int] | None
    is_dead: bool

    @property
    def opened(self) -> str:
        """The id of what its imported files are looked at by; "" until one was imported."""
        if not hasattr(self.capture, "trace"):
            return ""
        layers = self.capture.trace.layers.all()
        return self.capture.trace.pk if any(layer.state == "ready" for layer in layers) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """Captures with `tool` of steps that overlap, `steps` from the first to the last of them; or whose steps are not
    known yet: None.

    `captures` are in the order of the runs, () where a run has none; those of one run by step.
    """

    tool: str
    steps: tuple[int, int] | None
    captures: tuple[tuple[CaptureTrace, ...], ...]

    def opened_of(self, run: int) -> str:
        """Return what the newest of these captures of a run, by its place, is looked at by; "" where none can be."""
        return next((trace.opened for trace in reversed(self.captures[run]) if trace.opened), "")

    @property
    def num_runs(self) -> int:
        """How many runs have one."""
        return sum(1 for own in self.captures if own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """All rows by step, those without one at the end. `num_left_out` are older ones than the newest 50 of a run."""

    rows: tuple[TraceRow, ...]
    num_left_out: int


def count_traces(*, run_ids: Sequence[str]) -> int:
    """Return how many captures these runs have together, of which none was withdrawn."""
    return _captures(run_ids).count()


def _captures(run_ids: Sequence[str]) -> QuerySet[Capture]:
    return Capture.objects.filter(run__in=run_ids).exclude(state="withdrawn")


def traces_side_by_side(*, run_ids: Sequence[str]) -> Traces:
    """Return the captures of the runs, whatever has become of them; one that was withdrawn recorded nothing."""
    through = limits_of(run_ids)
    by_run: dict[str, list[CaptureTrace]] = {}
    num_left_out = 0
    rows = _captures(run_ids).prefetch_related("files__layer", "trace__layers").select_related("created_by", "trace")
    for row in rows.order_by("-created_at", "-pk"):
        own = by_run.setdefault(row.run_id, [])
        if len(own) < MAX_PER_RUN:
            own.append(_trace(row, through[row.run_id]))
        else:
            num_left_out += 1
    traces = [trace for own in by_run.values() for trace in own]
    return Traces(rows=tuple(_rows(run_ids, traces)), num_left_out=num_left_out)


def _trace(row: Capture, through: Mapping[int, int | None]) -> CaptureTrace:
    steps = row.recorded_steps
    return CaptureTrace(
        capture=row, steps=steps, is_dead=not is_visible(steps[1] if steps else 0, through.get(row.attempt))
    )


def _rows(run_ids: Sequence[str], traces: Iterable[CaptureTrace]) -> list[TraceRow]:
    rows = []
    of_tool: dict[str, list[CaptureTrace]] = {}
    for trace in traces:
        of_tool.setdefault(trace.capture.tool, []).append(trace)
    for tool, own in of_tool.items():
        waiting = [trace for trace in own if trace.steps is None]
        dated = sorted(
            ((trace.steps, trace) for trace in own if trace.steps is not None),
            key=lambda one: (one[0], one[1].capture.pk),
        )
        together: list[CaptureTrace] = []
        first = last = 0
        for steps, trace in dated:
            if together and steps[0] > last:
                rows.append(_row(run_ids, tool, (first, last), together))
                together = []
            first, last = (first, max(last, steps[1])) if together else steps
            together.append(trace)
        if together:
            rows.append(_row(run_ids, tool, (first, last), together))
        if waiting:
            rows.append(_row(run_ids, tool, None, waiting))
    return sorted(rows, key=lambda row: (row.steps is None, row.steps[0] if row.steps else 0, not is_torch(row.tool)))


def _row(run_ids: Sequence[str], tool: str, steps: tuple[int, int] | None, traces: Sequence[CaptureTrace]) -> TraceRow:
    cells = tuple(tuple(trace for trace in traces if trace.capture.run_id == run_id) for run_id in run_ids)
    return TraceRow(tool=tool, steps=steps, captures=cells)
