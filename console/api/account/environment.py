"""What runs of a project are given: variables with their values, secrets by name alone."""

from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema

from console.api.problem import REFUSALS, RequestProblem
from console.api.visible import caller, project_for
from jobs.models import Project
from jobs.runs.environment import VariableRefused, project_variables, remove_variable, set_variable

router = Router(tags=["projects"])


class VariableOut(Schema):
    """A variable of the project; `value` is null for a secret, which nobody is shown."""

    name: str
    is_secret: bool
    value: str | None
    set_by: str
    set_at: datetime


class EnvironmentOut(Schema):
    """All variables and secrets of the project, by name."""

    variables: list[VariableOut]


class VariableIn(Schema):
    """A value to keep. What is not said to be none is a secret."""

    model_config = {"extra": "forbid"}

    value: str
    is_secret: bool = Field(True, description="Encrypted and never shown; else a variable that all members see")


@router.get("/{slug:project}/environment", response={200: EnvironmentOut, **REFUSALS}, summary="Variables and secrets")
def read_environment(request: HttpRequest, project: str) -> EnvironmentOut:
    """Return what runs of the project are given: variables go to all, secrets to those whose spec names them."""
    return _out(project_for(request, project))


@router.put(
    "/{slug:project}/environment/{variable}",
    response={200: EnvironmentOut, **REFUSALS},
    summary="Set a variable or secret",
)
def put_variable(request: HttpRequest, project: str, variable: str, body: VariableIn) -> EnvironmentOut:
    """Keep a value under a name, in place of an earlier one; attempts that start from then on have it. Admins only."""
    home = project_for(request, project, "admin")
    try:
        set_variable(
            project=home,
            name=variable,
            value=body.value,
            is_secret=body.is_secret,
            user=caller(request),
            now=timezone.now(),
        )
    except VariableRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return _out(home)


@router.delete(
    "/{slug:project}/environment/{variable}",
    response={200: EnvironmentOut, **REFUSALS},
    summary="Remove a variable or secret",
)
def delete_variable(request: HttpRequest, project: str, variable: str) -> EnvironmentOut:
    """Remove it; attempts that run keep it. Admins only."""
    home = project_for(request, project, "admin")
    if not remove_variable(project=home, name=variable, user=caller(request)):
        raise RequestProblem(404, "The project has no variable or secret of that name.", field="name")
    return _out(home)


def _out(project: Project) -> EnvironmentOut:
    return EnvironmentOut(
        variables=[
            VariableOut(
                name=each.name,
                is_secret=each.is_secret,
                value=None if each.is_secret else each.value,
                set_by=each.set_by,
                set_at=each.set_at,
            )
            for each in project_variables(project)
        ]
    )
