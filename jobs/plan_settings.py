"""What a project tells the planner: the price of a device hour, and its own values of the planner's constants."""

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.audit import record
from jobs.catalog.accelerator import find_accelerator
from jobs.models import Project
from jobs.planner.constant import ConstantInvalid, Constants, constants

MAX_PRICE = 10_000.0
"""Of one device hour, in any currency."""

_CURRENCY = re.compile(r"[A-Z]{3}")


class PlanSettingRefused(ValueError):
    """The setting is not taken; `field` names what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


def prices_of(project: Project | None) -> dict[str, float]:
    """Return money per device hour by accelerator id, as far as the project says."""
    return {} if project is None else {name: float(entry["price"]) for name, entry in project.prices.items()}


def constants_of(project: Project | None) -> Constants:
    """Return the planner's constants with the project's own values.

    One that is not known any more, or whose range no longer holds the value, is as shipped (`outdated` names it).
    """
    own = project.plan_constants if project is not None else {}
    gone = outdated(own)
    return constants().with_values({name: value for name, value in own.items() if name not in gone})


def outdated(own: Mapping[str, Any]) -> dict[str, str]:
    """Return which of a project's own values no longer hold, with a sentence for each."""
    found = {}
    for name, value in own.items():
        try:
            constants().with_values({name: value})
        except ConstantInvalid as invalid:
            found[name] = str(invalid)
    return found


def set_price(*, project: Project, accelerator: str, price: str, actor: AbstractBaseUser, today: date) -> str:
    """Set what an hour of one device costs in the project's currency, and return the accelerator's id.

    The day is kept with it, for prices age. Raises: PlanSettingRefused.
    """
    try:
        kind = find_accelerator(accelerator.strip())
    except LookupError as unknown:
        raise PlanSettingRefused("accelerator", str(unknown)) from unknown
    value = _number(price)
    if value is None or not 0 <= value <= MAX_PRICE:
        text = _("%(given)r is no price of a device hour. Use a number from 0 to %(most)s, as in 2.49.")
        raise PlanSettingRefused("price", text % {"given": price[:40], "most": f"{MAX_PRICE:,.0f}"})
    _change(project, "prices", {kind.id: {"price": value, "on": today.isoformat()}}, actor, verb="price.set")
    return kind.id


def remove_price(*, project: Project, accelerator: str, actor: AbstractBaseUser) -> None:
    """Forget the price of an accelerator, which may be one that is not known any more. Raises: PlanSettingRefused."""
    if accelerator not in project.prices:
        text = _("This project has no price of %(given)r.") % {"given": accelerator[:80]}
        raise PlanSettingRefused("accelerator", text)
    _change(project, "prices", {accelerator: None}, actor, verb="price.remove")


def set_currency(*, project: Project, currency: str, actor: AbstractBaseUser) -> None:
    """Set the currency of all prices; their numbers stay as they are. Raises: PlanSettingRefused."""
    code = currency.strip().upper()
    if not _CURRENCY.fullmatch(code):
        text = _("%(given)r is no currency. Use three letters, as in USD, EUR or CNY.") % {"given": currency[:40]}
        raise PlanSettingRefused("currency", text)
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        before, held.currency = held.currency, code
        if before == code:
            return
        held.save(update_fields=["currency"])
        _record(held, actor, "currency.set", before=before, after=code)
    project.currency = code


def set_constant(*, project: Project, name: str, value: str, actor: AbstractBaseUser) -> None:
    """Give a constant of the planner the project's own value; the shipped one takes it back to that.

    Raises: PlanSettingRefused.
    """
    given = _number(value)
    try:
        constants().with_values({name: value if given is None else given})
    except ConstantInvalid as invalid:
        raise PlanSettingRefused("value" if name in _names() else "constant", str(invalid)) from invalid
    is_shipped = given == constants().get(name).value
    _change(project, "plan_constants", {name: None if is_shipped else given}, actor, verb="constant.set")


def reset_constants(*, project: Project, names: tuple[str, ...] = (), actor: AbstractBaseUser) -> None:
    """Take constants back to what is shipped; all of them without names."""
    gone = names or tuple(project.plan_constants)
    _change(project, "plan_constants", dict.fromkeys(gone), actor, verb="constant.reset")


def _names() -> frozenset[str]:
    return frozenset(each.name for each in constants().all())


def _number(text: str) -> float | None:
    """Return the number that was typed, None for anything else."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _change(project: Project, field: str, changes: Mapping[str, Any], actor: AbstractBaseUser, *, verb: str) -> None:
    """Set keys of a JSON field, or drop those that are None; `project` then shows what is stored."""
    with transaction.atomic():
        held = Project.objects.select_for_update().get(pk=project.pk)
        stored: dict[str, Any] = getattr(held, field)
        before = {name: stored[name] for name in changes if name in stored}
        for name, value in changes.items():
            if value is None:
                stored.pop(name, None)
            else:
                stored[name] = value
        after = {name: stored[name] for name in changes if name in stored}
        if after != before:
            held.save(update_fields=[field])
            _record(held, actor, verb, before=before, after=after)
    setattr(project, field, stored)


def _record(project: Project, actor: AbstractBaseUser, verb: str, *, before: Any, after: Any) -> None:
    record(actor=actor, verb=verb, object_type="project", object_id=project.slug, before=before, after=after)
