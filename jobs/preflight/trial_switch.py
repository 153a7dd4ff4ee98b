"""Who may try code before a launch: what the operator set, and what this machine can keep such code from."""

from typing import Literal

from django.conf import settings
from django.utils.translation import gettext as _

from jobs.accounts.access import User, allows, role
from jobs.catalog.spec.reward_parts import TESTING
from jobs.catalog.spec.runspec import RunSpec
from jobs.cluster.ray_api import is_local
from jobs.models import Project
from jobs.preflight.client import TrialUnavailable
from jobs.preflight.sandbox import confinement

Who = Literal["off", "admins", "editors"]


class TrialForbidden(TrialUnavailable):
    """This person may not try code here; a run is none of this switch's business."""


def who_may_try() -> Who:
    """Return who may try code: as PITWALL_TRIAL says, and less where a trial cannot be closed in.

    Then only admins may where runs are this machine's anyway, and nobody where they are on other machines: a trial
    would be the one way to the console's own files.
    """
    chosen: Who = settings.TRIAL
    if chosen == "off" or confinement().is_confined:
        return chosen
    return "admins" if is_local() else "off"


def note(project: Project, user: User | None) -> str:
    """Return what a person should know of trials here, "" where they are confined and open to this person."""
    if refusal := _refusal(project, user):
        return refusal
    if confinement().is_confined:
        return ""
    return _(
        "This machine cannot close trials in: what you try runs with the console's rights. Only admins of the project "
        "may try code here."
    )


def require_trial(spec: RunSpec, project: Project, user: User | None, *, field: str) -> None:
    """Let through who may try this spec's code. Without a person, only what any editor may. Raises: TrialForbidden."""
    if field == "reward.source" and not holds_code(spec):
        return
    if refusal := _refusal(project, user):
        raise TrialForbidden(field, refusal)


def holds_code(spec: RunSpec) -> bool:
    """Return whether trying the spec's reward runs code that somebody gave, in its source or in its data."""
    return any(part.kind in ("custom", *TESTING) for part in spec.reward.parts)


def start_line() -> str:
    """Return the line that the console says when it starts, for its operator; "" where trials are as they should be."""
    here = confinement()
    if settings.TRIAL == "off" or here.level == "namespaces":
        return ""
    if here.level == "landlock":
        return f"Trials of code are closed in by Landlock and a filter of system calls, not by namespaces: {here.lacks}"
    said = {"admins": "only admins of a project may try code (PITWALL_TRIAL=admins)", "off": "nobody may try code"}
    return f"Trials of code cannot be closed in on this machine, so {said[who_may_try()]}: {here.lacks}"


def _refusal(project: Project, user: User | None) -> str:
    who = who_may_try()
    if who == "editors" or (who == "admins" and user is not None and allows(role(user, project), "admin")):
        return ""
    if who == "admins" and settings.TRIAL == "admins":
        return _("Only admins of the project may try code on this console (PITWALL_TRIAL).")
    if who == "admins":
        return _("This machine cannot close trials in, so only admins of the project may try code here.")
    if settings.TRIAL == "off":
        return _("Trying code is switched off on this console (PITWALL_TRIAL).")
    return _("The console's machine cannot close trials in, so code is not tried on it.")
