"""What a project tells the planner: the price of a device hour, its own values of constants, what its runs measured.

`Project.calibrations` holds, by the id of the accelerator that the runs were on ("cpu" for none), what was taken from
them (jobs.planning.calibration): it counts for plans on that kind of device alone.

    {"on": ISO date, "num_runs", "constants": {name: {"value", "num_runs", "before", "after"}}, "previous": the same}
"""

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.parse_spec import Problem
from jobs.catalog.sentence import told
from jobs.models import Project
from jobs.planner.constant import ConstantInvalid, Constants
from jobs.planner.constant import constants as shipped

MAX_PRICE = 10_000
"""Of one device hour, in any currency."""

MAX_CHANGES = 500
"""Of prices, and of constants, at once: several times what there is of either. Each unknown name is looked up."""

_CURRENCY = re.compile(r"[A-Z]{3}")


class PlanSettingsRefused(ValueError):
    """Nothing is changed; fields of `problems` are `currency`, `prices.<accelerator>` and `constants.<name>`."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(problem.message for problem in problems))


def prices_of(project: Project | None) -> dict[str, float]:
    """Return money per device hour by accelerator id, as far as the project says."""
    return {} if project is None else {name: float(entry["price"]) for name, entry in project.prices.items()}


def constants_of(project: Project | None, accelerator: str = "") -> Constants:
    """Return the planner's constants with the project's own values, and with what its runs measured on an accelerator.

    `accelerator`: the id of the kind that is planned for, "" for none in particular. A value whose constant is not
    known any more, or no longer takes it, is left out (`outdated` names the project's own).
    """
    if project is None:
        return shipped()
    gone = outdated(project.plan_constants)
    k = shipped().with_values({name: value for name, value in project.plan_constants.items() if name not in gone})
    for name, entry in measured_on(project, accelerator).items():
        source = _("measured on %(n)s finished runs of this project") % {"n": entry["num_runs"]}
        with contextlib.suppress(ConstantInvalid):
            k = k.measured({name: entry["value"]}, source)
    return k


def constants_without(project: Project, names: Collection[str]) -> Constants:
    """Return the constants with the project's own values, but `names` as shipped: what runs are held against."""
    own = {name: value for name, value in project.plan_constants.items() if name not in names}
    gone = outdated(own)
    return shipped().with_values({name: value for name, value in own.items() if name not in gone})


def measured_on(project: Project, accelerator: str) -> dict[str, dict[str, Any]]:
    """Return what was taken from runs on a kind of device: constant -> its value, from how many runs, with which error
    of runs left out before and after."""
    kept: dict[str, dict[str, Any]] = project.calibrations.get(accelerator, {}).get("constants", {})
    return kept


def keep_calibration(
    *,
    project: Project,
    accelerator: str,
    found: Mapping[str, Mapping[str, Any]],
    num_runs: int,
    actor: AbstractBaseUser,
    today: date,
) -> None:
    """Let plans for an accelerator use what its runs measured; what counted there before can be had back.

    `found`: as in measured_on. Constants that are not in it keep what was measured earlier.
    Raises: PlanSettingsRefused.
    """
    try:
        shipped().measured({name: entry["value"] for name, entry in found.items()}, "")
    except ConstantInvalid as invalid:
        raise PlanSettingsRefused([Problem(field=f"constants.{invalid.name}", message=told(invalid))]) from invalid

    def changed(kept: dict[str, Any] | None) -> dict[str, Any]:
        earlier = {name: value for name, value in (kept or {}).items() if name != "previous"}
        constants = {**earlier.get("constants", {}), **{name: dict(entry) for name, entry in found.items()}}
        return {
            "on": today.isoformat(),
            "num_runs": num_runs,
            "constants": constants,
            "previous": earlier or None,
        }

    _change_calibration(project, accelerator, changed, actor, "planner.calibrate")


def undo_calibration(*, project: Project, accelerator: str, actor: AbstractBaseUser) -> bool:
    """Take plans for an accelerator back to what they used before the last calibration; False if there is
    none."""
    if accelerator not in project.calibrations:
        return False

    def undone(kept: dict[str, Any] | None) -> dict[str, Any] | None:
        return {**kept["previous"], "previous": None} if kept and kept.get("previous") else None

    _change_calibration(project, accelerator, undone, actor, "planner.uncalibrate")
    return True


def _change_calibration(
    project: Project,
    accelerator: str,
    change: Callable[[dict[str, Any] | None], dict[str, Any] | None],
    actor: AbstractBaseUser,
    verb: str,
) -> None:
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        before = held.calibrations.pop(accelerator, None)
        after = change(before)
        if after is not None:
            held.calibrations[accelerator] = after
        held.save(update_fields=["calibrations"])
        told_of = ({accelerator: _values(kept)} for kept in (before, after))
        was, now = told_of
        record(actor=actor, verb=verb, object_type="project", object_id=project.slug, before=was, after=now)
    project.calibrations = held.calibrations


def _values(kept: Mapping[str, Any] | None) -> dict[str, float] | None:
    return None if kept is None else {name: entry["value"] for name, entry in kept["constants"].items()}


def outdated(own: Mapping[str, Any]) -> dict[str, str]:
    """Return which of a project's own values no longer hold, with a sentence for each."""
    found = {}
    for name, value in own.items():
        try:
            shipped().with_values({name: value})
        except ConstantInvalid as invalid:
            found[name] = told(invalid)
    return found


def change_settings(
    *,
    project: Project,
    currency: str | None = None,
    prices: Mapping[str, object] | None = None,
    constants: Mapping[str, object] | None = None,
    actor: AbstractBaseUser,
    today: date,
) -> None:
    """Change what a project tells the planner: all of it, or nothing.

    `prices`: money per device hour by any name of an accelerator; the day is kept with each, for prices age.
    `constants`: values by name. Values are numbers or their text; None forgets a price, and takes a constant back to
    what is shipped. Names that are stored may be forgotten also when nothing goes by them any more.
    Raises: PlanSettingsRefused.
    """
    problems: list[Problem] = []
    for field, asked in (("prices", prices), ("constants", constants)):
        if len(asked or {}) > MAX_CHANGES:
            text = _("%(n)s changes at once are too many. Send up to %(most)s.")
            problems.append(Problem(field=field, message=text % {"n": f"{len(asked or {}):,}", "most": MAX_CHANGES}))
    if problems:
        raise PlanSettingsRefused(problems)
    code = project.currency if currency is None else _currency(currency, problems)
    new_prices = _prices(prices or {}, project, today, problems)
    new_constants = _constants(constants or {}, project, problems)
    if problems:
        raise PlanSettingsRefused(problems)
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        if held.currency != code:
            before["currency"], after["currency"] = held.currency, code
            held.currency = code
        for field, changes in (("prices", new_prices), ("plan_constants", new_constants)):
            stored: dict[str, Any] = getattr(held, field)
            for name, value in changes.items():
                if stored.get(name) == value:
                    continue
                before.setdefault(field, {})[name] = stored.pop(name, None)
                after.setdefault(field, {})[name] = value
                if value is not None:
                    stored[name] = value
        for name, value in new_constants.items():
            if value is not None:  # what somebody sets counts everywhere, whatever runs had measured
                _forget_measured(held, name, before, after)
        if after:
            held.save(update_fields=["currency", "prices", "plan_constants", "calibrations"])
            slug = project.slug
            record(actor=actor, verb="planner.set", object_type="project", object_id=slug, before=before, after=after)
    for field in ("currency", "prices", "plan_constants", "calibrations"):
        setattr(project, field, getattr(held, field))


def _forget_measured(held: Project, name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Take a constant out of every calibration."""
    for accelerator, kept in list(held.calibrations.items()):
        entry = kept["constants"].pop(name, None)
        if entry is not None:
            before.setdefault("calibrations", {}).setdefault(accelerator, {})[name] = entry["value"]
            after.setdefault("calibrations", {}).setdefault(accelerator, {})[name] = None
        if not kept["constants"]:
            del held.calibrations[accelerator]


def _currency(given: str, problems: list[Problem]) -> str:
    code = given.strip().upper()
    if not _CURRENCY.fullmatch(code):
        text = _("%(given)r is no currency. Use three letters, as in USD, EUR or CNY.")
        problems.append(Problem(field="currency", message=text % {"given": given[:40]}))
    return code


def _prices(
    given: Mapping[str, object], project: Project, today: date, problems: list[Problem]
) -> dict[str, dict[str, Any] | None]:
    found: dict[str, dict[str, Any] | None] = {}
    for name, price in given.items():
        if price is None and name in project.prices:
            found[name] = None
            continue
        try:
            accelerator = find_accelerator(name)
        except LookupError as unknown:
            problems.append(Problem(field=f"prices.{name}", message=told(unknown)))
            continue
        value = None if price is None else _number(price)
        if price is not None and (value is None or not 0 <= value <= MAX_PRICE):
            text = _("%(given)s is not allowed for the price of a device hour. Use a number from 0 to %(most)s.")
            text = text % {"given": repr(price)[:60], "most": f"{MAX_PRICE:,}"}
            problems.append(Problem(field=f"prices.{name}", message=text))
        found[accelerator.id] = None if value is None else {"price": value, "on": today.isoformat()}
    return found


def _constants(given: Mapping[str, object], project: Project, problems: list[Problem]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, value in given.items():
        if value is None and name in project.plan_constants:
            found[name] = None
            continue
        number = _number(value)
        try:
            known = shipped().with_values(
                {name: str(value)[:40] if number is None else number} if value is not None else {}
            )
            is_own = value is not None and number != shipped().get(name).value
            found[name] = known[name] if is_own else None
        except KeyError:
            text = _("There is no constant %(name)s.") % {"name": repr(name)[:80]}
            problems.append(Problem(field=f"constants.{name}", message=text))
        except ConstantInvalid as invalid:
            problems.append(Problem(field=f"constants.{name}", message=told(invalid)))
    return found


def _number(given: object) -> float | None:
    """Return the number that was given or typed, None for anything else."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    try:
        value = float(given.strip().replace(",", ".") if isinstance(given, str) else given)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
