"""`manage.py plan spec.json`: ask the planner whether a spec fits, how fast it is and what it costs."""

import json
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import REFUSED, ApiCommand, read_spec
from console.command_line.local_planner import LocalPlanner
from console.command_line.plan_text import advice_text, layouts_text, plan_text
from jobs.catalog.recipe import UnknownRecipe, recipe
from jobs.catalog.spec.runspec import to_json

DOES_NOT_FIT = 1


class Command(ApiCommand):
    """Plan a spec, here by what is shipped unless a console is named.

    Exit code 0 it fits (tight too), 1 it does not fit, 3 refused, 4 the console is away.
    """

    help = "Say whether a spec fits, how long a step takes and what the run costs"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("spec", nargs="?", help="path of a JSON file with the run spec, or - for standard input")
        parser.add_argument(
            "--recipe", help="id of a recipe to plan, or whose hardware is planned for where there is none"
        )
        parser.add_argument(
            "--on", help="hypothetical accelerator, as in h200; else the devices of a console's cluster (--project)"
        )
        parser.add_argument("--nodes", type=int, default=1, help="with --on: nodes")
        parser.add_argument("--per-node", type=int, default=8, help="with --on: devices of a node")
        parser.add_argument("--host-gb", type=int, default=0, help="with --on: RAM of a node, GB")
        parser.add_argument("--config", help="config.json of a model that is not known")
        for side in ("prompt", "response"):
            parser.add_argument(f"--mean-{side}", type=float, help=f"mean tokens of a {side}, where they are known")
        parser.add_argument("--advice", action="store_true", help="also what would make it fit or faster")
        parser.add_argument("--layouts", type=int, metavar="N", help="also the best N layouts on all of the hardware")
        parser.add_argument("--goal", default="time", help="of --layouts: time, cost or room")
        parser.add_argument("--json", action="store_true", help="print the API's answers instead of tables")
        self.add_planner_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Ask, print, and leave with the exit code of the verdict."""
        body: dict[str, object] = {"spec": _spec(options["spec"], options["recipe"])}
        if options["recipe"]:
            body["recipe"] = options["recipe"]
        workload = {f"mean_{side}": options[f"mean_{side}"] for side in ("prompt", "response")}
        if means := {name: tokens for name, tokens in workload.items() if tokens is not None}:
            body["workload"] = means
        if options["on"]:
            body["what_if"] = {
                "accelerator": options["on"],
                "nodes": options["nodes"],
                "devices_per_node": options["per_node"],
                "host_gb": options["host_gb"],
            }
        if options["config"]:
            body["config"] = read_spec(options["config"])
            if not isinstance(body["config"], dict):
                raise CommandError(f"{options['config']} is not a JSON object.", returncode=REFUSED)
        self.ask_planner(options, lambda client: self._plan(client, body, options))

    def _plan(self, client: ApiClient | LocalPlanner, body: Mapping[str, object], options: Mapping[str, Any]) -> int:
        project = options["project"] or client.first_project()
        plan = client.plan(project, body)
        answers: dict[str, object] = {"plan": plan}
        texts = [plan_text(plan)]
        if options["advice"]:
            advice = client.advice(project, body)
            answers["advice"] = advice
            texts.append(advice_text(advice))
        if options["layouts"] is not None:
            layouts = client.layouts(project, {**body, "limit": options["layouts"], "goal": options["goal"]})
            answers["layouts"] = layouts
            texts.append(layouts_text(layouts))
        self.stdout.write(json.dumps(answers, indent=2) if options["json"] else "\n\n".join(texts))
        return DOES_NOT_FIT if plan["verdict"] == "no" else 0


def _spec(path: str | None, recipe_id: str | None) -> Any:
    """Return the spec in a file, or a recipe's. Raises: CommandError."""
    if path is not None:
        return read_spec(path)
    if recipe_id is None:
        raise CommandError("Name a JSON file with the run spec, or a --recipe.", returncode=REFUSED)
    try:
        return to_json(recipe(recipe_id).spec)
    except UnknownRecipe as unknown:
        raise CommandError(str(unknown), returncode=REFUSED) from unknown
