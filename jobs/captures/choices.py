"""What people can ask of a run: its workers, what can be seen of them with which tool and why, what that costs, and
what stands against a request, in a sentence.

Costs are what the run's own captures with the same tool came to; else the measurements of docs/use/profile.md, on the
bundled model. Where neither is known nothing is said, and nothing refused.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, TypeGuard

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Attempt, Capture, Run, RunEvent
from jobs.storage.floor import room_for_people
from jobs.telemetry.series import SeriesWindow, read_series
from profiling.captures.capture import BUSY
from profiling.config import MAX_FIRST_STEP, MAX_SECONDS, MAX_STEPS, TOOLS, WHATS, Device, What
from profiling.recorders.recorder import (
    INSTEAD,
    ToolSelection,
    candidates,
    device_of,
    lacking_of,
    load_tool,
    seen_in,
    select_tool,
    shown_by,
    without,
)

USUAL: What = "kernels"
"""What is recorded where nobody says what: on CPU these are operators."""

_MAX_DIGITS = 8  # of a rank: whoever writes the note may write anything
_MAX_NODE = 120  # characters of a node's name, as above

WORDS: Mapping[What, tuple[Promise, Promise]] = {
    "timing": (gettext_lazy("Timing"), gettext_lazy("phases and steps of every worker on one clock")),
    "operators": (gettext_lazy("Operators"), gettext_lazy("each operator of torch, with what it launches")),
    "kernels": (gettext_lazy("Kernels"), gettext_lazy("what the device runs, and where it is idle")),
    "memory": (gettext_lazy("Memory"), gettext_lazy("who allocates how much, and who holds it")),
    "communication": (gettext_lazy("Communication"), gettext_lazy("collectives, and who waits for whom")),
    "stacks": (gettext_lazy("Where it hangs"), gettext_lazy("the Python stack of every thread, over and over")),
}
"""What each is called, and what it shows."""

_DEVICES: Mapping[Device, Promise] = {
    "cpu": gettext_lazy("CPU"),
    "cuda": gettext_lazy("GPUs"),
    "npu": gettext_lazy("Ascend"),
}

NEWEST = 20

READING = "disk_free_bytes"
RECENT = timedelta(minutes=5)
_POINTS = 1000  # more than a node sends in that time: its newest is one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordableProcess:
    """One process that can be recorded; `problems` maps each tool to "" (ready), or why not.

    `problems` is empty while the worker has not told. `node` is the name of its node, "" while that is not known.
    """

    role: str
    rank: int
    problems: Mapping[str, str]
    node: str = ""

    @property
    def name(self) -> str:
        """How people call it: "policy 0"."""
        return f"{self.role} {self.rank}"


def workers(*, run: Run, attempt: int) -> list[RecordableProcess]:
    """Return the workers of an attempt: those that have told, or, before, those that the run's spec asks for."""
    reported = _reported(run.pk, attempt)
    if reported:
        return reported
    # The stored spec, not the merged one: an attempt may only change how many ranks there are, and those will tell.
    try:
        spec = parse_spec(run.spec)
    except SpecInvalid:  # launched by an older console
        return []
    return [
        RecordableProcess(role=role, rank=rank, problems={})
        for role, size in spec.workers.items()
        for rank in range(size)
    ]


def cannot(tool: str, lacking: Sequence[RecordableProcess]) -> str:
    """Say which workers a tool cannot record, and why: each reason once."""
    by_reason: dict[str, list[RecordableProcess]] = {}
    for worker in lacking:
        by_reason.setdefault(worker.problems.get(tool) or _("it has not reported yet."), []).append(worker)
    text = _("%(tool)s cannot record %(worker)s: %(why)s")
    return " ".join(text % {"tool": tool, "worker": names(who), "why": why} for why, who in by_reason.items())


def names(workers: Iterable[RecordableProcess]) -> str:
    """Return how people call several workers: "policy 0-3, vllm 0"."""
    by_role: dict[str, list[int]] = {}
    for worker in workers:
        by_role.setdefault(worker.role, []).append(worker.rank)
    parts = []
    for role, ranks in by_role.items():
        spans: list[list[int]] = []
        for rank in sorted(ranks):
            if spans and rank <= spans[-1][1] + 1:
                spans[-1][1] = rank
            else:
                spans.append([rank, rank])
        parts += [f"{role} {low}" if low == high else f"{role} {low}-{high}" for low, high in spans]
    return ", ".join(parts)


def _reported(run_id: str, attempt: int) -> list[RecordableProcess]:
    notes = RunEvent.objects.filter(run_id=run_id, attempt=attempt, verb="note").order_by("-pk")
    data: Mapping[str, Any] = next((data for data in notes.values_list("data", flat=True) if _is_told(data)), {})
    places = data.get("places")
    node_of = places if isinstance(places, Mapping) else {}
    listed = []
    for name, tools in data.get("profilers", {}).items():
        role, _dash, rank = str(name).rpartition("-")
        if role and rank.isdecimal() and len(rank) < _MAX_DIGITS and isinstance(tools, Mapping):
            problems = {str(k): str(v) for k, v in tools.items()}
            node = str(node_of.get(name, ""))[:_MAX_NODE]
            listed.append(RecordableProcess(role=role, rank=int(rank), problems=problems, node=node))
    order = {"policy": 0, "critic": 1, "reference": 2, "reward": 3, "vllm": 4}
    return sorted(listed, key=lambda worker: (order.get(worker.role, 9), worker.role, worker.rank))


def _is_told(data: object) -> bool:
    return isinstance(data, Mapping) and isinstance(data.get("profilers"), Mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """A tool that shows the thing, and can be named by who knows better; `num_able` of the workers have it.

    `also` and `without` are what else its files show and do not show. `problem` says why no worker has it.
    """

    name: str
    about: str
    also: tuple[What, ...]
    without: tuple[What, ...]
    by_steps: bool
    num_able: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is recorded for `what`: with `tool`, "" where none can and `problem` says why; `why` it is the one.

    `recorded` is another thing than `what` where the device has nothing of the kind. `tools` can be named for it.
    """

    what: What
    recorded: What
    tool: str
    why: str
    problem: str
    tools: tuple[ToolChoice, ...]


def as_what(text: str) -> What | None:
    """Return the word as one of those that can be asked for, None if it is none."""
    return next((what for what in WHATS if what == text), None)


def device_for(run: Run, *, attempt: int, workers: Sequence[RecordableProcess]) -> Device:
    """Return which device the workers of an attempt compute on, as they tell, or else as the attempt was placed."""
    has_gpus = Attempt.objects.filter(run=run, number=attempt, num_gpus__gt=0).exists()
    return device_of([worker.problems for worker in workers], planned="cuda" if has_gpus else "cpu")


def choices(*, device: Device, workers: Sequence[RecordableProcess]) -> list[Choice]:
    """Return what can be asked of these workers, each with the tool that records it."""
    return [choice(what, device=device, workers=workers) for what in WHATS]


def choice(what: What, *, device: Device, workers: Sequence[RecordableProcess]) -> Choice:
    """Return which tool records `what` on these workers, and why it is the one."""
    by_name = {worker.name: worker for worker in workers}
    selection = select_tool(what, device=device, workers={name: worker.problems for name, worker in by_name.items()})
    tool = selection.tool
    return Choice(
        what=what,
        recorded=selection.recorded,
        tool=tool,
        why=_why(selection, by_name) if tool else "",
        problem="" if tool else _problem(selection, by_name),
        tools=tuple(_named(name, selection, by_name) for name in candidates(selection.recorded, device)),
    )


def _named(tool: str, selection: ToolSelection, by_name: Mapping[str, RecordableProcess]) -> ToolChoice:
    lacking = lacking_of(tool, {name: worker.problems for name, worker in by_name.items()})
    seen = seen_in(tool, selection.recorded, device=selection.device)
    is_lost = bool(lacking) and len(lacking) == len(by_name)
    return ToolChoice(
        name=tool,
        about=_(load_tool(tool).about),
        also=tuple(what for what in seen if what != selection.recorded),
        without=without(device=selection.device, seen=seen),
        by_steps=load_tool(tool).shows[selection.recorded].is_extra,
        num_able=len(by_name) - len(lacking),
        problem=cannot(tool, [by_name[name] for name in lacking]) if is_lost else "",
    )


def _why(selection: ToolSelection, by_name: Mapping[str, RecordableProcess]) -> str:
    """Say why this tool: what it is good at, on whom it is ready, who would have come first, what is not there."""
    shown = load_tool(selection.tool).shows[selection.recorded]
    words = {"tool": selection.tool, "because": _(shown.because), "where": _where(selection, by_name)}
    if all(by_name[name].problems for name in selection.able) and selection.able:
        said = [_("%(tool)s, because it is ready on %(where)s and %(because)s.") % words]
    else:
        said = [_("%(tool)s, because it %(because)s. The workers have not reported yet which tools they have.") % words]
    for other in selection.passed:
        text = _("%(tool)s is preferred, but is not ready on %(workers)s.")
        lacking = names(by_name[name] for name in other.lacking)
        said.append(text % {"tool": other.tool, "workers": lacking})
    if selection.recorded != selection.what:
        text = _("On %(device)s there are no %(what)s: %(recorded)s are recorded instead.")
        said.insert(
            1, text % {"device": _DEVICES[selection.device], "what": selection.what, "recorded": selection.recorded}
        )
    return " ".join(said)


def _where(selection: ToolSelection, by_name: Mapping[str, RecordableProcess]) -> str:
    total = len(by_name)
    if not selection.lacking:
        return _("the worker") if total == 1 else _("all %(n)s workers") % {"n": total}
    lacking = names(by_name[name] for name in selection.lacking)
    words = {"n": len(selection.able), "of": total, "workers": lacking}
    return _("%(n)s of %(of)s workers (not on %(workers)s)") % words


def _problem(selection: ToolSelection, by_name: Mapping[str, RecordableProcess]) -> str:
    if not selection.passed:
        text = _("No tool shows %(what)s on %(device)s. Memory peaks of each phase are reported all the same.")
        if selection.what != "memory":
            text = _("No tool shows %(what)s on %(device)s.")
        return text % {"what": selection.what, "device": _DEVICES[selection.device]}
    return " ".join(cannot(other.tool, [by_name[name] for name in other.lacking]) for other in selection.passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureCost:
    """What one tool costs on this run; None where it is not known.

    `step_bytes` and `second_bytes` are of one worker, `stall_seconds` of the whole run, at start and stop together.
    `slowdown` is the time of a recorded step divided by that of its neighbours. `captures` is how many of the run these
    are from, 0 for measurements elsewhere.
    """

    tool: str
    step_bytes: float | None = None
    second_bytes: float | None = None
    stall_seconds: float | None = None
    slowdown: float | None = None
    captures: int = 0

    def bytes(self, *, workers: int, num_steps: int, seconds: float) -> int | None:
        """Return how large a capture will be, None where that is not known."""
        each = self.second_bytes if seconds else self.step_bytes
        return None if each is None else round(workers * each * (seconds or num_steps))


MEASURED = {
    "torch": CaptureCost(tool="torch", step_bytes=0.26e6, second_bytes=0.31e6, stall_seconds=0.3),
    "torch_pieces": CaptureCost(tool="torch_pieces", step_bytes=0.26e6, second_bytes=0.31e6),
    "nsys": CaptureCost(tool="nsys", step_bytes=0.08e6, second_bytes=0.1e6, stall_seconds=1.2),
    "stacks": CaptureCost(tool="stacks", step_bytes=0.04e6, second_bytes=0.012e6, stall_seconds=0.02),
}
"""Of the demo, on average of its workers: docs/use/profile.md, "What it costs"."""


def costs(run: Run) -> list[CaptureCost]:
    """Return what each tool costs on this run."""
    rows = run.captures.filter(state="ready").order_by("-created_at").prefetch_related("files")[:NEWEST]
    own: dict[str, list[CaptureCost]] = {}
    for row in rows:
        if (cost := _cost_of(row)) is not None:
            own.setdefault(row.tool, []).append(cost)
    return [_median(tool, own[tool]) if tool in own else MEASURED.get(tool, CaptureCost(tool=tool)) for tool in TOOLS]


def free_bytes() -> int:
    """Return the free bytes of the console's disk that captures may take."""
    return room_for_people()


def expected_bytes(*, run: Run, tool: str, workers: int, num_steps: int, seconds: float) -> int | None:
    """Return how large a capture of so many workers will be, None where that is not known."""
    cost = next(one for one in costs(run) if one.tool == tool)
    return cost.bytes(workers=workers, num_steps=num_steps, seconds=seconds)


def _cost_of(row: Capture) -> CaptureCost | None:
    """Return what a ready capture came to."""
    sizes = [file.size for file in row.files.all()]
    steps = row.recorded_steps
    if not sizes or steps is None:
        return None
    overhead = row.meta.get("overhead")
    overhead = overhead if isinstance(overhead, dict) else {}
    times = overhead.get("step_seconds")
    times = [t for t in times if _is_time(t)] if isinstance(times, list) else []
    beside = overhead.get("neighbor_step_seconds")
    begin, end = overhead.get("start_seconds"), overhead.get("stop_seconds")
    each = sum(sizes) / len(sizes)
    seconds = _seconds(row) if row.seconds else sum(times)
    return CaptureCost(
        tool=row.tool,
        step_bytes=None if row.seconds else each / (steps[1] - steps[0] + 1),  # by time it began and ended within one
        second_bytes=each / seconds if seconds else None,
        stall_seconds=begin + end if _is_time(begin) and _is_time(end) else None,
        slowdown=median(times) / beside if times and not row.seconds and _is_time(beside) and beside else None,
    )


def _seconds(row: Capture) -> float:
    """Return how long a capture by time recorded, 0 if that was not told."""
    begin, end = (row.state_times.get(state) for state in ("recording", "stopping"))
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds() if begin and end else 0.0


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _median(tool: str, own: list[CaptureCost]) -> CaptureCost:
    def of(name: str) -> float | None:
        values = [value for one in own if (value := getattr(one, name)) is not None]
        return median(values) if values else getattr(MEASURED.get(tool), name, None)

    return CaptureCost(
        tool=tool,
        step_bytes=of("step_bytes"),
        second_bytes=of("second_bytes"),
        stall_seconds=of("stall_seconds"),
        slowdown=of("slowdown"),
        captures=len(own),
    )


def cluster_free_bytes(run: Run, *, now: datetime) -> int | None:
    """Return the free bytes of the fullest disk of run directories, as last read; None if none was read lately."""
    window = SeriesWindow(low=int((now - RECENT).timestamp() * 1e9))
    series = read_series(run_id=run.pk, names=[READING], num_points=_POINTS, window=window).series
    newest = [float(one.y[-1]) for one in series if one.attempt == run.latest_attempt and one.role == "node" and one.n]
    finite = [free for free in newest if math.isfinite(free) and free >= 0]
    return int(min(finite)) if finite else None


# -- what stands against a request --


class CaptureRefused(ValueError):
    """The capture cannot be had; `field` says which part of the request is wrong, `is_conflict` that the state is."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field, self.is_conflict = field, is_conflict
        super().__init__(message)


def resolved(
    what: What | None, tool: str, *, run: Run, device: Device, workers: Sequence[RecordableProcess], seconds: float
) -> tuple[What, str]:
    """Return what is to be seen and with which tool, where one of the two or none was said. Raises: CaptureRefused."""
    trainer = run.spec.get("trainer", {}).get("name") or "native"
    about: Any = {"device": device, "seconds": seconds, "is_beside": trainer != "native"}
    if tool:
        if what is None:
            return (shown_by(tool, device) or shown_by(tool))[0], tool
        check_shown(what=INSTEAD.get((what, device), what), tool=tool, **about)
        return what, tool
    what = what or USUAL
    selected = choice(what, device=device, workers=workers)
    if not selected.tool:
        raise CaptureRefused("what", selected.problem, is_conflict=True)
    check_shown(what=selected.recorded, tool=selected.tool, **about)
    return what, selected.tool


def check_shape(*, what: str, tool: str, first_step: int, num_steps: int, seconds: float = 0) -> None:
    """Refuse what no run could record; "" leaves `what` or `tool` open. Raises: CaptureRefused."""
    if tool and tool not in TOOLS:
        text = _("%(given)r is not an available profiler. Use %(allowed)s.")
        raise CaptureRefused("tool", text % {"given": tool[:40], "allowed": _one_of(TOOLS)})
    if what and what not in WHATS:
        text = _("%(given)r cannot be recorded. Use %(allowed)s.")
        raise CaptureRefused("what", text % {"given": what[:40], "allowed": _one_of(WHATS)})
    if not 0 <= seconds <= MAX_SECONDS:  # and no NaN
        text = _("%(given)s s cannot be recorded in one capture. Use up to %(most)s s, or 0 for whole steps.")
        raise CaptureRefused("seconds", text % {"given": seconds, "most": f"{MAX_SECONDS:.0f}"})
    if seconds and first_step:
        text = _("A capture by time begins at once; it takes no first step (%(given)s). Leave one of the two out.")
        raise CaptureRefused("first_step", text % {"given": first_step})
    if not 1 <= num_steps <= MAX_STEPS:
        text = _("%(given)s steps cannot be recorded in one capture. Use 1 to %(most)s.")
        raise CaptureRefused("num_steps", text % {"given": num_steps, "most": MAX_STEPS})
    if not 0 <= first_step <= MAX_FIRST_STEP:
        text = _("A capture cannot begin with step %(given)s. Use the number of a future step, or 0 for the next one.")
        raise CaptureRefused("first_step", text % {"given": first_step})


def check_shown(*, what: What, tool: str, device: Device, seconds: float, is_beside: bool) -> None:
    """Refuse a tool in whose files `what` cannot be seen on this device, or not in such a recording.

    `is_beside` says that the trainer is recorded from beside, as others than the built-in one are. Raises:
    CaptureRefused.
    """
    shown = shown_by(tool, device)
    if not shown:
        text = _("%(tool)s shows nothing on %(device)s. Name no tool, and the console selects one.")
        raise CaptureRefused("tool", text % {"tool": tool, "device": device}, is_conflict=True)
    if what not in shown:
        text = _("%(tool)s does not show %(what)s on %(device)s. Ask for %(allowed)s, or name no tool.")
        raise CaptureRefused(
            "tool", text % {"tool": tool, "what": what, "device": device, "allowed": _one_of(shown)}, is_conflict=True
        )
    if is_beside and load_tool(tool).shows[what].is_extra:
        text = _("%(tool)s records %(what)s only of the built-in trainer. Ask for something else.")
        raise CaptureRefused("what", text % {"tool": tool, "what": what}, is_conflict=True)
    if seconds and load_tool(tool).shows[what].is_extra:
        text = _("%(tool)s records %(what)s by complete steps only. Leave the seconds out.")
        raise CaptureRefused("seconds", text % {"tool": tool, "what": what})


def _one_of(words: Sequence[str]) -> str:
    return _(" or ").join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def not_running(*, run_id: str) -> str:
    """Return why a run that is not running cannot be profiled, and what to do."""
    run = Run.objects.only("name", "state").get(pk=run_id)
    text = _("%(name)s is %(state)s. Only a running run can be profiled.")
    if run.state in ("queued", "starting"):
        text += " " + _("Try again once it trains.")
    return text % {"name": run.name, "state": run.state}


def chosen(
    *, among: Sequence[RecordableProcess], roles: Sequence[str], ranks: Sequence[int]
) -> list[RecordableProcess]:
    """Return the workers that are asked for. Raises: CaptureRefused naming what there is."""
    there = sorted({worker.role for worker in among})
    for role in roles:
        if role not in there:
            text = _("This run has no role %(given)r. Use %(allowed)s, or none for all.")
            raise CaptureRefused("roles", text % {"given": role[:20], "allowed": ", ".join(there)})
    matching = [worker for worker in among if not roles or worker.role in roles]
    for rank in ranks:
        if all(worker.rank != rank for worker in matching):
            highest = max((worker.rank for worker in matching), default=0)
            text = _("No chosen role has a rank %(given)s. Use 0 to %(most)s, or none for all.")
            raise CaptureRefused("ranks", text % {"given": rank, "most": highest})
    return [worker for worker in matching if not ranks or worker.rank in ranks]


def check_tool(*, tool: str, workers: Sequence[RecordableProcess], roles: Sequence[str]) -> None:
    """Refuse a tool that no chosen worker has, or that a role asked for by name lacks. Raises: CaptureRefused."""
    silent = [worker for worker in workers if tool not in worker.problems]
    if silent and load_tool(tool).must_tell:
        text = _("%(worker)s has not reported yet whether %(tool)s is available. Try again in a few seconds.")
        raise CaptureRefused("tool", text % {"worker": silent[0].name, "tool": tool}, is_conflict=True)
    lacking = [worker for worker in workers if worker.problems.get(tool)]
    able = {worker.role for worker in workers if worker not in lacking}
    lost = [worker for worker in lacking if worker.role not in able and (roles or not able)]
    if not lost:
        return  # where all are asked for, those that can are recorded, and the trainer says who could not
    said = cannot(tool, lost)
    if able:
        said += " " + _("Choose other roles: %(roles)s.") % {"roles": ", ".join(sorted(able))}
    raise CaptureRefused("tool", said, is_conflict=True)


def check_steps(*, run: Run, first_step: int, num_steps: int) -> None:
    """Refuse steps that are over or will never come. Step `run.step` + 1 is under way, or about to be.

    Raises: CaptureRefused.
    """
    under_way = run.step + 1
    if first_step and first_step <= run.step:
        text = _("Step %(first)s is over: %(done)s are done. Begin with step %(next)s or a later one.")
        about = {"first": first_step, "done": run.step, "next": under_way + 1}
        raise CaptureRefused("first_step", text % about, is_conflict=True)
    first = first_step or under_way + (1 if run.step else 0)
    left = run.num_steps - first + 1
    if not run.num_steps:
        return  # of another trainer, where the data decide
    if left <= 0:
        text = _("The run has %(total)s steps; none is left to record from step %(first)s on.")
        raise CaptureRefused("first_step", text % {"total": run.num_steps, "first": first}, is_conflict=True)
    if num_steps > left:
        text = ngettext(
            "The run has %(total)s steps; from step %(first)s on only %(left)s can be recorded.",
            "The run has %(total)s steps; from step %(first)s on only %(left)s can be recorded.",
            left,
        )
        raise CaptureRefused("num_steps", text % {"total": run.num_steps, "first": first, "left": left})


def check_overlap(*, waiting: Iterable[Capture], run: Run, first_step: int, num_steps: int) -> None:
    """Refuse steps that another capture records: a process takes one profiler at a time. The next step can wait.

    Raises: CaptureRefused.
    """
    for row in waiting:
        if not first_step or row.state not in ("armed", *BUSY):
            continue
        start = row.first_step or run.step + 1
        if first_step < start + row.num_steps and start < first_step + num_steps:
            text = _("%(id)s records steps %(first)s to %(last)s. Ask for other steps, or wait until it is written.")
            about = {"id": row.pk, "first": start, "last": start + row.num_steps - 1}
            raise CaptureRefused("first_step", text % about, is_conflict=True)


def check_by_time(*, waiting: Iterable[Capture]) -> None:
    """Refuse a capture by time while another records or is about to. Raises: CaptureRefused."""
    for row in waiting:
        if row.state in BUSY or (row.state == "armed" and row.seconds):
            text = _("%(id)s is %(state)s, and a process takes one profiler at a time. Record once it has ended.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)


def check_free_space(*, expected: int | None, free: int, on_cluster: int | None) -> None:
    """Refuse what the console's disk, or the fullest of the cluster's, cannot take. Raises: CaptureRefused."""
    if expected is None:
        return
    about = {"size": -(-expected // 2**20)}
    if expected > free:
        text = _(
            "Files of about %(size)s MiB are expected, and the console's disk has %(free)s MiB free. Record fewer "
            "steps or workers, or delete captures."
        )
        raise CaptureRefused("disk", text % {**about, "free": free // 2**20}, is_conflict=True)
    if on_cluster is not None and expected > on_cluster:
        text = _(
            "Files of about %(size)s MiB are expected, and a disk of run directories on the cluster has "
            "%(free)s MiB free. Record fewer steps or workers, or free some space there."
        )
        raise CaptureRefused("disk", text % {**about, "free": on_cluster // 2**20}, is_conflict=True)
