"""On which node each worker sits, and what is read there: nodes share no file system with the driver's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_READ_SECONDS = 20.0  # a fresh process has to start there


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node of the run: `node` is Ray's id of it, `index` 0 that of the driver, the others count from 1."""

    node: str
    index: int
    address: str
    name: str

    def __str__(self) -> str:
        return self.name if self.name == self.address else f"{self.name} ({self.address})"


def places_of(group: PlacementGroup) -> list[Place]:
    """Return where each bundle of a placed group is, in their order."""
    here = ray.get_runtime_context().get_node_id()
    known = {row["NodeID"]: row for row in ray.nodes()}
    by_bundle: Mapping[int, str] = placement_group_table(group)["bundles_to_node_id"]
    indices = {here: 0}
    found = []
    for number in sorted(by_bundle):
        node = by_bundle[number]
        row = known.get(node, {})
        address = str(row.get("NodeManagerAddress", ""))
        name = str(row.get("NodeManagerHostname") or address)
        index = indices.setdefault(node, len(indices))
        found.append(Place(node=node, index=index, address=address, name=name))
    return found


class NodeWorkers(TypedDict):
    """A node, as in Place, and the workers on it: "policy-0"."""

    node: str
    index: int
    address: str
    name: str
    workers: list[str]


def told(workers: Sequence[tuple[str, int, Place]]) -> tuple[str, list[NodeWorkers]]:
    """Return a sentence on who sits where, and the same for programs; nothing if all sit with the driver.

    `workers`: role, rank and place of each.
    """
    by_place: dict[Place, list[str]] = {}
    for role, rank, place in workers:
        by_place.setdefault(place, []).append(f"{role}-{rank}")
    places = sorted(by_place, key=lambda place: place.index)
    if all(place.index == 0 for place in places):
        return "", []
    parts = []
    for place in places:
        label = "the driver's node" if place.index == 0 else f"node {place.index}"
        parts.append(f"{', '.join(by_place[place]).replace('-', ' ')} on {label}, {place}")
    nodes: list[NodeWorkers] = [
        {"node": p.node, "index": p.index, "address": p.address, "name": p.name, "workers": by_place[p]} for p in places
    ]
    return f"Workers: {'; '.join(parts)}", nodes


def read_there(place: Place, path: Path, *, skip_lines: int) -> list[str]:
    """Return the lines of a text file on another node after the first `skip_lines`; none if it cannot be had."""
    strategy = NodeAffinitySchedulingStrategy(place.node, soft=False)
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
