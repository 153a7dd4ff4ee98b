"""What a trainer refuses, as the oracle of our own rules."""

from dataclasses import dataclass
from typing import Any

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
