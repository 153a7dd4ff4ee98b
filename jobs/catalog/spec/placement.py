"""Which devices a run asks of the cluster: its pools, and the ranks of each role. Each trainer has a way of its own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from jobs.catalog.trainer import part

if TYPE_CHECKING:  # a spec asks for its own placement
    from jobs.catalog.spec.runspec import RunSpec

Values = Mapping[str, Any]


class Placement(Protocol):
    """The placement of one trainer's runs: `placement.py` of its folder."""

    def pools(self, spec: "RunSpec") -> dict[str, int]:
        """Return devices by pool; roles that share a pool stand in its name, joined by "+"."""
        ...

    def workers(self, spec: "RunSpec") -> dict[str, int]:
        """Return role -> ranks; a rollout engine is one rank, however many devices it is spread over."""
        ...

    def group(self, spec: "RunSpec", role: str) -> int:
        """Return the devices on which policy, reference, critic or reward model work."""
        ...

    def num_engines(self, spec: "RunSpec") -> int:
        """Return the number of rollout engines."""
        ...


def placement_of(spec: "RunSpec") -> Placement:
    """Return the placement of the spec's trainer."""
    loaded: Placement = part(spec.trainer.name, "placement")
    return loaded


def group_size(values: Values, role: str) -> int:
    """Return nodes times GPUs per node, as the knobs of a role's group have them."""
    nodes = values.get(f"placement.{role}_nodes", 1)
    return int(nodes or 0) * int(values.get(f"placement.{role}_gpus_per_node", 1) or 0)
