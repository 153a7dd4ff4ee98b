"""What the command line gives a run: variables on the line, values of secrets never, which every process list shows."""

import os
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_command import REFUSED


def add_environment_arguments(parser: ArgumentParser) -> None:
    """Take variables and secrets of a run."""
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable of the run, shown to all members"
    )
    about = "a secret of the run: its value is the variable of this name here, or stands in a file (NAME=@path)"
    parser.add_argument("--secret", action="append", default=[], metavar="NAME", help=about)


def with_environment(spec: Any, options: Mapping[str, Any]) -> Any:
    """Return the spec with the variables and secrets of the command line.

    A secret that is neither set here nor read from a file is one that the project keeps.
    Raises: CommandError for a line that means nothing, without any value.
    """
    if not options["env"] and not options["secret"]:
        return spec
    if not isinstance(spec, Mapping) or not isinstance(environment := spec.get("environment", {}), Mapping):
        raise CommandError("A run spec is a JSON object with an object `environment`.", returncode=REFUSED)
    secrets = environment.get("secrets", {})
    named = dict(secrets) if isinstance(secrets, Mapping) else dict.fromkeys(secrets)
    named |= dict(map(read_secret, options["secret"]))
    variables = {**environment.get("variables", {}), **dict(map(read_variable, options["env"]))}
    return {**spec, "environment": {**environment, "variables": variables, "secrets": named}}


def read_variable(text: str) -> tuple[str, str]:
    """Return name and value of NAME=VALUE. Raises: CommandError if it is none."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandError(f"{name!r} has no value. Write --env NAME=VALUE.", returncode=REFUSED)
    return name, value


def read_secret(text: str) -> tuple[str, str | None]:
    """Return name and value of a secret; None where neither this environment nor a file has one.

    Raises: CommandError for a value on the command line, which it does not repeat, and for a file that is not there.
    """
    name, equals, place = text.partition("=")
    if not equals:
        return name, os.environ.get(name)
    if not place.startswith("@"):
        said = f"--secret {name} has a value on the command line, where others can read it. Set the variable {name}, "
        raise CommandError(f"{said}or write --secret {name}=@FILE.", returncode=REFUSED)
    try:
        return name, Path(place.removeprefix("@")).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"Cannot read the value of {name}: {why}.", returncode=REFUSED) from error
