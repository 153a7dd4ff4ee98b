"""What runs find in their environment: variables and secrets of a project and of a run, and how a runner gets them.

A variable of the project goes to all of its runs. A secret goes only to runs that name it: given with the launch, or
else the project's. Secrets are sealed as soon as they are here (jobs.accounts.sealing); `hand_out` is the only way out
of the database, and leads to the one runner of the one attempt that asked first.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext as _

from jobs.accounts.audit import record
from jobs.accounts.sealing import SealBroken, seal, unseal
from jobs.catalog.sentence import Sentence, in_words
from jobs.catalog.spec.environment import MAX_VARIABLES, shown_name, why_no_name, why_no_secret, why_no_variable
from jobs.catalog.spec.parse import Problem, SpecInvalid
from jobs.catalog.spec.runspec import RunSpec
from jobs.models import Attempt, Project, Run, Variable
from jobs.telemetry.attempt_spec import spec_json

FIELD = "environment.secrets"
MIN_KEY_CHARS = 32


class VariableRefused(ValueError):
    """A project cannot keep this variable; `field` is name or value."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


class NotHandedOut(Exception):
    """The attempt's secrets are not given; the sentence says why, without any value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectVariable:
    """A variable of a project as people may see it: of a secret no value."""

    name: str
    is_secret: bool
    value: str
    set_by: str
    set_at: datetime


def split_secrets(raw: object) -> tuple[object, dict[str, str]]:
    """Return a raw spec whose secrets are names alone, and the values that it had given with them, by name.

    A launch may give `environment.secrets` as an object: name to value, or to null for a secret of the project. Nothing
    is checked here, and what is no such object stays as it is.
    """
    if not isinstance(raw, Mapping) or not isinstance(environment := raw.get("environment"), Mapping):
        return raw, {}
    if not isinstance(secrets := environment.get("secrets"), Mapping):
        return raw, {}
    values = {str(name): value for name, value in secrets.items() if value is not None}
    return {**raw, "environment": {**environment, "secrets": [str(name) for name in secrets]}}, values


def check_secrets(spec: RunSpec, project: Project, values: Mapping[str, object]) -> list[Problem]:
    """Return what stands against the secrets that a launch names and gives; no sentence holds a value."""
    problems = []
    for name in spec.environment.secrets:
        if name in values and (why := why_no_secret(values[name])) is not None:
            problems.append(Problem(field=FIELD, message=_refused(name, why)))
    names = [name for name in spec.environment.secrets if name not in values]
    there = set(_secrets_of(project, names).values_list("name", flat=True)) if names else set()
    if missing := [name for name in names if name not in there]:
        text = _(
            "%(names)s has no value: give it with this launch, or have an admin keep it for the project (Settings, "
            "Environment). A clone has the names of secrets, not their values."
        )
        problems.append(Problem(field=FIELD, message=text % {"names": ", ".join(missing)}))
    if strangers := [name for name in values if name not in spec.environment.secrets]:
        text = _("%(names)s is given a value, and the spec does not name it as a secret.")
        problems.append(Problem(field=FIELD, message=text % {"names": ", ".join(map(shown_name, strangers[:5]))}))
    return problems


def keep_secrets(run: Run, values: Mapping[str, str], *, user: AbstractBaseUser | None, now: datetime) -> None:
    """Keep the secrets that were given with the launch of the run, sealed."""
    Variable.objects.bulk_create(
        Variable(
            project_id=run.project_id,
            run=run,
            name=name,
            is_secret=True,
            sealed=seal({name: value}, purpose=_purpose(run.project_id)),
            set_by_id=user.pk if user else None,
            set_at=now,
        )
        for name, value in values.items()
    )


def require_secrets(spec: RunSpec, project: Project, values: Mapping[str, object]) -> None:
    """Let through a launch whose secrets are all there. Raises: SpecInvalid."""
    if problems := check_secrets(spec, project, values):
        raise SpecInvalid(problems)


# -- what a project keeps --


def project_variables(project: Project) -> list[ProjectVariable]:
    """Return the project's variables, by name; of secrets only that they are there."""
    rows = Variable.objects.filter(project=project, run=None).select_related("set_by").order_by("name")
    return [
        ProjectVariable(
            name=row.name,
            is_secret=row.is_secret,
            value=row.value,
            set_by=row.set_by.get_username() if row.set_by else "",
            set_at=row.set_at,
        )
        for row in rows
    ]


def set_variable(
    *, project: Project, name: str, value: str, is_secret: bool, user: AbstractBaseUser | None, now: datetime
) -> None:
    """Keep a variable for all runs of the project, or a secret for those that name it, in place of an earlier one.

    Raises: VariableRefused with a sentence that holds no value.
    """
    if (why := why_no_name(name)) is not None:
        raise VariableRefused("name", _refused(name, why))
    if (why := why_no_secret(value) if is_secret else why_no_variable(name, value)) is not None:
        raise VariableRefused("value", _refused(name, why))
    columns = {
        "is_secret": is_secret,
        "value": "" if is_secret else value,
        "sealed": seal({name: value}, purpose=_purpose(project.pk)) if is_secret else "",
        "set_by_id": user.pk if user else None,
        "set_at": now,
    }
    with transaction.atomic():
        others = Variable.objects.select_for_update().filter(project=project, run=None)
        if others.exclude(name=name).count() >= MAX_VARIABLES:
            text = _("The project has %(most)s variables and secrets, and may have no more. Remove one first.")
            raise VariableRefused("name", text % {"most": MAX_VARIABLES})
        Variable.objects.update_or_create(project=project, run=None, name=name, defaults=columns)
        after = {"name": name, "is_secret": is_secret} | ({} if is_secret else {"value": value})
        record(
            actor=user,
            verb="environment.set",
            object_type="project",
            object_id=project.slug,
            after=after,
            project=project,
            label=project.name,
        )


def remove_variable(*, project: Project, name: str, user: AbstractBaseUser | None) -> bool:
    """Remove a variable or secret of the project; False if there is none. Attempts that have it keep it."""
    with transaction.atomic():
        gone, _rows = Variable.objects.filter(project=project, run=None, name=name).delete()
        if gone:
            record(
                actor=user,
                verb="environment.remove",
                object_type="project",
                object_id=project.slug,
                before={"name": name},
                project=project,
                label=project.name,
            )
    return bool(gone)


# -- what a runner gets --


def announced(attempt: Attempt) -> dict[str, Any]:
    """Return the variables that the attempt is given, with their values, and the names of its secrets."""
    environment = _environment(attempt)
    shown = Variable.objects.filter(project_id=attempt.run.project_id, run=None, is_secret=False)
    variables = dict(shown.order_by("name").values_list("name", "value"))
    names = list(environment.get("secrets", ()))
    own = dict(environment.get("variables", {}))
    return {"variables": {k: v for k, v in variables.items() if k not in names} | own, "secrets": names}


def hand_out(attempt: Attempt, *, key: str) -> dict[str, str]:
    """Return the attempt's secrets by name, to the runner that asked first: again only to who has the same `key`.

    So who reads the runner's token, in Ray's dashboard say, finds nothing to fetch once the runner has started; and a
    runner that comes second finds out. Raises: NotHandedOut.
    """
    if not MIN_KEY_CHARS <= len(key) <= 200:
        raise NotHandedOut("The key must have 32 to 200 characters.")
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
    Attempt.objects.filter(pk=attempt.pk, runner_key="").update(runner_key=digest)
    if not Attempt.objects.filter(pk=attempt.pk, runner_key=digest).exists():
        raise NotHandedOut(
            "the secrets of this attempt were handed to another runner before. If nobody started one, somebody else "
            "has the runner's token: replace the secrets"
        )
    names: Sequence[str] = _environment(attempt).get("secrets", ())
    rows = {row.name: row for row in _secrets_of(attempt.run.project, names)}
    rows |= {row.name: row for row in Variable.objects.filter(run_id=attempt.run_id, name__in=names)}
    if missing := [name for name in names if name not in rows]:
        raise NotHandedOut(
            f"the project does not keep {', '.join(missing)} any more. Have an admin set it, or clone the run and give "
            "it a value"
        )
    try:
        return {name: unseal(row.sealed, purpose=_purpose(row.project_id))[name] for name, row in rows.items()}
    except (SealBroken, KeyError) as error:
        raise NotHandedOut(
            "the console's secret key has changed since the secrets were stored. Give them anew"
        ) from error


def _environment(attempt: Attempt) -> Mapping[str, Any]:
    environment = spec_json(attempt).get("environment")
    return environment if isinstance(environment, Mapping) else {}


def _secrets_of(project: Project, names: Sequence[str]) -> Any:
    return Variable.objects.filter(project=project, run=None, is_secret=True, name__in=names)


def _purpose(project_id: int) -> str:
    return f"secrets of runs of project {project_id}"


def _refused(name: str, why: Sentence) -> str:
    return _("%(name)s cannot be given to a run: %(why)s.") % {"name": shown_name(name), "why": in_words(why, _)}
