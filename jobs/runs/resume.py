"""Start an ended run again: from a checkpoint, or from the start; as it was, or with other hardware or more steps."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.privilege import check_privileged
from jobs.captures import captures
from jobs.catalog.knob import knobs
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json
from jobs.catalog.value import value_text
from jobs.models import ENDED, Attempt, Run
from jobs.runs import lifecycle
from jobs.runs.admission import CLEANUP_TIME, demand
from jobs.runs.checkpoints import Checkpoint, list_checkpoints
from jobs.runs.launch import submission_id
from jobs.telemetry import history
from jobs.telemetry.attempt_spec import Overrides, changed_knobs, difference, merged, overrides_by_now
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import SeriesWindow
from profiling.counted import counted
from profiling.events import Number, encode_number

_LOOK_BACK_STEPS = 10_000  # how far before the restored step a metric's newest value is looked for


class ResumeRefused(ValueError):
    """The run cannot start again like this; `field` says what is wrong, `is_conflict` that the run's state is.

    `needs_admin`: an admin of the project could start it.
    """

    def __init__(self, field: str, message: str, *, is_conflict: bool = False, needs_admin: bool = False) -> None:
        self.field, self.is_conflict, self.needs_admin = field, is_conflict, needs_admin
        super().__init__(message)


def resume_run(
    *,
    run_id: str,
    step: int | None,
    hardware: Mapping[str, object],
    user: AbstractBaseUser | None,
    now: datetime,
    attempt: int | None = None,
    num_steps: int | None = None,
) -> Attempt:
    """Queue a new attempt from the checkpoint of `step` (None: from the start), and return it.

    Where several attempts saved that step, `attempt` chooses; else the one in the run's history, or the newest. What
    `hardware` and `num_steps` (knob train.num_steps) leave out stays as in the latest attempt.
    Raises: ResumeRefused with a sentence; Run.DoesNotExist.
    """
    run = Run.objects.get(pk=run_id)
    latest = Attempt.objects.get(run=run, number=run.latest_attempt)
    _check_ended(run, latest, now)
    is_finished = run.state == "finished"
    origin = None if step is None else _chosen(run, step, attempt)
    overrides = _overrides(run, latest, hardware, num_steps)
    spec, overrides = _checked(run, overrides)
    # One that died after its last step, while it exported the model, has that left to do.
    # Where the data decide how many steps there are, nobody knows.
    is_over = spec.num_steps < origin.step or (spec.num_steps == origin.step and is_finished) if origin else False
    if origin is not None and spec.num_steps and is_over:
        raise ResumeRefused("num_steps" if num_steps is not None else "step", _nothing_left(spec, origin))
    # English, like every word of the history: people of several languages read it.
    text = (f"Resumed from checkpoint {step}" if origin else "Restarted from the start") + _kept(latest)
    begun = begin(run, latest, origin, overrides, spec, text=text, user=user, now=now)
    if begun is None:
        run.refresh_from_db()
        raise ResumeRefused("state", _on_its_way(run), is_conflict=True)
    return begun


def queue_again(*, run_id: str, user: AbstractBaseUser | None, now: datetime) -> Attempt:
    """Queue a run that left the queue before it started once more, as that attempt would have begun, and return it.

    Raises: ResumeRefused with a sentence; Run.DoesNotExist.
    """
    run = Run.objects.get(pk=run_id)
    latest = Attempt.objects.get(run=run, number=run.latest_attempt)
    _check_ended(run, latest, now)
    if run.state != "stopped" or latest.submitted_at is not None:
        text = _("%(name)s did not leave the queue before it started. Resume it from a checkpoint, or from the start.")
        raise ResumeRefused("state", text % {"name": run.name}, is_conflict=True)
    origin = None if latest.resume_attempt is None else _chosen(run, latest.resume_step, latest.resume_attempt)
    spec, overrides = _checked(run, _overrides(run, latest, {}, None))
    begun = begin(run, latest, origin, overrides, spec, text="Queued again", user=user, now=now)
    if begun is None:
        run.refresh_from_db()
        raise ResumeRefused("state", _on_its_way(run), is_conflict=True)
    return begun


def _kept(latest: Attempt) -> str:
    """Say which knobs keep the value that people gave them while the attempt trained; "" if there are none."""
    changed: Mapping[str, Any] = changed_knobs([latest.run_id]).get((latest.run_id, latest.number), {})
    texts = [f"{knobs()[knob_id].label} {value_text(chosen['value'])}" for knob_id, chosen in changed.items()]
    return f", with {', '.join(texts)} as changed while it trained" if texts else ""


def resumed_spec(*, run_id: str, hardware: Mapping[str, object], num_steps: int | None = None) -> RunSpec:
    """Return the spec that an attempt resumed like this would run. Raises: ResumeRefused; Run.DoesNotExist."""
    run = Run.objects.get(pk=run_id)
    latest = Attempt.objects.get(run=run, number=run.latest_attempt)
    return _checked(run, _overrides(run, latest, hardware, num_steps))[0]


def begin(
    run: Run,
    latest: Attempt,
    origin: Checkpoint | None,
    overrides: Overrides,
    spec: RunSpec,
    *,
    text: str,
    user: AbstractBaseUser | None,
    now: datetime,
    not_before: datetime | None = None,
) -> Attempt | None:
    """Queue the attempt that follows `latest`; None if another came first. With `not_before` it is a retry.

    A retry needs no less than a resume: it goes on in the name of `user` too, who last started the run by hand.
    Raises: ResumeRefused if `user` may not start such a run.
    """
    if refused := check_privileged(spec, run.project, user):
        raise ResumeRefused(refused[0].field, " ".join(problem.message for problem in refused), needs_admin=True)
    resume = (origin.attempt, origin.step) if origin else None
    cpus, gpus = demand(spec, device="cpu" if spec.hardware.device == "auto" else spec.hardware.device)
    new = lifecycle.NewAttempt(
        after=latest.number,
        resume=resume,
        overrides=overrides,
        num_steps=spec.num_steps,
        latest_values=_values_at(run, origin),
        submission_id=submission_id(run.pk, latest.number + 1),
        num_cpus=cpus,
        num_gpus=gpus,
        text=text,
        is_automatic=not_before is not None,
        not_before=not_before,
    )
    with transaction.atomic():
        author = user if not_before is None else None
        attempt = lifecycle.begin_attempt(run_id=run.pk, new=new, user=author, now=now)
        if attempt is not None:
            captures.arm_at_launch(attempt=attempt, spec=spec, now=now)
    return attempt


def cleanup_left(attempt: Attempt, *, now: datetime) -> timedelta:
    """Return how long an ended attempt may still be cleaned up after; zero once nothing of it runs on.

    The next attempt waits for it: two never train at once, and what the old one had not reported yet still comes in.
    """
    if attempt.submitted_at is None or attempt.ended_at is None:
        return timedelta()
    if attempt.cleanup and not attempt.cleanup.get("processes_left"):
        return timedelta()
    return max(attempt.ended_at + CLEANUP_TIME - now, timedelta())


def _check_ended(run: Run, latest: Attempt, now: datetime) -> None:
    if run.state not in ENDED:
        raise ResumeRefused("state", _on_its_way(run), is_conflict=True)
    if run.trashed_at is not None:
        text = _("%(name)s is in the trash. Restore it, then resume it.")
        raise ResumeRefused("state", text % {"name": run.name}, is_conflict=True)
    if run.archived_at is not None:
        text = _("%(name)s is archived. Take it out of the archive, then resume it.")
        raise ResumeRefused("state", text % {"name": run.name}, is_conflict=True)
    left = cleanup_left(latest, now=now)
    if left:
        text = _("What is left of attempt %(number)s is being cleaned up. Try again in %(seconds)s s at most.")
        about = {"number": latest.number, "seconds": max(1, round(left.total_seconds()))}
        raise ResumeRefused("state", text % about, is_conflict=True)


def _on_its_way(run: Run) -> str:
    text = _("%(name)s is %(state)s: attempt %(number)s is under way. Only a run that has ended can be resumed.")
    return text % {"name": run.name, "state": run.state, "number": run.latest_attempt}


def _chosen(run: Run, step: int, attempt: int | None) -> Checkpoint:
    there = list_checkpoints(run, with_scores=False)
    fitting = [c for c in there if c.step == step and attempt in (None, c.attempt)]
    if fitting:  # one believed lost may be asked for: its node may be back
        return next((c for c in fitting if not c.problem), fitting[0])
    if not there:
        text = _("There is no checkpoint of step %(step)s, nor any other. Restart from the start, or clone the run.")
        raise ResumeRefused("step", text % {"step": step})
    listed = ", ".join(str(s) for s in sorted({c.step for c in there}, reverse=True)[:12])
    if attempt is not None:
        text = _("Attempt %(attempt)s has no checkpoint of step %(step)s. There are checkpoints of steps %(listed)s.")
        raise ResumeRefused("step", text % {"attempt": attempt, "step": step, "listed": listed})
    text = _("There is no checkpoint of step %(step)s. Use one of %(listed)s, or restart from the start.")
    raise ResumeRefused("step", text % {"step": step, "listed": listed})


def _overrides(
    run: Run, latest: Attempt, hardware: Mapping[str, object], num_steps: int | None
) -> dict[str, dict[str, object]]:
    """Return what the attempt changes of the run's spec: what the latest one did, and what is asked for now."""
    wanted = overrides_by_now(latest)
    if hardware:
        wanted["hardware"] = {**wanted.get("hardware", {}), **hardware}
    if num_steps is not None:
        before = run.spec.get("knobs", {}).get("train.num_steps", {})
        is_as_before = before.get("value") == num_steps and not isinstance(num_steps, bool)
        chosen = before if is_as_before else {"value": num_steps, "origin": "you"}
        wanted["knobs"] = {**wanted.get("knobs", {}), "train.num_steps": chosen}
    return difference(run.spec, wanted)


def _checked(run: Run, overrides: Overrides) -> tuple[RunSpec, dict[str, dict[str, object]]]:
    """Return the spec that comes of the overrides, and these with the values that the validator made of theirs.

    A capture asked for at launch that fits no more (its rank is gone) is not asked for again.
    """
    try:
        spec = parse_spec(merged(run.spec, overrides))
    except SpecInvalid as error:
        if "profile" not in overrides and all(p.field.startswith("profile.") for p in error.problems):
            return _checked(run, {**overrides, "profile": {"what": "none", "tool": "none"}})
        raise _refusal(error) from error
    whole = to_json(spec)
    return spec, {section: {name: whole[section][name] for name in fields} for section, fields in overrides.items()}


def _refusal(error: SpecInvalid) -> ResumeRefused:
    first = error.problems[0]
    field = {"knobs.train.num_steps": "num_steps"}.get(first.field, first.field)
    if field.startswith(("hardware.", "num_steps")):
        return ResumeRefused(field, in_words(first.message, _))
    text = _("%(why)s A resume changes hardware and the number of steps only; for the rest, clone the run.")
    return ResumeRefused(field, text % {"why": in_words(first.message, _)})


def _nothing_left(spec: RunSpec, origin: Checkpoint) -> str:
    text = _(
        "The checkpoint of step %(step)s is the end of %(num)s steps: nothing is left to train. "
        "Ask for more than %(step)s steps, or pick an earlier checkpoint."
    )
    return counted(text % {"step": origin.step, "num": spec.num_steps})


def _values_at(run: Run, origin: Checkpoint | None) -> dict[str, Number]:
    """Return what the metrics of the run's row were at the checkpoint, so that no value of the dead branch stays."""
    if origin is None or not run.latest_values:
        return {}
    began = history.origins(Attempt.objects.filter(run=run)) | {run.latest_attempt + 1: (origin.attempt, origin.step)}
    answer = read_clean(
        run_id=run.pk,
        names=list(run.latest_values),
        num_points=8,
        window=SeriesWindow(low=origin.step - _LOOK_BACK_STEPS, high=origin.step),
        through=history.limits(began),
    )
    values = {s.name: encode_number(float(s.y[-1])) for s in answer.series if s.kind == "metric" and s.role == "driver"}
    return {name: values[name] for name in run.latest_values if name in values}
