"""What only an admin of the project may start: specs by which a run executes code or overwrites files on the cluster.

Each attempt of a run comes into being in `jobs.runs.launch.create_run` or in `jobs.runs.resume.begin`, whoever asks and
by whichever way. Both ask here, so that no page, route or command can forget to. The checks before a launch ask too, to
say it early.
"""

import re

from django.utils.translation import gettext as _

from jobs.accounts.access import User, allows, role
from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import knobs
from jobs.catalog.spec.environment import runs_code
from jobs.catalog.spec.parse import Problem, SpecInvalid
from jobs.catalog.spec.runspec import RunSpec, differing
from jobs.catalog.trainer import trainers
from jobs.models import Project


def check_privileged(spec: RunSpec, project: Project, user: User | None) -> list[Problem]:
    """Return what of the spec this person may not start, field by field; without a person, all that needs an admin."""
    if user is not None and allows(role(user, project), "admin"):
        return []
    text = _(
        "%(label)s makes a run execute code or overwrite files on the cluster, "
        "so only an admin of the project may start a run with it."
    )
    return [Problem(field=field, message=text % {"label": label}) for field, label in privileged(spec)]


def require_privilege(spec: RunSpec, project: Project, user: User | None) -> None:
    """Let through what this person may start in the project. Raises: SpecInvalid with every problem."""
    problems = check_privileged(spec, project, user)
    if problems:
        raise SpecInvalid(problems)


def privileged(spec: RunSpec) -> list[tuple[str, str]]:
    """Return field and label of what in the spec needs an admin; a knob left at its default needs none."""
    settings = [
        (f"knobs.{knob_id}", _(knobs()[knob_id].label)) for knob_id in differing(spec) if knobs()[knob_id].is_privileged
    ]
    if is_in(spec.algorithm, "rl") and _is_code_of_reward(spec):
        settings.append(("reward.location", _("The reward file")))
    names = (*spec.environment.variables, *spec.environment.secrets)
    settings += [("environment.variables", name) for name in names if runs_code(name)]
    runs_scripts = trainers()[spec.trainer.name].runs_data_scripts and spec.data.kind in ("path", "hub")
    for field, place in (("data.id", spec.data.id), ("data.eval_id", spec.data.eval_id)):
        if runs_scripts and _is_code_of_data(place):
            settings.append((field, _("Data")))
    return settings


def _is_code_of_reward(spec: RunSpec) -> bool:
    """Return True for a reward file, also one that is called a URL: trainers go by the name's end alone."""
    if spec.reward.kind == "url":
        return any(part.strip().endswith(".py") for part in spec.reward.location.split(","))
    own = trainers()[spec.trainer.name].own_reward_code  # a module of the trainer, not of whoever launches
    return spec.reward.kind == "file" and not (own and re.fullmatch(own, spec.reward.location))


def _is_code_of_data(place: str) -> bool:
    """Return True if a dataset among these is a script, which is run to get the rows."""
    return any(part.partition("@")[0].strip().endswith(".py") for part in place.split(","))
