"""What a project tells the planner: the price of a device hour, its own values of constants, what its runs measured.

`Project.calibrations` holds, by the id of the accelerator that the runs were on ("cpu" for none), what was taken from
them (jobs.planning.calibration): it counts for plans on that kind of device alone.
"""

import contextlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import NotRequired, TypedDict

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.sentence import sentence_of
from jobs.catalog.spec.parse import Problem
from jobs.models import Project
from jobs.planner.constant import ConstantInvalid, Constants, shipped_constants
from profiling.counted import counted

MAX_PRICE = 10_000
"""Of one device hour, in any currency."""

MAX_CHANGES = 500
"""Of prices, and of constants, at once: several times what there is of either. Each unknown name is looked up."""

_CURRENCY = re.compile(r"[A-Z]{3}")


class Price(TypedDict):
    """Of a device hour, in the project's currency, and the ISO date on which somebody set it."""

    price: float
    on: str


class MeasuredConstant(TypedDict):
    """What runs say of a constant; `before` and `after`: the error of runs left out, with the old value and this."""

    value: float
    num_runs: int
    before: float | None
    after: float | None
    spread: NotRequired[float]


class StoredCalibration(TypedDict):
    """What was taken from runs on an ISO date, and what counted before that. `is_joined`: runs joined by themselves."""

    on: str
    num_runs: int
    constants: dict[str, MeasuredConstant]
    is_joined: NotRequired[bool]
    previous: NotRequired["StoredCalibration | None"]


class PlanSettingsRefused(ValueError):
    """Nothing is changed; fields of `problems` are `currency`, `prices.<accelerator>` and `constants.<name>`."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(problem.message for problem in problems))


def prices_of(project: Project | None) -> dict[str, float]:
    """Return money per device hour by accelerator id, as far as the project says."""
    return {} if project is None else {name: float(entry["price"]) for name, entry in project.prices.items()}


def currency_of(project: Project | None) -> str:
    """Return the currency of a project's prices."""
    return "USD" if project is None else project.currency


def constants_of(project: Project | None, accelerator: str = "", *, before: str = "") -> Constants:
    """Return the planner's constants with the project's own values, and with what its runs measured on an accelerator.

    `accelerator`: the id of the kind that is planned for, "" for none in particular; `before`: a run, for what was
    measured before it joined. A value whose constant is not known any more, or no longer takes it, is left out
    (`outdated` names the project's own).
    """
    if project is None:
        return shipped_constants()
    gone = outdated(project.plan_constants)
    constants = shipped_constants().with_values(
        {name: value for name, value in project.plan_constants.items() if name not in gone}
    )
    for name, entry in _measured_before(project, accelerator, before).items():
        source = counted(_("measured on %(n)s finished runs of this project") % {"n": entry["num_runs"]})
        with contextlib.suppress(ConstantInvalid):
            constants = constants.measured({name: entry["value"]}, source, entry.get("spread", 1.0))
    return constants


def constants_without(project: Project, names: Collection[str]) -> Constants:
    """Return the constants with the project's own values, but `names` as shipped: what runs are held against."""
    own = {name: value for name, value in project.plan_constants.items() if name not in names}
    gone = outdated(own)
    return shipped_constants().with_values({name: value for name, value in own.items() if name not in gone})


def measured_on(project: Project, accelerator: str) -> dict[str, MeasuredConstant]:
    """Return what was taken from runs on a kind of device, by constant."""
    constants: dict[str, MeasuredConstant] = project.calibrations.get(accelerator, {}).get("constants", {})
    return constants


def _measured_before(project: Project, accelerator: str, run: str) -> dict[str, MeasuredConstant]:
    """Return what was measured on a kind of device before a run joined; all of it where the run has not."""
    constants = dict(measured_on(project, accelerator))
    joined = project.joined_runs.get("joined", ())
    place = next((at for at, joining in enumerate(joined) if joining["run"] == run), -1)
    for joining in joined[: place + 1]:  # the newest first
        changed = joining["constants"] if joining["accelerator"] == accelerator else {}
        for name, change in changed.items():
            if (entry := constants.pop(name, None)) is not None and change["was"] is not None:
                constants[name] = {**entry, "value": change["was"], "spread": change.get("spread", 1.0)}
    return constants


def keep_calibration(
    *,
    project: Project,
    accelerator: str,
    measured: Mapping[str, MeasuredConstant],
    num_runs: int,
    actor: AbstractBaseUser,
    today: date,
) -> None:
    """Let plans for an accelerator use what its runs measured; what counted there before can be had back.

    Constants that are not in `measured` keep what was measured earlier.
    Raises: PlanSettingsRefused.
    """
    try:
        shipped_constants().measured({name: entry["value"] for name, entry in measured.items()}, "")
    except ConstantInvalid as invalid:
        raise PlanSettingsRefused(
            [Problem(field=f"constants.{invalid.name}", message=sentence_of(invalid))]
        ) from invalid

    def changed(stored: StoredCalibration | None) -> StoredCalibration:
        return {
            "on": today.isoformat(),
            "num_runs": num_runs,
            "constants": {**(stored["constants"] if stored else {}), **measured},
            "previous": without_previous(stored) if stored else None,
        }

    _change_calibration(project, accelerator, changed, actor, "planner.calibrate")


def undo_calibration(*, project: Project, accelerator: str, actor: AbstractBaseUser) -> bool:
    """Take plans for an accelerator back to what they used before the last calibration; False if there is none.

    Runs that joined it by themselves are one calibration; after that no run on the kind joins until people say so.
    """
    if accelerator not in project.calibrations:
        return False

    def undone(stored: StoredCalibration | None) -> StoredCalibration | None:
        earlier = stored.get("previous") if stored else None
        return {**without_previous(earlier), "previous": None} if earlier else None

    _change_calibration(project, accelerator, undone, actor, "planner.uncalibrate")
    return True


def _change_calibration(
    project: Project,
    accelerator: str,
    change: Callable[[StoredCalibration | None], StoredCalibration | None],
    actor: AbstractBaseUser,
    verb: str,
) -> None:
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        before = held.calibrations.pop(accelerator, None)
        after = change(before)
        if after is not None:
            held.calibrations[accelerator] = after
        log = held.joined_runs
        others = [each for each in log.get("paused", ()) if each != accelerator]
        undid = verb == "planner.uncalibrate" and before is not None and before.get("is_joined", False)
        held.joined_runs = {**log, "paused": [*others, accelerator] if undid else others}
        held.save(update_fields=["calibrations", "joined_runs"])
        told_of = ({accelerator: _values(stored)} for stored in (before, after))
        was, now = told_of
        record(actor=actor, verb=verb, object_type="project", object_id=project.slug, before=was, after=now)
    project.calibrations, project.joined_runs = held.calibrations, held.joined_runs


def without_previous(stored: StoredCalibration) -> StoredCalibration:
    """Return what was taken from runs, without what counted before that."""
    alone: StoredCalibration = {"on": stored["on"], "num_runs": stored["num_runs"], "constants": stored["constants"]}
    return {**alone, "is_joined": True} if stored.get("is_joined") else alone


def _values(stored: StoredCalibration | None) -> dict[str, float] | None:
    return None if stored is None else {name: entry["value"] for name, entry in stored["constants"].items()}


def outdated(own: Mapping[str, float]) -> dict[str, str]:
    """Return which of a project's own values no longer hold, with a sentence for each."""
    problems = {}
    for name, value in own.items():
        try:
            shipped_constants().with_values({name: value})
        except ConstantInvalid as invalid:
            problems[name] = sentence_of(invalid)
    return problems


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
    for field, changed in (("prices", prices), ("constants", constants)):
        if len(changed or {}) > MAX_CHANGES:
            text = _("%(n)s changes at once are too many. Send up to %(most)s.")
            problems.append(Problem(field=field, message=text % {"n": f"{len(changed or {}):,}", "most": MAX_CHANGES}))
    if problems:
        raise PlanSettingsRefused(problems)
    code = project.currency if currency is None else _currency(currency, problems)
    new_prices = _prices(prices or {}, project, today, problems)
    new_constants = _constants(constants or {}, project, problems)
    if problems:
        raise PlanSettingsRefused(problems)
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        before: dict[str, object] = {}
        after: dict[str, object] = {}
        if held.currency != code:
            before["currency"], after["currency"] = held.currency, code
            held.currency = code
        for field, changes in (("prices", new_prices), ("plan_constants", new_constants)):
            stored: dict[str, object] = getattr(held, field)
            now = {name: value for name, value in changes.items() if stored.get(name) != value}
            if now:
                before[field], after[field] = {name: stored.pop(name, None) for name in now}, now
                stored.update({name: value for name, value in now.items() if value is not None})
        # What somebody sets counts everywhere, whatever runs had measured.
        forgotten = _forget_measured(held, [name for name, value in new_constants.items() if value is not None])
        if forgotten:
            before["calibrations"] = forgotten
            after["calibrations"] = {accelerator: dict.fromkeys(values) for accelerator, values in forgotten.items()}
        if after:
            held.save(update_fields=["currency", "prices", "plan_constants", "calibrations"])
            slug = project.slug
            record(actor=actor, verb="planner.set", object_type="project", object_id=slug, before=before, after=after)
    for field in ("currency", "prices", "plan_constants", "calibrations"):
        setattr(project, field, getattr(held, field))


def _forget_measured(held: Project, names: Collection[str]) -> dict[str, dict[str, float]]:
    """Take constants out of every calibration, and return what they were: accelerator -> constant -> value."""
    forgotten: dict[str, dict[str, float]] = {}
    for accelerator, stored in list(held.calibrations.items()):
        values = {name: stored["constants"].pop(name)["value"] for name in names if name in stored["constants"]}
        if values:
            forgotten[accelerator] = values
        if names and not stored["constants"]:
            del held.calibrations[accelerator]
    return forgotten


def _currency(currency: str, problems: list[Problem]) -> str:
    code = currency.strip().upper()
    if not _CURRENCY.fullmatch(code):
        text = _("%(given)r is not a currency. Use three letters, as in USD, EUR or CNY.")
        problems.append(Problem(field="currency", message=text % {"given": currency[:40]}))
    return code


def _prices(
    texts: Mapping[str, object], project: Project, today: date, problems: list[Problem]
) -> dict[str, Price | None]:
    changes: dict[str, Price | None] = {}
    for name, price in texts.items():
        if price is None and name in project.prices:
            changes[name] = None
            continue
        try:
            accelerator = find_accelerator(name)
        except LookupError as unknown:
            problems.append(Problem(field=f"prices.{name}", message=sentence_of(unknown)))
            continue
        value = None if price is None else _number(price)
        if price is not None and (value is None or not 0 <= value <= MAX_PRICE):
            text = _("%(given)s is not allowed for the price of a device hour. Use a number from 0 to %(most)s.")
            text = text % {"given": repr(price)[:60], "most": f"{MAX_PRICE:,}"}
            problems.append(Problem(field=f"prices.{name}", message=text))
        changes[accelerator.id] = None if value is None else {"price": value, "on": today.isoformat()}
    return changes


def _constants(texts: Mapping[str, object], project: Project, problems: list[Problem]) -> dict[str, float | None]:
    changes: dict[str, float | None] = {}
    for name, value in texts.items():
        if value is None and name in project.plan_constants:
            changes[name] = None
            continue
        number = _number(value)
        try:
            shipped = shipped_constants().with_values(
                {name: str(value)[:40] if number is None else number} if value is not None else {}
            )
            is_own = value is not None and number != shipped_constants().get(name).value
            changes[name] = shipped.value(name) if is_own else None
        except KeyError:
            text = _("There is no constant %(name)s.") % {"name": repr(name)[:80]}
            problems.append(Problem(field=f"constants.{name}", message=text))
        except ConstantInvalid as invalid:
            problems.append(Problem(field=f"constants.{name}", message=sentence_of(invalid)))
    return changes


def _number(text: object) -> float | None:
    """Return the number that was given or typed, None for anything else."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        return None
    try:
        value = float(text.strip().replace(",", ".") if isinstance(text, str) else text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
