"""Bytes that devices exchange in training, and the seconds of it that computing does not hide.

Volumes per rank are those of ring collectives: a gather or a reduction to shares of n ranks moves (n-1)/n of the whole
(docs/develop/planner-formulas.md). In an exchange of all with all each rank sends what leaves its node by its own card,
and what stays over the link. Ranks are placed as Megatron places them: tensor parallelism innermost, then context
and sequence, then data, stages of a pipeline outermost; what spans nodes shares their network with the groups beside
it.
"""

from dataclasses import dataclass

from jobs.catalog.accelerator import Accelerator
from jobs.planner.constant import Constants
from jobs.planner.job import Fleet, Training

_HALF = 2  # bytes of an element of activations and of gathered weights
_NIC_SHARE = 1 / 9  # of the link in a node: 400 Gb/s beside 450 GB/s of NVLink, 200 beside 300 at most
_BEHIND_A_SWITCH = 2  # devices: boards of eight have four switches (NVIDIA's DGX A100, H100)
_BEHIND_A_SWITCH_PCIE = 4  # of cards without a link of their own: eight on two switches
_NIC_RATE = 50e9  # 400 Gb/s a device, which nodes of Blackwell keep beside twice the link


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one rank of a group gets of a link: bytes/s one way, and seconds before a message moves."""

    bandwidth: float
    latency: float
    is_local: bool

    def gather(self, size: float, ranks: int) -> float:
        """Return seconds of gathering `size` bytes that `ranks` hold in shares, or of reducing them to shares."""
        if ranks <= 1 or size <= 0:
            return 0.0
        return size * (ranks - 1) / ranks / self.bandwidth + self.latency * (1 if self.is_local else 2)

    def send(self, size: float) -> float:
        """Return seconds of sending `size` bytes to one other rank."""
        return size / self.bandwidth + self.latency


def card_bandwidth(accelerator: Accelerator) -> float:
    """Return bytes/s, one way, of the network card that a device with a link of its own has beside it: a ninth of that
    link, and no more than 400 Gb/s."""
    return min(accelerator.link_bandwidth * _NIC_SHARE, _NIC_RATE)


def host_bandwidth(fleet: Fleet, num_devices: int) -> float:
    """Return bytes/s, one way, between host memory and each of `num_devices` that move at once: devices share the link
    of the switch that they sit behind, two on a board with links between devices, four where there are none."""
    shared = _BEHIND_A_SWITCH_PCIE if fleet.accelerator.link == "pcie" else _BEHIND_A_SWITCH
    return fleet.accelerator.pcie_bandwidth / min(shared, num_devices, fleet.devices_per_node)


def node_bandwidth(fleet: Fleet) -> float:
    """Return bytes/s out of a node, one way: as given, or assumed from how its devices are joined.

    Devices with a link of their own stand in nodes with a network card each; others share one card of 12.5 GB/s.
    """
    if fleet.node_bandwidth:
        return fleet.node_bandwidth
    if fleet.accelerator.link == "pcie":
        return 12.5e9
    return card_bandwidth(fleet.accelerator) * fleet.devices_per_node


def _joined(fleet: Fleet) -> int:
    """Return devices that one link joins: racks whose link reaches over nodes count as one."""
    return max(fleet.accelerator.domain, fleet.devices_per_node)


def link_of(fleet: Fleet, ranks: int, stride: int, constants: Constants) -> Link:
    """Return the link of a group of `ranks`, `stride` devices apart: in a node (or larger domain), or between."""
    accelerator = fleet.accelerator
    span = min(ranks * stride, fleet.num_devices)
    joined = _joined(fleet)
    if span <= joined:
        bandwidth = accelerator.link_bandwidth if span <= accelerator.domain else accelerator.pcie_bandwidth
        if not accelerator.has_peer_to_peer:
            bandwidth *= constants.network.staged_share
        return Link(
            bandwidth=bandwidth * constants.network.link_share,
            latency=constants.network.link_latency,
            is_local=True,
        )
    beside = min(stride, joined)
    share = node_bandwidth(fleet) * (joined / fleet.devices_per_node) / beside
    bandwidth = min(share * constants.network.node_share, accelerator.link_bandwidth * constants.network.link_share)
    return Link(bandwidth=bandwidth, latency=constants.network.node_latency, is_local=False)


def exposed(communication: float, computing: float, overlap: float) -> float:
    """Return the seconds of communication that computing does not hide: it hides no more than `overlap` of itself."""
    return max(communication - overlap * computing, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Seconds that a rank communicates. Per micro-batch: `tensor`, `experts`, `context`, `pipeline`, `gather` of
    sharded weights and `scatter` of gradients; per optimizer step: `gradients` (and gathering what was updated)."""

    tensor: float = 0.0
    experts: float = 0.0
    context: float = 0.0
    pipeline: float = 0.0
    gather: float = 0.0
    scatter: float = 0.0
    gradients: float = 0.0


def exchange_of(
    training: Training,
    fleet: Fleet,
    *,
    tokens: float,
    layers: float,
    parameters: float,
    experts: float,
    constants: Constants,
) -> Exchange:
    """Return what a rank of a pipeline stage exchanges.

    tokens: of one micro-batch on one rank. layers: of the stage. parameters, experts: elements of the stage on one
    rank's tensor (and expert) share, before data parallelism shards them, routed experts apart.
    """
    layout, model = training.layout, training.model
    forward, backward = 1 + (training.checkpointing == "full"), 1
    passes = forward + backward
    inner = layout.tensor
    tensor = link_of(fleet, layout.tensor, 1, constants)
    whole = _HALF * tokens * model.hidden
    seconds_tensor = 0.0
    if layout.tensor > 1:  # two gathers and two reductions per layer and pass, whatever the order of sharding
        seconds_tensor = layers * passes * 4 * tensor.gather(whole, layout.tensor)
        seconds_tensor *= 1 - (
            constants.network.tensor_overlap if training.kernels in ("megatron", "compiled") else 0.0
        )
    seconds_context = _context_seconds(
        training, fleet, tokens=tokens, layers=layers, passes=passes, stride=inner, constants=constants
    )
    inner *= layout.context * layout.ulysses
    seconds_experts = 0.0
    if layout.expert > 1 and model.experts:
        routed = sum(layer.is_moe for layer in model.layers) / model.num_layers * layers
        seconds_experts = routed * passes * 2 * dispatch_seconds(training, fleet, tokens, constants)
    seconds_pipeline = 0.0
    if layout.pipeline > 1:
        link = link_of(fleet, 2, max(layout.num_devices // layout.pipeline, 1), constants)
        seconds_pipeline = 2 * layout.virtual * link.send(whole / layout.tensor)
    gather, scatter, gradients = _data_seconds(
        training, fleet, parameters=parameters, experts=experts, forward=forward, constants=constants
    )
    return Exchange(
        tensor=seconds_tensor,
        experts=seconds_experts,
        context=seconds_context,
        pipeline=seconds_pipeline,
        gather=gather,
        scatter=scatter,
        gradients=gradients,
    )


def all_to_all(fleet: Fleet, size: float, ranks: int, stride: int, constants: Constants) -> float:
    """Return seconds in which each of `ranks`, `stride` devices apart, sends `size` bytes, an equal part to each.

    What stays in the node and what leaves it move at once.
    """
    if ranks <= 1 or size <= 0:
        return 0.0
    near = min(max(_joined(fleet) // stride, 1), ranks)
    link = link_of(fleet, near, stride, constants)
    inside = size * (near - 1) / ranks / link.bandwidth / constants.network.exchange_share
    if near == ranks:
        return inside + link.latency
    outside = size * (ranks - near) / ranks / (_card(fleet) * constants.network.node_share)
    return max(inside, outside) + constants.network.node_latency


def dispatch_seconds(training: Training, fleet: Fleet, tokens: float, constants: Constants) -> float:
    """Return seconds to send the tokens of a micro-batch to the experts of a layer, or back.

    All to all, a token is sent for each of its experts. A dispatcher of its own kernels sends it once to each other
    node and, in a node, to each other rank, that has one: of n places that the k experts of a token fall into at
    random, n (1 - (1 - 1/n)^k) have any.
    """
    layout, model = training.layout, training.model
    token = _HALF * tokens / layout.tensor * model.hidden
    if training.dispatcher == "alltoall":
        return all_to_all(fleet, token * model.experts_per_token, layout.expert, 1, constants)
    near = min(_joined(fleet), layout.expert)
    link = link_of(fleet, near, 1, constants)
    reached = _reached(layout.expert, model.experts_per_token) * (near - 1) / layout.expert
    inside = token * reached / link.bandwidth / constants.network.flex_share
    if near == layout.expert:
        return inside + link.latency
    nodes = -(-layout.expert // near)
    left = _reached(nodes, model.experts_per_token) * (nodes - 1) / nodes
    outside = token * left / (_card(fleet) * constants.network.flex_node_share)
    return max(inside, outside) + constants.network.node_latency


def _reached(places: int, experts: int) -> float:
    """Return of how many of `places` some of a token's experts are, where any is as likely as any other."""
    return places * (1 - (1 - 1 / places) ** experts)


def _card(fleet: Fleet) -> float:
    """Return a device's part of its node's network, bytes/s one way."""
    return node_bandwidth(fleet) / fleet.devices_per_node


def _context_seconds(
    training: Training, fleet: Fleet, *, tokens: float, layers: float, passes: int, stride: int, constants: Constants
) -> float:
    """Return seconds of context parallelism per micro-batch: a ring of keys and values (backward twice as much), or
    Ulysses' exchange of heads."""
    layout, model = training.layout, training.model
    total = 0.0
    if layout.context > 1:
        link = link_of(fleet, layout.context, stride, constants)
        block = _HALF * tokens * 2 * model.kv / layout.tensor
        total += layers * (passes + 1) * (layout.context - 1) * link.send(block)
    if layout.ulysses > 1:
        heads = _HALF * tokens * (2 * model.query + 2 * model.kv) / layout.tensor
        total += layers * passes * all_to_all(fleet, heads, layout.ulysses, stride * layout.context, constants)
    return total


def _data_seconds(
    training: Training, fleet: Fleet, *, parameters: float, experts: float, forward: int, constants: Constants
) -> tuple[float, float, float]:
    """Return seconds per micro-batch of gathering weights and of reducing gradients, and per step of the rest."""
    layout = training.layout
    stride = layout.tensor
    link = link_of(fleet, layout.shard_ranks, stride, constants)
    expert_link = link_of(fleet, layout.expert_data, layout.expert_tensor * layout.expert, constants)
    groups = ((parameters, layout.shard_ranks, link), (experts, layout.expert_data, expert_link))
    gather = scatter = gradients = 0.0
    sent = training.reduced_bytes or training.gradient_bytes
    trained = 1.0 if training.method == "full" else 0.0  # of adapters, gradients are too small to matter
    for elements, ranks, each in groups:
        if ranks <= 1 or not elements:
            continue
        if layout.shards >= 3:
            again = forward if training.family == "deepspeed" else 1  # a unit of FSDP is whole before it computes again
            passes = again + 1 if training.resharded else 1
            gather += passes * each.gather(_HALF * elements, ranks)
            scatter += trained * each.gather(sent * elements, ranks)
        else:
            gradients += trained * each.gather(sent * elements, ranks)
            gradients += trained * each.gather((sent if not layout.shards else _HALF) * elements, ranks)
    if layout.shards >= 3 and training.defers_reduction:
        return gather, 0.0, gradients + scatter
    return gather, scatter, gradients
