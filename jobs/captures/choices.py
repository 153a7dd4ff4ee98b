"""What people can ask a capture to show, which tool that takes on these workers, and why: in sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.captures.profilers import Worker, cannot, names
from jobs.models import Attempt, Run
from profiling.captures.tool_selection import Pick, candidates, device_of, lacking_of, pick, seen_in, without
from profiling.config import WHATS, Device, What
from profiling.recorders.recorder import load_tool

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


def device_for(run: Run, *, attempt: int, workers: Sequence[Worker]) -> Device:
    """Return which device the workers of an attempt compute on, as they tell, or else as the attempt was placed."""
    has_gpus = Attempt.objects.filter(run=run, number=attempt, num_gpus__gt=0).exists()
    return device_of([worker.problems for worker in workers], planned="cuda" if has_gpus else "cpu")


def choices(*, device: Device, workers: Sequence[Worker]) -> list[Choice]:
    """Return what can be asked of these workers, each with the tool that records it."""
    return [choice(what, device=device, workers=workers) for what in WHATS]


def choice(what: What, *, device: Device, workers: Sequence[Worker]) -> Choice:
    """Return which tool records `what` on these workers, and why it is the one."""
    by_name = {worker.name: worker for worker in workers}
    found = pick(what, device=device, workers={name: worker.problems for name, worker in by_name.items()})
    tool = found.tool
    return Choice(
        what=what,
        recorded=found.recorded,
        tool=tool,
        why=_why(found, by_name) if tool else "",
        problem="" if tool else _problem(found, by_name),
        tools=tuple(_named(name, found, by_name) for name in candidates(found.recorded, device)),
    )


def _named(tool: str, found: Pick, by_name: Mapping[str, Worker]) -> ToolChoice:
    lacking = lacking_of(tool, {name: worker.problems for name, worker in by_name.items()})
    seen = seen_in(tool, found.recorded, device=found.device)
    is_lost = bool(lacking) and len(lacking) == len(by_name)
    return ToolChoice(
        name=tool,
        about=_(load_tool(tool).about),
        also=tuple(what for what in seen if what != found.recorded),
        without=without(device=found.device, seen=seen),
        by_steps=load_tool(tool).shows[found.recorded].is_extra,
        num_able=len(by_name) - len(lacking),
        problem=cannot(tool, [by_name[name] for name in lacking]) if is_lost else "",
    )


def _why(found: Pick, by_name: Mapping[str, Worker]) -> str:
    """Say why this tool: what it is good at, on whom it is ready, who would have come first, what is not there."""
    shown = load_tool(found.tool).shows[found.recorded]
    words = {"tool": found.tool, "because": _(shown.because), "where": _where(found, by_name)}
    if all(by_name[name].problems for name in found.able) and found.able:
        said = [_("%(tool)s, because it is ready on %(where)s and %(because)s.") % words]
    else:
        said = [_("%(tool)s, because it %(because)s. The workers have not told yet what they have.") % words]
    for other in found.passed:
        text = _("%(tool)s would come first, but is not ready on %(workers)s.")
        lacking = names(by_name[name] for name in other.lacking)
        said.append(text % {"tool": other.tool, "workers": lacking})
    if found.recorded != found.what:
        text = _("On %(device)s there are no %(what)s: %(recorded)s are recorded instead.")
        said.insert(1, text % {"device": _DEVICES[found.device], "what": found.what, "recorded": found.recorded})
    return " ".join(said)


def _where(found: Pick, by_name: Mapping[str, Worker]) -> str:
    total = len(by_name)
    if not found.lacking:
        return _("the worker") if total == 1 else _("all %(n)s workers") % {"n": total}
    lacking = names(by_name[name] for name in found.lacking)
    words = {"n": len(found.able), "of": total, "workers": lacking}
    return _("%(n)s of %(of)s workers (not on %(workers)s)") % words


def _problem(found: Pick, by_name: Mapping[str, Worker]) -> str:
    if not found.passed:
        text = _("No tool shows %(what)s on %(device)s. Peaks of memory are told for each phase all the same.")
        if found.what != "memory":
            text = _("No tool shows %(what)s on %(device)s.")
        return text % {"what": found.what, "device": _DEVICES[found.device]}
    return " ".join(cannot(other.tool, [by_name[name] for name in other.lacking]) for other in found.passed)
