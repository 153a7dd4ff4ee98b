"""The roles of TRL's processes, which are no Ray actors. It has no profiler of its own that writes files."""

from jobs.adapters.captures import NoCaptures
from jobs.catalog.spec.runspec import RunSpec


class TrlCaptures(NoCaptures):
    """Every process trains, whatever else it does on its device."""

    def role_of(self, *, spec: RunSpec, actor: str) -> str:  # noqa: ARG002
        """See Captures."""
        return "" if actor else "policy"
