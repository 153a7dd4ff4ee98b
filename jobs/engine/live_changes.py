"""Knobs that are changed while the run trains: taken between two steps, by the driver and all workers at once."""

from collections.abc import Mapping

from jobs.catalog.knob import knobs
from jobs.catalog.role import roles_of
from jobs.catalog.spec.live_change import changed_spec, differing_values
from jobs.catalog.spec.parse import SpecInvalid
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import value_text
from jobs.engine.command_inbox import CommandInbox
from jobs.engine.reporting.run_report import RunReport
from jobs.engine.workers.worker_group import WorkerGroup


class LiveChanges:
    """Takes what the console asks for; `spec` is what the workers were started with.

    Each command is answered by one note, whose meta `knobs` names it: `{"command", "changes": [{"knob", "old", "new"}],
    "refused"}`. The note's step is the first with the new values.
    """

    def __init__(self, *, spec: RunSpec, workers: WorkerGroup, report: RunReport, commands: CommandInbox) -> None:
        self._roles = {role.id for role in roles_of(spec)}
        self._workers, self._report, self._commands = workers, report, commands

    def take(self, spec: RunSpec, *, step: int) -> RunSpec:
        """Return the spec of `step` and the steps after it; all workers have it then. No call may be under way."""
        after = spec
        for number, wanted in self._commands.take_changes():
            after = self._taken(after, number, wanted, step)
        if after is not spec:
            self._workers.gather([worker.call("take_spec", after, step=step) for worker in self._workers.all()])
        return after

    def _taken(self, spec: RunSpec, number: int, wanted: Mapping[str, object], step: int) -> RunSpec:
        try:
            after = changed_spec(spec, wanted, roles=self._roles)
        except SpecInvalid as error:
            refused = " ".join(problem.message for problem in error.problems)
            text = f"A change of knobs was refused. {refused}"
            self._report.note(text, step=step, knobs={"command": number, "changes": [], "refused": refused})
            return spec
        differing = differing_values(spec, after)
        changes = [{"knob": knob_id, "old": old.value, "new": new.value} for knob_id, (old, new) in differing.items()]
        texts = [
            f"{knobs()[knob_id].label} {value_text(old.value)} → {value_text(new.value)}"
            for knob_id, (old, new) in differing.items()
        ]
        text = f"{', '.join(texts)}, from step {step} on" if texts else "Nothing changed: the knobs were so already"
        self._report.note(text, step=step, knobs={"command": number, "changes": changes})
        return after if changes else spec
