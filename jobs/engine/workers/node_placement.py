"""On which node each worker runs, and what is read there: nodes share no file system with the driver's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_READ_SECONDS = 20.0  # a fresh process has to start there


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNode:
    """A node of the run: `ray_id` is Ray's id of it, `index` 0 that of the driver, the others count from 1."""

    ray_id: str
    index: int
    address: str
    name: str

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


def nodes_of(group: PlacementGroup) -> list[RunNode]:
    """Return the node of each bundle of a placed group, in their order."""
    here = ray.get_runtime_context().get_node_id()
    by_id = {row["NodeID"]: row for row in ray.nodes()}
    by_bundle: Mapping[int, str] = placement_group_table(group)["bundles_to_node_id"]
    indices = {here: 0}
    run_nodes = []
    for number in sorted(by_bundle):
        node = by_bundle[number]
        row = by_id.get(node, {})
        address = str(row.get("NodeManagerAddress", ""))
        name = str(row.get("NodeManagerHostname") or address)
        index = indices.setdefault(node, len(indices))
        run_nodes.append(RunNode(ray_id=node, index=index, address=address, name=name))
    return run_nodes


class NodeWorkers(TypedDict):
    """A node, as in RunNode, and the workers on it: "policy-0"."""

    node: str
    index: int
    address: str
    name: str
    workers: list[str]


def placement_note(workers: Sequence[tuple[str, int, RunNode]]) -> tuple[str, list[NodeWorkers]]:
    """Return a sentence on which worker runs where, and the same for programs; nothing if all run on the driver's node.

    `workers`: role, rank and node of each.
    """
    by_node: dict[RunNode, list[str]] = {}
    for role, rank, node in workers:
        by_node.setdefault(node, []).append(f"{role}-{rank}")
    nodes = sorted(by_node, key=lambda node: node.index)
    if all(node.index == 0 for node in nodes):
        return "", []
    parts = []
    for node in nodes:
        label = "the driver's node" if node.index == 0 else f"node {node.index}"
        parts.append(f"{', '.join(by_node[node]).replace('-', ' ')} on {label}, {node}")
    listed: list[NodeWorkers] = [
        {"node": n.ray_id, "index": n.index, "address": n.address, "name": n.name, "workers": by_node[n]} for n in nodes
    ]
    return f"Workers: {'; '.join(parts)}", listed


def read_there(node: RunNode, path: Path, *, skip_lines: int) -> list[str]:
    """Return the lines of a text file on another node after the first `skip_lines`; none if it cannot be had."""
    strategy = NodeAffinitySchedulingStrategy(node.ray_id, soft=False)
    reader = ray.remote(_lines).options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)
    try:
        return list(ray.get(reader.remote(str(path), skip_lines), timeout=_READ_SECONDS))
    except Exception:  # the node may be gone, and the file with it: what is known is told without
        return []


def _lines(path: str, skip: int) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[skip:]
    except OSError:
        return []
