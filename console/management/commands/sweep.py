"""`manage.py sweep spec.json --knob optimizer.learning_rate=1e-4,3e-4`: launch a sweep through the API, follow it."""

import re
import secrets
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from console.command_line.api_client import ApiClient
from console.command_line.api_command import EXIT_CODES, REFUSED, ApiCommand, read_spec
from console.command_line.api_json import StudyJson, StudyTableJson
from console.command_line.environment import add_environment_arguments, with_environment
from jobs.catalog.metric import metric
from jobs.catalog.value import value_text
from jobs.sweeps.points import short_name

_RANGE = re.compile(r"^(?P<low>[^,]+?)\.\.(?P<high>[^,:]+)(?::(?P<scale>\w+))?$")


class Command(ApiCommand):
    """Launch a sweep; exit code 0 finished (or queued), 1 all failed, 2 stopped, 3 refused, 4 the console is away."""

    help = "Launch runs of one spec that differ in up to three knobs"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Say what it takes."""
        parser.add_argument("spec", help="path of a JSON file with the run spec, or - for standard input")
        parser.add_argument(
            "--knob",
            action="append",
            required=True,
            metavar="ID=VALUES",
            help="a knob to vary, up to three times: id=1e-4,3e-4 for values, id=1e-5..1e-3:log to draw from a range",
        )
        parser.add_argument("--random", type=int, metavar="N", help="draw N points; without it every point of the grid")
        parser.add_argument("--runs", type=int, metavar="N", help="draw N points of the grid in place of all")
        parser.add_argument("--seed", type=int, default=0, help="of the points that are drawn")
        parser.add_argument("--at-once", type=int, default=1, metavar="K", help="so many runs may be live at once")
        parser.add_argument("--wait", action="store_true", help="follow the sweep to its end and print its table")
        self.add_console_arguments(parser)
        parser.add_argument("--project", help="slug of the project; else your first one")
        parser.add_argument("--key", help="idempotency key: the same key launches the same sweep only once")
        add_environment_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Launch, and leave with the exit code of what became of it."""
        spec = with_environment(read_spec(options["spec"]), options)
        sweep = {
            "knobs": [read_knob(text) for text in options["knob"]],
            "method": "grid" if options["random"] is None else "random",
            "num_runs": options["runs"] if options["random"] is None else options["random"],
            "max_concurrent": options["at_once"],
            "seed": options["seed"],
        }
        self.ask(options, lambda client: self._launch(client, spec, sweep, options))

    def _launch(self, client: ApiClient, spec: Any, sweep: Mapping[str, object], options: Mapping[str, Any]) -> int:
        key = options["key"] or secrets.token_hex(16)
        launched = client.sweep(spec, sweep, key=key, project=options["project"])
        outcome = "queued" if launched.is_new else "was launched before with this key"
        self.stdout.write(f"{launched.id} {outcome}: {launched.url}")
        if not options["wait"]:
            return 0
        printed = ""

        def tell(table: StudyTableJson) -> None:
            nonlocal printed
            line = progress(table["study"])
            if line != printed:
                printed = line
                self.stdout.write(line)

        try:
            table = client.follow_study(launched.id, tell=tell)
        except KeyboardInterrupt:
            self.stdout.write(f"\nNo longer following; its runs go on: {launched.url}")
            return 0
        self.stdout.write(sweep_table(table))
        return EXIT_CODES[table["study"]["state"]]


def read_knob(text: str) -> dict[str, object]:
    """Return a knob of a sweep as the API takes it. Raises: CommandError if there is no "=" in it."""
    name, equals, values = text.partition("=")
    if not equals or not values:
        example = "optimizer.learning_rate=1e-4,3e-4"
        raise CommandError(f"{text!r} is no knob with values. Write it like {example}.", returncode=REFUSED)
    match = _RANGE.match(values)
    if match is None:
        return {"id": name, "values": values.split(",")}
    return {"id": name, "low": match["low"], "high": match["high"], "scale": match["scale"] or "linear"}


def progress(study: StudyJson) -> str:
    """Return "running: 2 running, 1 finished, 3 queued of 6"."""
    counts = ", ".join(f"{number} {state}" for state, number in sorted(study["counts"].items()) if number)
    return f"{study['state']}: {counts} of {study['num_runs']}"


def sweep_table(table: StudyTableJson) -> str:
    """Return a line a run: values of the knobs, state, steps, last and best value of the metric, the best starred."""
    study = table["study"]
    names = [knob["id"] for knob in study["knobs"]]
    label = metric(study["metric"]).label
    head = ["run", *map(short_name, names), "state", "step", f"{label}, last", "best", ""]
    rows = [
        [
            row["header"]["id"],
            *(value_text(row["values"][name]) if name in row["values"] else "—" for name in names),
            row["header"]["state"],
            f"{row['header']['step']}/{row['header']['num_steps']}",
            _figure(row["last"]),
            _figure(row["best"]),
            "*" if row["header"]["id"] == study["best_run"] else "",
        ]
        for row in table["runs"]
    ]
    return _columns([head, *rows])


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _figure(value: float | None) -> str:
    return "—" if value is None else f"{value:.4g}"
