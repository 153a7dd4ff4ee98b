"""`manage.py demo`: queue the demo run in the console of this data directory, the way the form does."""

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from console.embedded.first_admin import ensure_admin
from jobs.catalog.spec.parse import SpecInvalid
from jobs.models import Project
from jobs.processes.tasks import enqueue, submit
from jobs.runs.launch import create_run, demo_spec


class Command(BaseCommand):
    """Queues GRPO on the bundled model and word problems, with the defaults of every knob that is not given."""

    help = "Queue the demo run: GRPO on the bundled tiny model and word problems."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Take changed knobs."""
        parser.add_argument("--set", action="append", default=[], metavar="KNOB=VALUE", help="change a knob")

    def handle(self, *_: Any, **options: Any) -> None:
        """Queue it and print where it can be watched."""
        admin = ensure_admin()
        project = Project.objects.order_by("pk")[0]
        spec = demo_spec(changed_knobs(options["set"]))
        try:
            run, _created = create_run(project=project, spec=spec, user=admin, idempotency_key=None, now=timezone.now())
        except SpecInvalid as error:
            raise CommandError(str(error)) from error
        enqueue(submit, run_id=run.pk)
        self.stdout.write(f"The demo run is queued: {settings.PUBLIC_URL}/runs/{run.pk}")


def changed_knobs(changes: list[str]) -> dict[str, dict[str, object]]:
    """Return `KNOB=VALUE` arguments as a spec's knobs; values are JSON where they can be, else text.

    Raises: CommandError naming the argument without an equals sign.
    """
    knobs: dict[str, dict[str, object]] = {}
    for change in changes:
        knob, equals, text = change.partition("=")
        if not equals:
            raise CommandError(f"--set {change!r} is not KNOB=VALUE, for example optimizer.learning_rate=0.")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        knobs[knob] = {"value": value, "origin": "you"}
    return knobs
