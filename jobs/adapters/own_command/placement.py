"""A command of somebody's own: it takes devices of one node, and what it does with them only it knows."""

from jobs.catalog.spec.placement import Placement, group_size
from jobs.catalog.spec.runspec import RunSpec


class OwnCommandPlacement:
    """All devices are the policy's."""

    def pools(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        return {"policy": self.group(spec, "policy")}

    def workers(self, spec: RunSpec) -> dict[str, int]:
        """See Placement."""
        return {"policy": self.group(spec, "policy")}

    def group(self, spec: RunSpec, role: str) -> int:  # noqa: ARG002
        """See Placement."""
        return group_size(spec.values(), "policy")

    def num_engines(self, spec: RunSpec) -> int:  # noqa: ARG002
        """See Placement: none that Pitwall knows."""
        return 0


PLUGIN: Placement = OwnCommandPlacement()
