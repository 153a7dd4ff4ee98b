"""The effective configuration of a run as rows: every field and knob, who chose it, and what the default would be."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from console.labels.catalog import field_label
from jobs.catalog.knob import Knob, knobs
from jobs.catalog.spec.live_change import live_knobs
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec, default_of, differing
from jobs.catalog.value import value_text
from jobs.runs.live_changes import LiveChange

SECTIONS = ("model", "data", "reward", "hardware", "policy", "environment", "profile", "trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One line of the table; `origin` is default, recipe, you or tuner.

    `is_live`: it can change while the run trains; `changed_at` is the step at which it last did, -1 if it never did.
    """

    group: str
    id: str
    label: str
    value: str
    unit: str
    origin: str
    default: str
    is_changed: bool
    help: str
    is_live: bool = False
    changed_at: int = -1


def config_rows(spec: RunSpec, changes: Sequence[LiveChange] = ()) -> list[ConfigRow]:
    """Return the knobs in the order of the catalogue, then the fields of the spec's sections."""
    live, steps = live_knobs(spec), {change.knob: change.step for change in changes}
    rows = [_knob_row(spec, knobs()[knob_id], knob_id in live, steps.get(knob_id, -1)) for knob_id in spec.knobs]
    return [*rows, *_section_rows(spec)]


def num_changed(spec: RunSpec) -> int:
    """Return how many knobs differ from the catalogue's default for the algorithm."""
    return len(differing(spec))


def _section_rows(spec: RunSpec) -> list[ConfigRow]:
    default = parse_spec({"algorithm": spec.algorithm, "trainer": {"name": spec.trainer.name}})
    rows = [_row("run", "algorithm", spec.algorithm, spec.algorithm)]
    for section in SECTIONS:
        ours, theirs = getattr(spec, section), getattr(default, section)
        for field, value in ours:
            rows.append(_row(section, f"{section}.{field}", value, getattr(theirs, field)))
    return rows


def _row(group: str, name: str, value: Any, default: Any) -> ConfigRow:
    is_changed = value != default
    return ConfigRow(
        group=group,
        id=name,
        label=field_label(name),
        value=show(value),
        unit="",
        origin="you" if is_changed else "default",
        default=show(default),
        is_changed=is_changed,
        help="",
    )


def _knob_row(spec: RunSpec, knob: Knob, is_live: bool, changed_at: int) -> ConfigRow:
    chosen = spec.knobs[knob.id]
    default = default_of(spec, knob)
    return ConfigRow(
        group=knob.group,
        id=knob.id,
        label=_(knob.label),
        value=show(chosen.value),
        unit=_(knob.unit) if knob.unit else "",
        origin=chosen.origin,
        default=show(default),
        is_changed=chosen.value != default,
        help=_(knob.help),
        is_live=is_live,
        changed_at=changed_at,
    )


def show(value: Any) -> str:
    """Return a value as people write it: on, off, 3e-4, 12,480; an empty text is a dash."""
    if value is None:
        return _("not set")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    if isinstance(value, int):
        return f"{value:,}"
    text = value_text(value)
    if isinstance(value, float):
        return text
    lines = text.count("\n")
    return _("%(n)s lines") % {"n": lines + 1} if lines else text or "—"
