"""What the analysis says of a trace: its files, on one clock with the phases of its run; and of two traces together."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from django.utils.translation import gettext as _

from jobs.layers import store_path
from jobs.models import Layer, Trace
from jobs.spans import as_phase_spans
from jobs.trace_phases import read_phases
from profiling.analysis.difference import Difference, Side, difference
from profiling.analysis.phases import phases_of
from profiling.analysis.summary import Summary, open_works, summarise
from profiling.analysis.work import Work
from profiling.evidence import PhaseSpans, Recorded
from profiling.trace.store import NotAStore, Store

Window = tuple[int, int]
Worker = tuple[str, int]

MOST_KEPT = 16
_kept: "OrderedDict[tuple[object, ...], Summary]" = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What differs, which worker of each trace it is about, and who there are."""

    difference: Difference
    worker: Worker
    other_worker: Worker
    workers: tuple[Worker, ...]
    other_workers: tuple[Worker, ...]


class NothingToCompare(ValueError):
    """Two traces cannot be held against each other; the sentence says why and what to record."""


@contextmanager
def recordings(trace: Trace) -> Iterator[list[Recorded]]:
    """Lend the imported files of a trace, each with the worker that it is of; what is gone by now is left out."""
    with ExitStack() as stack:
        found = []
        for layer in ready_layers(trace):
            try:
                store = stack.enter_context(Store(store_path(layer)))
            except (NotAStore, OSError):
                continue
            found.append(Recorded(store=store, role=layer.role, rank=-1 if layer.rank is None else layer.rank))
        yield found


def ready_layers(trace: Trace) -> Sequence[Layer]:
    """Return the files of a trace that were imported, in the order they came."""
    return list(trace.layers.select_related("trace").filter(state="ready").order_by("pk"))


def phases_beside(trace: Trace) -> PhaseSpans:
    """Return the phases of the run at the time of a trace; none without a run."""
    return as_phase_spans(read_phases(trace).lanes)


def summary_of(trace: Trace, *, window: Window | None = None, drop_first: bool = False) -> Summary:
    """Return what was recorded in a window of a trace (all of it by default); kept for the next who asks."""
    spans = phases_beside(trace)
    key = (trace.pk, tuple(layer.pk for layer in ready_layers(trace)), len(spans), window, drop_first)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    with recordings(trace) as recorded:
        found = summarise(recorded, spans, window, drop_first=drop_first)
    with _lock:
        _kept[key] = found
        while len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    return found


def compare(
    one: Trace,
    other: Trace,
    *,
    worker: Worker | None = None,
    other_worker: Worker | None = None,
    drop_first: bool = False,
) -> Compared:
    """Return what differs from one trace to another.

    By default the first worker that both have, else the first of each. Raises: NothingToCompare.
    """
    with recordings(one) as before, recordings(other) as after:
        sides = [_side(one, before, drop_first), _side(other, after, drop_first)]
        common = sorted(set(sides[0]) & set(sides[1]))
        mine = _chosen(sides[0], worker or (common[0] if common else None), one)
        theirs = _chosen(sides[1], other_worker or (mine if mine in sides[1] else None), other)
        return Compared(
            difference=difference(sides[0][mine], sides[1][theirs]),
            worker=mine,
            other_worker=theirs,
            workers=tuple(sorted(sides[0])),
            other_workers=tuple(sorted(sides[1])),
        )


def _side(trace: Trace, recorded: Sequence[Recorded], drop_first: bool) -> dict[Worker, Side]:
    """Return the workers of a trace with its steps. Raises: NothingToCompare."""
    spans = phases_beside(trace)
    works, steps = open_works(recorded, spans)
    if not works:
        text = _("%(name)s holds no events of a worker yet. Wait until its files are imported, or record operators.")
        raise NothingToCompare(text % {"name": trace.name})
    steps = steps[1:] if drop_first and len(steps) > 1 else steps
    if not steps:
        text = _("%(name)s holds no whole step, and a difference is reckoned per step. Record at least one whole step.")
        raise NothingToCompare(text % {"name": trace.name})
    found = {}
    for key, work in works.items():
        own = tuple(step for step in steps if step.begin < work.end and work.begin < step.end)
        if own:
            found[key] = Side(work=work, steps=own, phases=phases_of(spans, role=key[0], rank=key[1], work=work))
    return found


def _chosen(sides: dict[Worker, Side], worker: Worker | None, trace: Trace) -> Worker:
    if worker is None:
        return max(sides, key=lambda key: (_weight(sides[key].work), -key[1]))
    if worker not in sides:
        text = _("%(worker)s did nothing in %(name)s. Its workers are %(workers)s.")
        known = ", ".join(f"{role} {rank}".strip() for role, rank in sorted(sides))
        raise NothingToCompare(
            text % {"worker": f"{worker[0]} {worker[1]}".strip(), "name": trace.name, "workers": known}
        )
    return worker


def _weight(work: Work) -> int:
    return len(work.device) or len(work.events)
