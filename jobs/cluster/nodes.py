"""What an attempt ran on: the cluster's nodes as Ray counted them when its job was handed over, and which are its own.

A run that is over is planned on this, whatever the cluster has by then (jobs.planning.run_plan). `Attempt.ran_on` is

    {"nodes": [{"accelerator", "gpus", "cpus", "memory_bytes", "count", "ids"}],
     "node": Ray's id of its runner's node, "address": that node's}

Nodes of one kind are one entry, with the least memory of them; their `ids` are kept where there are several kinds that
have GPUs. {} stands for an attempt that was not handed over, or that is older than this column.
"""

from collections.abc import Iterable
from typing import TypedDict

from jobs.catalog.trainer import BUILT_IN, trainers
from jobs.cluster.ray_api import ClusterState, Node, cluster_state
from jobs.models import Attempt, RunEvent


class PlaceUnknown(LookupError):
    """The cluster had several kinds of devices, and nothing tells which the attempt took; `kinds` names them."""

    def __init__(self, kinds: Iterable[str]) -> None:
        self.kinds = tuple(sorted(set(kinds)))
        super().__init__(", ".join(self.kinds))


def keep_cluster(attempt: Attempt, state: ClusterState) -> None:
    """Keep the cluster's nodes with an attempt whose job is about to be handed over; what is kept already stays."""
    if attempt.ran_on or not state.is_reachable:
        return
    attempt.ran_on = {"nodes": _by_kind(state.nodes)}
    Attempt.objects.filter(pk=attempt.pk, ran_on={}).update(ran_on=attempt.ran_on)


def keep_node(attempt: Attempt, node: str) -> None:
    """Keep on which node the attempt's runner is, and its address, once Ray has said so."""
    if not node or not attempt.ran_on or attempt.ran_on.get("address"):
        return
    address = next((each.address for each in cluster_state().nodes if each.id == node), "")
    place = {"node": node, "address": address}
    if not place.items() <= attempt.ran_on.items():
        attempt.ran_on = {**attempt.ran_on, **place}
        Attempt.objects.filter(pk=attempt.pk).update(ran_on=attempt.ran_on)


def runner_node(attempt: Attempt, state: ClusterState) -> Node | None:
    """Return the node that the attempt's runner was on, as the cluster has it now; None if it is not there.

    A node gets another id when Ray is started again, and keeps its address.
    """
    node, address = attempt.ran_on.get("node"), attempt.ran_on.get("address")
    same = [each for each in state.nodes if each.id == node or (address and each.address == address)]
    return max(same, key=lambda each: each.id == node, default=None)


class NodeKind(TypedDict):
    """Nodes alike, as an attempt keeps them: what each has at least, how many, and Ray's ids where kinds are mixed."""

    accelerator: str
    gpus: float
    cpus: float
    memory_bytes: float
    count: int
    ids: list[str]


def devices_text(attempt: Attempt) -> str:
    """Return how many devices of which kind the attempt took: "8 × H200", "8 × H200 / L4" where it may be either,
    "CPU", "" where nothing was kept."""
    rows = attempt.ran_on.get("nodes", ())
    kinds = sorted({row["accelerator"] or "GPU" for row in rows if row["gpus"] >= 1})
    if not rows or (attempt.num_gpus and not kinds):
        return ""
    return f"{attempt.num_gpus:g} × {' / '.join(kinds)}" if attempt.num_gpus else "CPU"


def cluster_of(attempt: Attempt) -> ClusterState | None:
    """Return the cluster as the attempt found it, without nodes whose GPUs it did not have; None if nothing was kept.

    Raises: PlaceUnknown.
    """
    rows = attempt.ran_on.get("nodes", ())
    if not rows:
        return None
    kinds = [row for row in rows if row["gpus"] >= 1]
    if attempt.num_gpus and len(kinds) > 1:
        rows = _where_it_was(attempt, kinds)
    nodes = tuple(node for row in rows for node in _nodes(row))
    return ClusterState(
        is_reachable=True,
        problem="",
        away_since=None,
        nodes=nodes,
        cpus_total=sum(node.cpus for node in nodes),
        gpus_total=sum(node.gpus for node in nodes),
    )


def _by_kind(nodes: Iterable[Node]) -> list[NodeKind]:
    """Return the nodes, those of one kind as one entry."""
    alike: dict[tuple[str, float], list[Node]] = {}
    for node in nodes:
        alike.setdefault((node.accelerator, node.gpus), []).append(node)
    is_mixed = sum(gpus >= 1 for _, gpus in alike) > 1
    return [
        {
            "accelerator": accelerator,
            "gpus": gpus,
            "cpus": min(node.cpus for node in same),
            "memory_bytes": min(node.memory_bytes for node in same),
            "count": len(same),
            "ids": [node.id for node in same] if is_mixed and gpus >= 1 else [],
        }
        for (accelerator, gpus), same in alike.items()
    ]


def _nodes(row: NodeKind) -> Iterable[Node]:
    for number in range(int(row["count"])):
        yield Node(
            id=f"{row['accelerator'] or 'node'}-{number}",
            address="",
            is_head=False,
            cpus=row["cpus"],
            gpus=row["gpus"],
            memory_bytes=row["memory_bytes"],
            accelerator=row["accelerator"],
        )


def _where_it_was(attempt: Attempt, kinds: list[NodeKind]) -> list[NodeKind]:
    """Return the nodes that the attempt's workers were on, by kind. Raises: PlaceUnknown."""
    own = _own_nodes(attempt)
    earlier: list[NodeKind] = [{**row, "count": len(own & set(row["ids"]))} for row in kinds if own & set(row["ids"])]
    if not earlier:
        raise PlaceUnknown(row["accelerator"] or "?" for row in kinds)
    return earlier


def _own_nodes(attempt: Attempt) -> set[str]:
    """Return Ray's ids of the nodes that the attempt's workers were on, as far as it is known.

    The built-in trainer tells them if they are not all its driver's. A trainer that is the runner's child, which holds
    its GPUs, is where the runner is. Of the Ray workers of other trainers nobody tells.
    """
    notes = RunEvent.objects.filter(run_id=attempt.run_id, attempt=attempt.number, verb="note", data__has_key="nodes")
    data = notes.order_by("-pk").values_list("data", flat=True).first()
    if data is not None and isinstance(data["nodes"], list):  # what a trainer says may be anything
        return {str(node.get("node")) for node in data["nodes"] if isinstance(node, dict)}
    spec = attempt.run.spec
    name = spec.get("trainer", {}).get("name", BUILT_IN)
    node = attempt.ran_on.get("node", "")
    return {node} if node and (name == BUILT_IN or not trainers()[name].uses_ray(spec["algorithm"])) else set()
