"""The spec that an attempt runs: the run's, with what a resume and people, while it trained, changed of it."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.models import Attempt, Run, RunEvent

Overrides = Mapping[str, Mapping[str, object]]  # section -> field -> value

CHANGED = "knobs"
"""The verb of the event by which the trainer says that it took changed knobs; `data` is the note's `knobs`."""


def merged(spec: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return the spec with these fields of its sections (hardware, knobs) replaced, the rest as it is."""
    return {**spec, **{section: {**spec.get(section, {}), **fields} for section, fields in overrides.items()}}


def spec_json(attempt: Attempt) -> dict[str, object]:
    """Return the complete spec that the attempt was started with, as JSON values."""
    return merged(attempt.run.spec, attempt.overrides)


def latest_spec_json(run: Run) -> dict[str, Any]:
    """Return the complete spec of the run's latest attempt: what the run is by now."""
    overrides = Attempt.objects.filter(run=run, number=run.latest_attempt).values_list("overrides", flat=True).first()
    return merged(run.spec, with_changes(overrides or {}, changed_knobs([run.pk]).get((run.pk, run.latest_attempt))))


def overrides_by_now(attempt: Attempt) -> dict[str, dict[str, object]]:
    """Return what the attempt changes of the run's spec, with what was changed while it trained."""
    changed = changed_knobs([attempt.run_id]).get((attempt.run_id, attempt.number))
    return with_changes(attempt.overrides, changed)


def changed_knobs(run_ids: Iterable[str]) -> dict[tuple[str, int], dict[str, object]]:
    """Return (run, attempt) -> the knobs that were changed while it trained, by id, as a spec has them."""
    events = RunEvent.objects.filter(run_id__in=list(run_ids), verb=CHANGED).order_by("pk")
    by_attempt: dict[tuple[str, int], dict[str, object]] = {}
    for run_id, attempt, data in events.values_list("run_id", "attempt", "data"):
        values = by_attempt.setdefault((run_id, attempt), {})
        values.update({c["knob"]: {"value": c["new"], "origin": "you"} for c in data["changes"]})
    return by_attempt


def with_changes(overrides: Overrides, changed: Mapping[str, object] | None) -> dict[str, dict[str, object]]:
    """Return the overrides with these knobs changed."""
    whole = {section: dict(fields) for section, fields in overrides.items()}
    return {**whole, "knobs": {**whole.get("knobs", {}), **changed}} if changed else whole


def difference(spec: Mapping[str, Any], wanted: Overrides) -> dict[str, dict[str, object]]:
    """Return the overrides among `wanted` that say something else than the spec."""
    changed = {
        section: {name: value for name, value in fields.items() if spec.get(section, {}).get(name) != value}
        for section, fields in wanted.items()
    }
    return {section: fields for section, fields in changed.items() if fields}
