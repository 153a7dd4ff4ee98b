"""What stands against a capture that somebody asks for, in a sentence: its shape, its workers, its tool, its steps."""

from collections.abc import Iterable, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from jobs.catalog.trainer import trainers
from jobs.models import Capture, Run
from jobs.profilers import Worker, names
from profiling.config import MAX_FIRST_STEP, MAX_SECONDS, MAX_STEPS, TOOLS


class CaptureRefused(ValueError):
    """The capture cannot be had; `field` says which part of the request is wrong, `is_conflict` that the state is."""

    def __init__(self, field: str, message: str, *, is_conflict: bool = False) -> None:
        self.field, self.is_conflict = field, is_conflict
        super().__init__(message)


def check_shape(*, tool: str, first_step: int, num_steps: int, seconds: float = 0) -> None:
    """Refuse what no run could record. Raises: CaptureRefused."""
    if tool not in TOOLS:
        text = _("%(given)r is no profiler that can be asked for. Use %(allowed)s.")
        raise CaptureRefused(
            "tool", text % {"given": tool[:40], "allowed": _(" or ").join((", ".join(TOOLS[:-1]), TOOLS[-1]))}
        )
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
        text = _("%(given)s is no step to begin with. Use the number of a step to come, or 0 for the next one.")
        raise CaptureRefused("first_step", text % {"given": first_step})


def not_running(*, run_id: str) -> str:
    """Return why a run that is not running cannot be profiled, and what to do."""
    run = Run.objects.only("name", "state").get(pk=run_id)
    text = _("%(name)s is %(state)s. Only a running run can be profiled.")
    if run.state in ("queued", "starting"):
        text += " " + _("Ask again once it trains.")
    return text % {"name": run.name, "state": run.state}


def check_trainer(*, run: Run) -> None:
    """Refuse for other trainers, which look for no commands. Raises: CaptureRefused."""
    trainer = trainers()[run.spec.get("trainer", {}).get("name") or "native"]
    if trainer.package:
        text = _(
            "%(label)s takes no commands while it trains. What it can record itself is chosen before the launch, by "
            "the knobs of the group profiling."
        )
        raise CaptureRefused("tool", text % {"label": trainer.label}, is_conflict=True)


def chosen(*, known: Sequence[Worker], roles: Sequence[str], ranks: Sequence[int]) -> list[Worker]:
    """Return the workers that are asked for. Raises: CaptureRefused naming what there is."""
    there = sorted({worker.role for worker in known})
    for role in roles:
        if role not in there:
            text = _("This run has no role %(given)r. Use %(allowed)s, or none for all.")
            raise CaptureRefused("roles", text % {"given": role[:20], "allowed": ", ".join(there)})
    mine = [worker for worker in known if not roles or worker.role in roles]
    for rank in ranks:
        if all(worker.rank != rank for worker in mine):
            highest = max((worker.rank for worker in mine), default=0)
            text = _("No chosen role has a rank %(given)s. Use 0 to %(most)s, or none for all.")
            raise CaptureRefused("ranks", text % {"given": rank, "most": highest})
    return [worker for worker in mine if not ranks or worker.rank in ranks]


def check_tool(*, tool: str, workers: Sequence[Worker], roles: Sequence[str]) -> None:
    """Refuse a tool that no chosen worker has, or that a role asked for by name lacks. Raises: CaptureRefused."""
    silent = [worker for worker in workers if tool not in worker.problems]
    if silent and tool == "nsys":
        text = _("%(worker)s has not told yet whether nsys can record it. Ask again in a moment.")
        raise CaptureRefused("tool", text % {"worker": silent[0].name}, is_conflict=True)
    lacking = [worker for worker in workers if worker.problems.get(tool)]
    able = {worker.role for worker in workers if worker not in lacking}
    lost = [worker for worker in lacking if worker.role not in able and (roles or not able)]
    if not lost:
        return  # where all are asked for, those that can are recorded, and the trainer says who could not
    by_reason: dict[str, list[Worker]] = {}
    for worker in lost:
        by_reason.setdefault(worker.problems[tool], []).append(worker)
    text = _("%(tool)s cannot record %(worker)s: %(why)s")
    said = " ".join(text % {"tool": tool, "worker": names(who), "why": why} for why, who in by_reason.items())
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
        if not first_step or row.state not in ("armed", "recording", "stopping"):
            continue
        start = row.first_step or run.step + 1
        if first_step < start + row.num_steps and start < first_step + num_steps:
            text = _("%(id)s records steps %(first)s to %(last)s. Ask for other steps, or wait until it is written.")
            about = {"id": row.pk, "first": start, "last": start + row.num_steps - 1}
            raise CaptureRefused("first_step", text % about, is_conflict=True)


def check_by_time(*, waiting: Iterable[Capture]) -> None:
    """Refuse a capture by time while another records or is about to. Raises: CaptureRefused."""
    for row in waiting:
        if row.state in ("recording", "stopping") or (row.state == "armed" and row.seconds):
            text = _("%(id)s is %(state)s, and a process takes one profiler at a time. Record once it has ended.")
            raise CaptureRefused("state", text % {"id": row.pk, "state": row.state}, is_conflict=True)


def check_room(*, expected: int | None, free: int) -> None:
    """Refuse a capture that the console's disk cannot take. Raises: CaptureRefused."""
    if expected is not None and expected > free:
        text = _(
            "Files of about %(size)s MiB are expected, and the console's disk has room for %(free)s MiB. Record fewer "
            "steps or workers, or delete captures."
        )
        about = {"size": -(-expected // 2**20), "free": free // 2**20}
        raise CaptureRefused("disk", text % about, is_conflict=True)
