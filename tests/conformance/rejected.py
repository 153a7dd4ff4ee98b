"""What a trainer refuses, as the oracle of our own rules."""

from dataclasses import dataclass
from typing import Any

from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A spec that a trainer refuses. `says` is a part of what it says, `fields` what a refusal of ours has to name."""

    rule: str
    spec: RunSpec
    says: str
    fields: tuple[str, ...]

    @property
    def raw(self) -> dict[str, Any]:
        """The spec as it comes from outside, for `parse_spec` and the rules."""
        return to_json(self.spec)

    @property
    def is_refused_here(self) -> bool:
        """True if our own checks refuse the spec and name one of the fields that make it so."""
        try:
            spec = parse_spec(self.raw)
        except SpecInvalid as error:
            named = {problem.field for problem in error.problems}
        else:
            named = {knob for found in findings(spec) if found.level == "error" for knob in found.knobs}
        return not {name.removeprefix("knobs.") for name in named}.isdisjoint(
            name.removeprefix("knobs.") for name in self.fields
        )
