"""Change knobs of a run while it trains: ask for it, and what has become of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.role import roles_of
from jobs.catalog.rules.rule import refused
from jobs.catalog.sentence import in_words
from jobs.catalog.spec.live_change import changed_spec, differing_values, live_knobs
from jobs.catalog.spec.parse import Problem, SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value, value_text
from jobs.models import Attempt, Command, Run, RunEvent
from jobs.runs.annotate import ChangeRefused
from jobs.telemetry.attempt_spec import CHANGED, latest_spec_json, spec_json
from jobs.telemetry.history import is_visible, visible_through
from jobs.telemetry.notify import run_changed

CHANGEABLE = ("starting", "running")
"""The states in which a run takes changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveKnob:
    """A knob that can change: its `value` now, the `pending` one, which the trainer has not taken yet (None: none), and
    what is `allowed`, in words.
    """

    id: str
    label: str
    type: str
    unit: str
    value: Value
    pending: Value
    allowed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveChange:
    """A knob was changed: `step` of `attempt` was the first with the new value. `is_visible` is False where that step
    is in a dead branch; the value holds all the same.
    """

    knob: str
    label: str
    old: Value
    new: Value
    step: int
    attempt: int
    by: str
    at: datetime
    is_visible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """The knobs that can change now, or the `problem` why none can; all changes so far, oldest first; and the sentence
    by which the trainer `refused` the last request, "" if it did not.
    """

    knobs: tuple[LiveKnob, ...]
    changes: tuple[LiveChange, ...]
    problem: str
    refused: str


def live_settings(run: Run) -> LiveSettings:
    """Return what can be changed of the run now, and what was."""
    spec = parse_spec(latest_spec_json(run))
    problem = _problem(run, spec)
    events = list(RunEvent.objects.filter(run=run, verb=CHANGED).select_related("actor").order_by("pk"))
    pending = {} if problem else _pending(run, events)
    live = {} if problem else live_knobs(spec)
    return LiveSettings(
        knobs=tuple(_live_knob(spec, knob, pending.get(knob_id)) for knob_id, knob in live.items()),
        changes=changes_in(events, visible_through(run.pk)),
        problem=problem,
        refused=str(events[-1].data.get("refused", "")) if events and events[-1].attempt == run.latest_attempt else "",
    )


def change_knobs(
    *, run_id: str, wanted: Mapping[str, object], user: AbstractBaseUser | None, now: datetime
) -> Mapping[str, tuple[Value, Value]]:
    """Ask the trainer of a run to go on with other knobs; it takes them between two steps. Return id -> (old, new).

    Nothing is asked for, and {} returned, if all of it is so already or was asked for. Raises: ChangeRefused.
    """
    with transaction.atomic():
        run = Run.objects.select_for_update(of=("self",)).get(pk=run_id)
        attempt = Attempt.objects.get(run=run, number=run.latest_attempt)
        before = parse_spec(latest_spec_json(run))
        if problem := _problem(run, before):
            raise ChangeRefused("state", problem, is_conflict=run.state not in CHANGEABLE)
        if not wanted:
            text = _("Name a knob and its value. These can change: %(ids)s.")
            raise ChangeRefused("knobs", text % {"ids": ", ".join(live_knobs(before))})
        events = list(RunEvent.objects.filter(run=run, verb=CHANGED).order_by("pk"))
        expected = _checked(before, _pending(run, events), attempt)
        after = _checked(expected, wanted, attempt)
        differing = {k: (old.value, new.value) for k, (old, new) in differing_values(expected, after).items()}
        if differing:
            _ask(run, attempt, differing, user, now)
    return differing


def _ask(
    run: Run,
    attempt: Attempt,
    differing: Mapping[str, tuple[Value, Value]],
    user: AbstractBaseUser | None,
    now: datetime,
) -> None:
    actor_id = user.pk if user else None
    values = {knob_id: new for knob_id, (_old, new) in differing.items()}
    attempt.commands.create(verb="set", payload={"knobs": values}, created_by_id=actor_id, created_at=now)
    texts = [f"{knobs()[k].label} {value_text(old)} → {value_text(new)}" for k, (old, new) in differing.items()]
    text = f"Asked for {', '.join(texts)}"
    RunEvent.objects.create(
        run=run, attempt=attempt.number, at=now, verb="set", text=text[:500], actor_id=actor_id, data={"knobs": values}
    )
    record(
        actor=user,
        verb="run.set",
        object_type="run",
        object_id=run.pk,
        before={knob_id: old for knob_id, (old, _new) in differing.items()},
        after=values,
    )
    transaction.on_commit(partial(run_changed, run.pk))


def _checked(spec: RunSpec, wanted: Mapping[str, object], attempt: Attempt) -> RunSpec:
    """Return the changed spec. Raises: ChangeRefused with the first sentence against it, also of a rule."""
    started = parse_spec(spec_json(attempt))
    try:
        after = changed_spec(spec, wanted, roles={role.id for role in roles_of(started)})
    except SpecInvalid as error:
        raise _refusal(error.problems[0]) from error
    before = {problem.field for problem in refused(spec, say=_)}
    for problem in refused(after, say=_):
        if problem.field not in before:
            raise _refusal(problem)
    return after


def _refusal(problem: Problem) -> ChangeRefused:
    return ChangeRefused(problem.field, in_words(problem.message, _))


def _problem(run: Run, spec: RunSpec) -> str:
    """Return why no knob of the run can change now; "" if some can."""
    if run.state not in CHANGEABLE:
        text = _("%(name)s is %(state)s. Only a running run takes changes; clone it to run with other values.")
        return text % {"name": run.name, "state": run.state}
    if not live_knobs(spec):
        return _("The trainer of this run takes no changes while it trains. Clone it to run with other values.")
    return ""


def _pending(run: Run, events: Sequence[RunEvent]) -> dict[str, Any]:
    """Return the knobs that the trainer of the latest attempt was asked for and has not answered yet."""
    answered = {event.data.get("command") for event in events}
    commands = Command.objects.filter(attempt__run=run, attempt__number=run.latest_attempt, verb="set").order_by("pk")
    waiting: dict[str, Any] = {}
    for command in commands:
        if command.pk not in answered and "error" not in command.answer:
            waiting.update(command.payload["knobs"])
    return waiting


def _live_knob(spec: RunSpec, knob: Knob, pending: Value) -> LiveKnob:
    return LiveKnob(
        id=knob.id,
        label=_(knob.label),
        type=knob.type,
        unit=_(knob.unit) if knob.unit else "",
        value=spec.knob(knob.id),
        pending=pending,
        allowed=in_words(knob.allowed(), _),
    )


def changes_in(events: Sequence[RunEvent], through: Mapping[int, int | None]) -> tuple[LiveChange, ...]:
    """Return the changes that events of one run tell; `through`: what history.visible_through says of it."""
    return tuple(
        LiveChange(
            knob=change["knob"],
            label=_(knobs()[change["knob"]].label),
            old=change["old"],
            new=change["new"],
            step=event.step or 0,
            attempt=event.attempt,
            by=event.actor.get_username() if event.actor else "",
            at=event.at,
            is_visible=is_visible(event.step or 0, through.get(event.attempt, -1)),
        )
        for event in events
        for change in event.data["changes"]
        if change["knob"] in knobs()
    )
