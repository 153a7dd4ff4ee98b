"""What stands against a request for a capture, in a sentence."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.captures.choices import USUAL, RecordableProcess, cannot, choice
from jobs.catalog.trainer import BUILT_IN
from jobs.models import Capture, Run
from profiling.captures.capture import BUSY
from profiling.config import MAX_FIRST_STEP, MAX_SECONDS, MAX_STEPS, TOOLS, WHATS, Device, What
from profiling.recorders.recorder import (
    INSTEAD,
    load_tool,
    shown_by,
)


class CaptureRefused(ValueError):
    """The capture cannot be had; `field` says which part of the request is wrong, `is_conflict` that the state is."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field, self.is_conflict = field, is_conflict
        super().__init__(message)


def resolved(
    what: What | None, tool: str, *, run: Run, device: Device, workers: Sequence[RecordableProcess], seconds: float
) -> tuple[What, str]:
    """Return what is to be seen and with which tool, where one of the two or none was said. Raises: CaptureRefused."""
    trainer = run.spec.get("trainer", {}).get("name") or BUILT_IN
    about: Any = {"device": device, "seconds": seconds, "is_beside": trainer != BUILT_IN}
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
