"""Seconds in which engines get the weights that were trained, by the way on which they travel.

Every way has a start, a price per tensor and a rate (network.sync_*), each measured of that way alone. Differences
between ways are larger than those between networks: a call per tensor costs what a gigabyte costs.

    ipc        colocated: buffers of tensors gathered in their group, and a handle of memory for each buffer
    handles    colocated: a handle for each tensor, which is a call of its own
    tensors    one call per tensor, gathered from the stages and expert ranks that hold it
    buckets    packed into buffers that many ranks send
    packed     packed into buffers that one rank sends
    broadcast  packed into buffers that one rank has gathered and sends to all engines
    deltas     what has changed, found and sent by every rank for its share

Experts are most tensors of a mixture. Where ranks of expert parallelism convert those that they hold, their price is
divided by these ranks; an engine that loads them is paid for in the rate.

Docs: docs/develop/planner-formulas.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jobs.planner.constant import Constants
from jobs.planner.job import Fleet, Job, SyncTransport, Training
from jobs.planner.result import Interval, around
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.time.network import node_bandwidth

_HALF = 2  # bytes of an element of weights as they travel


@dataclass(frozen=True, slots=True)
class _Route:
    """What one transport costs: seconds to start, per tensor of no expert, per expert's tensor, and bytes/s."""

    start: float
    per_tensor: float
    per_expert: float
    rate: float


def matrices(model: ModelShape) -> int:
    """Return how many tensors a model has, each expert's counted alone: what a sync that sends one by one sends."""
    per_mlp = 3 if model.is_gated else 2
    total = 3
    for layer in model.layers:
        total += 6 + (model.attention_kind == "mla") * 3 + 2 * model.has_qk_norm
        total += per_mlp * bool(layer.mlp) + (per_mlp * model.experts + 1 if layer.is_moe else 0)
    return total


def expert_matrices(model: ModelShape) -> int:
    """Return how many of a model's tensors are its routed experts'."""
    return (3 if model.is_gated else 2) * model.experts * sum(layer.is_moe for layer in model.layers)


def transport_of(job: Job) -> SyncTransport:
    """Return the way that a job's weights travel: as its trainer's reader has it, or what is usual of its placement.

    Buffers of FSDP and DeepSpeed are filled by one rank, which has gathered all; Megatron's stages and expert ranks
    send what each of them holds. Where devices are shared, a trainer that sends tensor by tensor hands over a handle
    for each.
    """
    if job.placement != "split":
        return "handles" if job.sync_transport == "tensors" else "ipc"
    if job.sync_transport:
        return job.sync_transport
    if not job.sync_bucket_bytes:
        return "tensors"
    return "buckets" if job.policy.family == "megatron" else "broadcast"


def sync_seconds(job: Job, constants: Constants) -> Interval:
    """Return seconds of one weight sync, as sure as its transport was measured (network.sync_band_*).

    Gathers and releases of a trainer make the same transport several times as fast or slow. A broadcast between nodes
    whose network nobody measured may take as long as a slow one does (network.sync_slow_rate).
    """
    transport = transport_of(job)
    width = job.engine.weight_bytes if job.engine else None
    factor = constants.network.sync_quantized if width is not None and width < _HALF else 1.0
    closed = transport in _SHARED and job.policy.offload.copies_process
    made = constants.network.sync_regroup_seconds if closed else 0.0

    def seconds(fleet: Fleet) -> float:
        devices = job.engine_devices
        alone = weight_sync_seconds(job.policy, fleet, constants, transport=transport, engine_devices=devices)
        return factor * alone + made

    estimate = around(seconds(job.fleet), constants.value(_BANDS[transport]))
    if transport != "broadcast" or job.fleet.node_bandwidth:
        return estimate
    slow = seconds(replace(job.fleet, node_bandwidth=constants.network.sync_slow_rate))
    return replace(estimate, high=max(estimate.high, slow))


def weight_sync_seconds(
    training: Training, fleet: Fleet, constants: Constants, *, transport: SyncTransport, engine_devices: int
) -> float:
    """Return seconds of one sync of `training` to engines on `engine_devices` of their own (0 where they share the
    trainer's), which hold weights as they are sent."""
    if transport in _SHARED:
        return _colocated(training, fleet, constants, transport)
    layout, model = training.layout, training.model
    is_near = layout.num_devices + engine_devices <= _joined(fleet)
    way = _route(transport, constants, is_near=is_near, is_sharded=layout.shards >= 3)
    experts = expert_matrices(model)
    ranks = layout.expert if transport in ("buckets", "broadcast") else 1
    calls = (matrices(model) - experts) * way.per_tensor + experts * way.per_expert / ranks
    # Of an expert few elements change in a step: tokens reach each as seldom as they reach its share of all.
    size = _HALF * (model.active_parameters if transport == "deltas" else model.parameters)
    waited = _fetched(training, constants) + _gathered(training, fleet, constants, transport)
    return way.start + calls + waited + size / min(way.rate, _wire(fleet, constants, is_near=is_near))


def _colocated(training: Training, fleet: Fleet, constants: Constants, transport: SyncTransport) -> float:
    """Return seconds where engine and trainer share devices: every device is handed every tensor, gathered from
    wherever it is, and loads its part. One buffer is gathered while another is loaded; a handle is waited for."""
    n, layout, model = constants.network, training.layout, training.model
    moved = _HALF * model.parameters / n.sync_ipc_rate
    if transport == "handles":
        return n.sync_ipc_seconds + matrices(model) * n.sync_handle_seconds + moved
    spread = layout.num_devices if layout.shards >= 3 else layout.tensor * layout.pipeline * layout.expert
    is_near = min(spread, layout.num_devices) <= _joined(fleet)
    price = n.sync_ipc_expert_seconds if is_near else n.sync_ipc_far_expert_seconds
    return n.sync_ipc_seconds + max(expert_matrices(model) * price, moved)


def _fetched(training: Training, constants: Constants) -> float:
    """Return seconds in which weights that wait in host memory come to the devices, tensor by tensor."""
    if not training.offload.params_between_phases:
        return 0.0
    local = training.model.parameters * training.weight_bytes / max(training.layout.num_devices, 1)
    return local / constants.network.sync_fetch_rate


def _gathered(training: Training, fleet: Fleet, constants: Constants, transport: SyncTransport) -> float:
    """Return seconds in which a rank that sends all gathers what other nodes hold, one tensor at a time, in the type
    that it is held in. Within a node that is part of the rate."""
    layout = training.layout
    if transport != "broadcast" or layout.shards < 3 or layout.shard_ranks * layout.tensor <= _joined(fleet):
        return 0.0
    size = training.model.parameters * training.weight_bytes
    return size / min(constants.network.sync_gather_rate, _wire(fleet, constants, is_near=False))


def _wire(fleet: Fleet, constants: Constants, *, is_near: bool) -> float:
    """Return bytes/s between trainer and engines: of the link in a node, or of what a node has of the network."""
    if is_near:
        return fleet.accelerator.link_bandwidth * constants.network.link_share
    return node_bandwidth(fleet) * constants.network.node_share


def _joined(fleet: Fleet) -> int:
    """Return devices that one link joins."""
    return max(fleet.devices_per_node, fleet.accelerator.domain)


def _route(transport: SyncTransport, constants: Constants, *, is_near: bool, is_sharded: bool) -> _Route:
    n = constants.network
    start = n.sync_group_local_seconds if is_near else n.sync_group_seconds
    match transport:
        case "tensors" if is_near:
            price = n.sync_local_tensor_seconds
            return _Route(n.sync_seconds, price, price, n.sync_local_rate)
        case "tensors":
            return _Route(n.sync_seconds, n.sync_tensor_seconds, n.sync_tensor_seconds, n.sync_tensor_rate)
        case "buckets":
            prices = n.sync_bucket_tensor_seconds, n.sync_bucket_expert_seconds
            return _Route(n.sync_bucket_seconds, *prices, n.sync_bucket_rate)
        case "packed":
            rate = n.sync_packed_sharded_rate if is_sharded else n.sync_packed_rate
            return _Route(n.sync_bucket_seconds, 0.0, 0.0, rate)
        case "broadcast":
            return _Route(start, 0.0, n.sync_broadcast_expert_seconds, n.sync_broadcast_rate)
        case _:
            return _Route(start, 0.0, n.sync_delta_expert_seconds, n.sync_delta_rate)


_SHARED: tuple[SyncTransport, ...] = ("ipc", "handles")
"""Ways between processes of the same devices."""

_BANDS: Mapping[SyncTransport, str] = {
    "ipc": "network.sync_band_ipc",
    "handles": "network.sync_band_handles",
    "tensors": "network.sync_band_tensors",
    "buckets": "network.sync_band_buckets",
    "packed": "network.sync_band_packed",
    "broadcast": "network.sync_band_broadcast",
    "deltas": "network.sync_band_deltas",
}
