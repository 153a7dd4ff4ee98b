"""`manage.py quota project:team live_runs=4`: set or show what a project or a person may take, through the API."""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand
from console.command_line.api_json import QuotaJson
from jobs.storage.quotas import NAMES, amount_text

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class Command(ApiCommand):
    """Show or set quotas; exit code 0 done, 3 refused, 4 the console is away. Setting needs a superuser's token."""

    help = "Show all quotas, or set those of a project or a person, through the API"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("owner", nargs="?", help="project:<slug> or person:<user name>; nothing lists all")
        about = f"one of {', '.join(NAMES)}, stops_runs; sizes like 200GiB, none for no limit; nothing shows them"
        parser.add_argument("limits", nargs="*", metavar="name=limit", help=about)
        self.add_console_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Show or set, and leave with the exit code of what became of it."""
        owner, limits = options["owner"], _read(options["limits"])
        if owner and not owner.startswith(("project:", "person:")):
            raise CommandError(f"{owner!r} is neither project:<slug> nor person:<user name>.", returncode=REFUSED)
        self.ask(options, lambda client: self._act(client, owner, limits))

    def _act(self, client: ApiClient, owner: str | None, limits: dict[str, object]) -> int:
        if owner and limits:
            self._show(client.set_quota(owner, limits))
            return 0
        rows = [quota for quota in client.quotas() if owner in (None, quota["of"])]
        if not rows:
            self.stdout.write(f"{owner} has no quota" if owner else "No quota is set")
        for quota in rows:
            self._show(quota)
        return 0

    def _show(self, quota: QuotaJson) -> None:
        self.stdout.write(quota["of"] + (" (stops live runs)" if quota["stops_runs"] else ""))
        for use in quota["uses"]:
            most = "no limit" if use["most"] is None else amount_text(use["name"], use["most"])
            mark = "  nearly used up" if use["is_near"] else ""
            self.stdout.write(f"  {use['name']:<14} {amount_text(use['name'], use['used']):>12} of {most}{mark}")


def _read(arguments: Sequence[str]) -> dict[str, object]:
    """Return name -> limit of `name=limit`. Raises: CommandError naming what is none."""
    limits: dict[str, object] = {}
    for argument in arguments:
        name, sign, text = argument.partition("=")
        if not sign or not name or not text:
            raise CommandError(f"{argument!r} is not of the form name=limit.", returncode=REFUSED)
        limits[name] = _limit(argument, text)
    return limits


def _limit(argument: str, text: str) -> object:
    if text in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text]
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    try:
        number = float(text.removesuffix(unit)) * _UNITS.get(unit, 1)
        return int(number) if number == int(number) else number
    except (ValueError, OverflowError):
        text = f"{argument!r}: the limit is a number, a size like 200GiB, or none."
        raise CommandError(text, returncode=REFUSED) from None
