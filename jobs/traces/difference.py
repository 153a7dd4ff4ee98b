"""Two traces against each other: which worker and window of each, in which unit, and what differs."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from django.utils.translation import gettext as _

from jobs.models import Trace
from jobs.traces.files import File, files_of, recordings
from jobs.traces.results import answer
from jobs.traces.summary import Window, digest, phases_beside
from profiling.analysis.comparability import Comparability, comparability, facts_of
from profiling.analysis.difference import ComparedCapture, Difference, difference
from profiling.analysis.functions import function_difference, function_facts, functions_of
from profiling.analysis.intervals import total
from profiling.analysis.phases import phases_of
from profiling.analysis.rollout import engine_tokens
from profiling.analysis.stretches import WHOLE, Source, Stretches
from profiling.analysis.summary import OpenedTrace, open_trace
from profiling.analysis.too_many import TooManyEvents
from profiling.analysis.work import WorkerEvents
from profiling.evidence import PhaseSpans, RecordedTrace, Step

Worker = tuple[str, int]


Per = Literal["", "step", "window", "second", "token"]
"""What the times of a difference are of; "": a step where both traces have steps, else the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What of a trace is held against another one: a worker and a window of it (None: as the trace has them).

    `tokens`: of a step (of the window, without steps), for times per token; 0: as the passes of an engine tell.
    """

    worker: Worker | None = None
    window: Window | None = None
    tokens: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceComparison:
    """What differs, which worker of each trace it is about, and who there are. `per` is what its times are of.

    `of`: items are kernels and all else that a worker does, or, of stacks alone, functions. `sources`: where the steps
    of each are from. `is_cut`: one of the traces holds too many events, so that only its first part is used. `walls`:
    of each step [ns]. `begins`: when each recording begins, in Unix ns.
    """

    difference: Difference
    comparability: Comparability
    of: Literal["work", "functions"]
    per: Per
    sources: tuple[Source, Source]
    worker: Worker
    other_worker: Worker
    workers: tuple[Worker, ...]
    other_workers: tuple[Worker, ...]
    walls: tuple[tuple[int, ...], tuple[int, ...]]
    begins: tuple[int, int]
    is_cut: bool


class NothingToCompare(ValueError):
    """Two traces cannot be held against each other; the sentence says why and what to record."""


def worker_key(worker: Worker) -> str:
    """Return how addresses name a worker: "policy-0"."""
    return f"{worker[0]}-{worker[1]}"


def worker_of(key: str) -> Worker | None:
    """Return the worker that "policy-0" names; None for anything else."""
    role, dash, rank = key[:60].rpartition("-")
    return (role, int(rank)) if dash and rank.isascii() and rank.isdigit() and len(rank) < 10 else None


def compare(
    one: Trace,
    other: Trace,
    *,
    before: Compared = Compared(),
    after: Compared = Compared(),
    drop_first: bool = False,
    per: Per = "",
    patience: float | None = None,
) -> TraceComparison:
    """Return what differs from one trace to another.

    By default the first worker that both have, else the first of each; per step where both have steps, else of what
    was recorded as a whole. Raises: NothingToCompare; NoAnswer.
    """
    traces = [(trace.name, files_of(trace), phases_beside(trace)) for trace in (one, other)]

    def work() -> TraceComparison:
        common = next(iter(sorted(_workers(traces[0][1]) & _workers(traces[1][1]))), None)
        with ExitStack() as stack:
            sides = []
            for (name, files, spans), side in zip(traces, (before, after), strict=True):
                needed = _files_of(files, side.worker or before.worker or common)
                recorded = stack.enter_context(recordings(needed))
                sides.append(_opened(name, files, recorded, spans, side, drop_first))
            compared = _by_work if all(side.opened.works for side in sides) else _by_functions
            return compared(sides[0], sides[1], per)

    about = ([(files, digest(spans)) for _name, files, spans in traces], before, after, drop_first, per)
    return answer(one, about, TraceComparison, work, patience=patience)


def _by_work(one: "_Side", other: "_Side", per: Per) -> TraceComparison:
    """Return how what two workers did differs. Raises: NothingToCompare."""
    unit = _unit(per, (one, other))
    if unit == "window":
        one, other = one.as_window(), other.as_window()
    common = sorted(set(one.workers) & set(other.workers))
    own = one.chosen(one.query.worker or (common[0] if common else None))
    theirs = other.chosen(other.query.worker or (own if own in other.workers else None))
    captures = (one.capture(own, unit), other.capture(theirs, unit))
    facts = [
        facts_of(side.opened.works[key], side.opened.stores[key], capture.whole)
        for side, key, capture in zip((one, other), (own, theirs), captures, strict=True)
    ]
    return TraceComparison(
        difference=difference(*captures),
        comparability=comparability(facts[0], facts[1], (captures[0].count, captures[1].count)),
        of="work",
        per=unit,
        sources=(one.opened.stretches.source, other.opened.stretches.source),
        worker=own,
        other_worker=theirs,
        workers=tuple(sorted({*one.workers, *_workers(one.files)})),
        other_workers=tuple(sorted({*other.workers, *_workers(other.files)})),
        walls=(captures[0].walls, captures[1].walls),
        begins=(one.begin, other.begin),
        is_cut=one.opened.is_cut or other.opened.is_cut,
    )


def _by_functions(one: "_Side", other: "_Side", per: Per) -> TraceComparison:
    """Return how functions differ where one side at least holds stacks alone. Raises: NothingToCompare."""
    try:
        functions = (functions_of(one.recorded, one.query.window), functions_of(other.recorded, other.query.window))
    except TooManyEvents as error:
        raise NothingToCompare(str(error)) from error
    if not all(functions):
        raise NothingToCompare(_why_not((one, other), functions))
    if per not in ("", "second"):
        raise NothingToCompare(_("Of stacks alone only shares of time can be compared, and that is per second."))
    facts = (function_facts(one.recorded, functions[0]), function_facts(other.recorded, functions[1]))
    workers = tuple(tuple(sorted({(file.role, max(file.rank, 0)) for file in side.recorded})) for side in (one, other))
    return TraceComparison(
        difference=function_difference(*functions),
        comparability=comparability(facts[0], facts[1], (1, 1)),
        of="functions",
        per="second",
        sources=("window", "window"),
        worker=workers[0][0],
        other_worker=workers[1][0],
        workers=workers[0],
        other_workers=workers[1],
        walls=((sum(functions[0].values()),), (sum(functions[1].values()),)),
        begins=(one.begin, other.begin),
        is_cut=False,
    )


def _why_not(sides: tuple["_Side", "_Side"], functions: Sequence[Mapping[str, int]]) -> str:
    """Say why two sides cannot be compared: one of them holds neither work nor stacks, or each but one of them."""
    for side, own in zip(sides, functions, strict=True):
        if not side.opened.works and not own:
            text = _(
                "%(name)s holds no events of a worker yet. Wait until its files are imported, or record operators."
            )
            return text % {"name": side.name}
    stacks, other = sides if functions[0] else sides[::-1]
    text = _("%(name)s holds stacks alone, and %(other)s holds none. Bring a trace of operators, or one with stacks.")
    return text % {"name": stacks.name, "other": other.name}


def _workers(files: Sequence[File]) -> set[Worker]:
    """Return the workers that the files are of, as the run says; of some files nobody says it."""
    return {(file.role, file.rank) for file in files if file.role}


def _files_of(files: Sequence[File], worker: Worker | None) -> Sequence[File]:
    """Return the files of one worker where it is known of all of them, so that the others need not be read."""
    if worker is None or not all(file.role for file in files):
        return files
    role = worker[0].partition("/")[0]  # one process of several
    return [file for file in files if (file.role, file.rank) == (role, worker[1])] or files


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two traces, opened, and what was asked of it; `steps` are those that count."""

    name: str
    files: Sequence[File]
    recorded: Sequence[RecordedTrace]
    query: Compared
    opened: OpenedTrace
    steps: tuple[Step, ...]
    spans: PhaseSpans

    @property
    def begin(self) -> int:
        """When its recording begins, in Unix ns."""
        return min((file.begin for file in self.recorded), default=0)

    @property
    def workers(self) -> dict[Worker, WorkerEvents]:
        """Those who did something in the steps."""
        return {
            key: work
            for key, work in self.opened.works.items()
            if any(step.begin < work.end and work.begin < step.end for step in self.steps)
        }

    def as_window(self) -> "_Side":
        """Return the same with its window as one."""
        opened = self.opened
        whole = (Step(number=WHOLE, begin=opened.begin, end=opened.end),) if opened.end > opened.begin else ()
        return replace(self, opened=replace(opened, stretches=Stretches(source="window", steps=whole)), steps=whole)

    def chosen(self, worker: Worker | None) -> Worker:
        """Return a worker that is there, by default the one with most work. Raises: NothingToCompare."""
        workers = self.workers
        if not workers:
            text = _("%(name)s holds nothing of a worker in this window. Choose a longer one.")
            raise NothingToCompare(text % {"name": self.name})
        if worker is None:
            return max(workers, key=lambda key: (_weight(workers[key]), -key[1]))
        if worker not in workers:
            text = _("%(worker)s did nothing in %(name)s. Its workers are %(workers)s.")
            names = ", ".join(f"{role} {rank}".strip() for role, rank in sorted(workers))
            called = f"{worker[0]} {worker[1]}".strip()
            raise NothingToCompare(text % {"worker": called, "name": self.name, "workers": names})
        return worker

    def capture(self, worker: Worker, per: Per) -> ComparedCapture:
        """Return what is compared of a worker. Raises: NothingToCompare where nobody tells of tokens."""
        work = self.opened.works[worker]
        steps = tuple(step for step in self.steps if step.begin < work.end and work.begin < step.end)
        capture = ComparedCapture(
            work=work,
            steps=steps,
            phases=phases_of(self.spans, role=worker[0], rank=worker[1], work=work),
            host=self.opened.stretches.on_host(worker, steps),
        )
        if per == "second":
            return replace(capture, units=total(capture.whole) / 1e9)
        if per != "token":
            return capture
        count = self.query.tokens * len(steps) or engine_tokens(work, capture.whole)
        if not count:
            text = _("Nothing in %(name)s tells of tokens. Say how many a step has (the window, without steps).")
            raise NothingToCompare(text % {"name": self.name})
        return replace(capture, units=float(count))


def _opened(
    name: str,
    files: Sequence[File],
    recorded: Sequence[RecordedTrace],
    spans: PhaseSpans,
    query: Compared,
    drop_first: bool,
) -> _Side:
    opened = open_trace(recorded, spans, query.window)
    steps = opened.stretches.steps
    return _Side(
        name=name,
        files=files,
        recorded=recorded,
        query=query,
        opened=opened,
        steps=steps[1:] if drop_first and len(steps) > 1 else steps,
        spans=spans,
    )


def _unit(per: Per, sides: Sequence[_Side]) -> Per:
    """Return what times are told of. Raises: NothingToCompare where steps are asked for and there are none."""
    lacking = next((side.name for side in sides if not side.opened.stretches.has_steps), None)
    if per == "step" and lacking is not None:
        text = _("%(name)s has no complete step in what is compared. Compare whole windows, seconds or tokens instead.")
        raise NothingToCompare(text % {"name": lacking})
    return per or ("step" if lacking is None else "window")


def _weight(work: WorkerEvents) -> int:
    return len(work.device) or len(work.events)
