"""The spec that an attempt runs: the run's, with what a resume changed of it."""

from collections.abc import Mapping
from typing import Any

from jobs.models import Attempt, Run

Overrides = Mapping[str, Mapping[str, object]]  # section -> field -> value


def merged(spec: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return the spec with these fields of its sections (hardware, knobs) replaced, the rest as it is."""
    return {**spec, **{section: {**spec.get(section, {}), **fields} for section, fields in overrides.items()}}


def spec_json(attempt: Attempt) -> dict[str, object]:
    """Return the complete spec of the attempt as JSON values."""
    return merged(attempt.run.spec, attempt.overrides)


def latest_spec_json(run: Run) -> dict[str, Any]:
    """Return the complete spec of the run's latest attempt: what the run is by now."""
    overrides = Attempt.objects.filter(run=run, number=run.latest_attempt).values_list("overrides", flat=True).first()
    return merged(run.spec, overrides or {})


def difference(spec: Mapping[str, Any], wanted: Overrides) -> dict[str, dict[str, object]]:
    """Return the overrides among `wanted` that say something else than the spec."""
    changed = {
        section: {name: value for name, value in fields.items() if spec.get(section, {}).get(name) != value}
        for section, fields in wanted.items()
    }
    return {section: fields for section, fields in changed.items() if fields}
