"""What the rules find in the form's spec: the New run page's list, the gravest first, each with its fixes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from django.utils.translation import gettext as _

from console.forms.new_run.form import show
from console.labels.catalog import field_label, knob_label
from jobs.catalog.knob import knobs
from jobs.catalog.rules.rule import SpecFinding, findings
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.value import Value
from jobs.cluster.ray_api import ClusterState
from jobs.runs.checks import on_cluster

_BY_KIND = ("model.id", "data.id")
_ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixButton:
    """One change on offer: the label of its button, and the inputs' texts as JSON."""

    label: str
    texts: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFindingRow:
    """One finding; `inputs` are (name, label) of what it is about. `blocks`: the run is not launched with it."""

    rule: str
    level: str
    message: str
    why: str
    source: str
    inputs: tuple[tuple[str, str], ...]
    fixes: tuple[FixButton, ...]
    is_overridden: bool

    @property
    def blocks(self) -> bool:
        """True if the run is not launched with it."""
        return self.level == "error" and not self.is_overridden


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsPanel:
    """All findings, those that were put aside last."""

    rows: tuple[SpecFindingRow, ...]

    @property
    def blocking(self) -> tuple[SpecFindingRow, ...]:
        """Those that stand against the launch."""
        return tuple(row for row in self.rows if row.blocks)

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """How many there are of each level, the gravest first; levels without any are left out."""
        by_level = [(level, sum(r.level == level and not r.is_overridden for r in self.rows)) for level in _ORDER]
        return tuple((level, n) for level, n in by_level if n)


def findings_panel(spec: RunSpec, state: ClusterState) -> FindingsPanel:
    """Return what the rules find in the spec, on the device that this cluster has for it."""
    rows = [_row(finding, spec) for finding in findings(on_cluster(spec, state), say=_)]
    return FindingsPanel(rows=tuple(sorted(rows, key=lambda row: row.is_overridden)))


def input_of(name: str, spec: RunSpec) -> str:
    """Return the name of the input that shows a knob or a field of the spec."""
    if name in knobs():
        return f"knobs.{name}"
    return f"{name}.{getattr(spec, name.partition('.')[0]).kind}" if name in _BY_KIND else name


def _row(finding: SpecFinding, spec: RunSpec) -> SpecFindingRow:
    return SpecFindingRow(
        rule=finding.rule,
        level=finding.level,
        message=finding.message,
        why=finding.why,
        source=finding.source,
        inputs=tuple((input_of(name, spec), _label(name)) for name in finding.knobs),
        fixes=tuple(fix_button(fix.changes, spec) for fix in finding.fixes),
        is_overridden=finding.is_overridden,
    )


def _label(name: str) -> str:
    return knob_label(name) if name in knobs() else field_label(name)


def fix_button(changes: Mapping[str, Value], spec: RunSpec) -> FixButton:
    """Return the button that applies the changes: values by knob id or dotted field."""
    texts = {input_of(name, spec): show(value) for name, value in changes.items()}
    texts_of_changes = [
        _("%(label)s: %(value)s") % {"label": _label(n), "value": _shown(v)} for n, v in changes.items()
    ]
    return FixButton(label=", ".join(texts_of_changes), texts=json.dumps(texts))


def _shown(value: Value) -> str:
    if value is None or value == "":
        return _("not set")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    return f"{value:,}" if isinstance(value, int) else show(value)
