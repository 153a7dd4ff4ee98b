"""What people can ask of a run: its workers, and what can be seen of them with which tool and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Attempt, Run, RunEvent
from profiling.config import WHATS, Device, What
from profiling.recorders.recorder import (
    ToolSelection,
    candidates,
    device_of,
    lacking_of,
    load_tool,
    seen_in,
    select_tool,
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
