"""The inputs of what a run is given: environment variables, and the names of secrets."""

from collections.abc import Mapping

from django.utils.translation import gettext as _

from console.forms.new_run.field import Field, FieldGroup


def environment_group(values: Mapping[str, str]) -> FieldGroup:
    """Return them with the texts that they hold now."""
    variables = Field(
        name="environment.variables",
        label=_("Environment variables"),
        value=values.get("environment.variables", ""),
        kind="area",
        flag="environment.variables",
        placeholder="NCCL_DEBUG=INFO",
        help=_(
            "NAME=value, one a line: set for the trainer and all that it starts, on every node, besides the variables "
            "of the project. They are shown to all members. Names by which Python, Ray, the loader or Pitwall itself "
            "go cannot be set."
        ),
    )
    secrets = Field(
        name="environment.secrets",
        label=_("Secrets"),
        value=values.get("environment.secrets", ""),
        flag="environment.secrets",
        placeholder="HF_TOKEN WANDB_API_KEY",
        help=_(
            "Names of variables whose values nobody is shown. Each gets an input for its value; left empty, it is the "
            "secret that the project keeps under this name. Values are encrypted, handed to the runner alone, and "
            "hidden in logs. A clone has the names, not the values."
        ),
    )
    return FieldGroup(id="environment", title=_("Environment"), note="", fields=(variables, secrets))
