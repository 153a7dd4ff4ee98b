"""Where the actors of a trainer are that does not tell so itself: as Ray has it, asked by the runner's helper.

The trainer's jobs are those whose drivers are processes of the runner. Actors alone are seen, no tasks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import psutil
import ray
from ray._private import state  # the public API asks Ray's dashboard, which a cluster may have closed

LOOK_SECONDS = 10.0


class ActorNode(TypedDict):
    """A node as in the trainer's own note (docs/develop/protocol.md); `workers` are its actors, "WorkerDict-0"."""

    node: str
    index: int
    address: str
    name: str
    workers: list[str]


class JobNodes:
    """The nodes of the jobs that processes below `runner` have started; an index stays with its node."""

    def __init__(self, runner: int) -> None:
        self._runner = runner
        self._here: str = ray.get_runtime_context().get_node_id()
        self._indices = {self._here: 0}
        self.is_alone = False  # True once all actors have a place, on a cluster of one node

    def look(self) -> list[ActorNode]:
        """Return all nodes of the actors, that of the runner first, if there is one more than before; else nothing."""
        rows = {row["NodeID"]: row for row in ray.nodes() if row["Alive"]}
        actors = self._actors(str(rows.get(self._here, {}).get("NodeManagerAddress", "")))
        placed = [actor for actor in actors if actor["State"] == "ALIVE"]
        self.is_alone = len(rows) == 1 and len(actors) == len(placed) > 0
        by_node: dict[str, list[str]] = {self._here: []}
        counts: Counter[str] = Counter()
        for actor in sorted(placed, key=lambda actor: str(actor["ActorID"])):
            name = str(actor["ActorClassName"])
            by_node.setdefault(actor["Address"]["NodeID"], []).append(f"{name}-{counts[name]}")
            counts[name] += 1
        if by_node.keys() <= self._indices.keys():
            return []
        for node in by_node:
            self._indices.setdefault(node, len(self._indices))
        return [self._node(node, rows.get(node, {}), by_node.get(node, [])) for node in self._indices]

    def _actors(self, address: str) -> list[Mapping[str, Any]]:
        """Return the actors of the trainer's drivers that live or wait; `address` is that of this node."""
        pids = {process.pid for process in psutil.Process(self._runner).children(recursive=True)}
        jobs = {
            job["JobID"] for job in state.jobs() if job["DriverPid"] in pids and job["DriverIPAddress"] == address
        } - {ray.get_runtime_context().get_job_id()}
        if not jobs:
            return []
        return [each for each in state.actors().values() if each["JobID"] in jobs and each["State"] != "DEAD"]

    def _node(self, node: str, row: Mapping[str, Any], workers: list[str]) -> ActorNode:
        address = str(row.get("NodeManagerAddress", ""))
        name = str(row.get("NodeManagerHostname") or address)
        index = self._indices[node]
        # processes of the runner's node are told apart by what they say of themselves
        return {"node": node, "index": index, "address": address, "name": name, "workers": workers if index else []}


def sentence_of(nodes: Sequence[ActorNode]) -> str:
    """Return which actors are on other nodes than the runner's, for people."""
    parts = []
    for node in nodes:
        if node["index"] and node["workers"]:
            counts = Counter(worker.rpartition("-")[0] for worker in node["workers"])
            actors = ", ".join(f"{number} × {name}" for name, number in counts.items())
            where = node["name"] if node["name"] == node["address"] else f"{node['name']} ({node['address']})"
            parts.append(f"{actors} on node {node['index']}, {where}")
    return f"Actors on other nodes: {'; '.join(parts)}"
