"""Seconds in which engines get the weights that were trained, by the way on which they travel.

Every way has a start, a price per tensor and a rate (network.sync_*), each measured of that way alone. Differences
between ways are larger than those between networks: a call per tensor costs what a gigabyte costs.

    ipc        colocated: tensors gathered in their group, and handles of memory handed over
    tensors    one call per tensor, gathered from the stages and expert ranks that hold it
    buckets    packed into buffers that many ranks send
    packed     packed into buffers that one rank sends at the rate of its network card
    broadcast  packed into buffers that one rank sends to all engines
    deltas     what has changed, found and sent by every rank for its share

Docs: docs/develop/planner-formulas.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.planner.constant import Constants
from jobs.planner.job import Fleet, Job, SyncTransport, Training
from jobs.planner.result import Interval, around
from jobs.planner.shapes.model_shape import ModelShape
from jobs.planner.time.network import card_bandwidth, link_of, node_bandwidth

_HALF = 2  # bytes of an element of weights as they travel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """What one transport costs: seconds to start, per tensor, and bytes/s of all weights. `local_*`: in one node."""

    start: float
    per_tensor: float
    rate: float
    local_start: float
    local_per_tensor: float
    local_rate: float


def matrices(model: ModelShape) -> int:
    """Return how many tensors a model has, each expert's counted alone: what a sync that sends one by one sends."""
    per_mlp = 3 if model.is_gated else 2
    total = 3
    for layer in model.layers:
        total += 6 + (model.attention_kind == "mla") * 3 + 2 * model.has_qk_norm
        total += per_mlp * bool(layer.mlp) + (per_mlp * model.experts + 1 if layer.is_moe else 0)
    return total


def transport_of(job: Job) -> SyncTransport:
    """Return the way that a job's weights travel: as its trainer's reader has it, or what is usual of its placement.

    Buffers of FSDP and DeepSpeed are filled by one rank, which has gathered all; Megatron's stages and expert ranks
    send what each of them holds.
    """
    if job.placement != "split":
        return "ipc"
    if job.sync_transport:
        return job.sync_transport
    if not job.sync_bucket_bytes:
        return "tensors"
    return "buckets" if job.policy.family == "megatron" else "broadcast"


def sync_seconds(job: Job, constants: Constants) -> Interval:
    """Return seconds of one weight sync, as sure as its transport was measured (network.sync_band_*).

    Networks, gathers and releases of a trainer make the same transport several times as fast or slow.
    """
    transport = transport_of(job)
    seconds = weight_sync_seconds(
        job.policy, job.fleet, constants, transport=transport, engine_devices=job.engine_devices
    )
    return around(seconds, constants.value(_BANDS[transport]))


def weight_sync_seconds(
    training: Training, fleet: Fleet, constants: Constants, *, transport: SyncTransport, engine_devices: int
) -> float:
    """Return seconds of one sync of `training` to engines on `engine_devices` of their own (not for "ipc")."""
    if transport == "ipc":
        return _colocated(training, fleet, constants)
    size, tensors, way = _HALF * training.model.parameters, matrices(training.model), _way(transport, fleet, constants)
    if training.layout.num_devices + engine_devices <= max(fleet.devices_per_node, fleet.accelerator.domain):
        senders = min(training.layout.num_devices, engine_devices) if transport == "buckets" else 1
        rate = min(fleet.accelerator.link_bandwidth * constants.network.link_share, way.local_rate)
        return way.local_start + tensors * way.local_per_tensor + size / senders / rate
    rate = min(way.rate, node_bandwidth(fleet) * constants.network.node_share)
    return way.start + tensors * way.per_tensor + size / rate


def _colocated(training: Training, fleet: Fleet, constants: Constants) -> float:
    """Return seconds where engine and trainer share devices: every device is handed every tensor, gathered from
    wherever it is, and loads its part. Small tensors cost a call each, large ones their bytes."""
    network, layout = constants.network, training.layout
    size, tensors = _HALF * training.model.parameters, matrices(training.model)
    spread = layout.num_devices if layout.shards >= 3 else layout.tensor * layout.pipeline * layout.expert
    group = link_of(fleet, min(spread, layout.num_devices), 1, constants)
    is_near = min(spread, layout.num_devices) <= max(fleet.devices_per_node, fleet.accelerator.domain)
    calls = tensors * (network.sync_ipc_local_tensor_seconds if is_near else network.sync_ipc_tensor_seconds)
    return network.sync_ipc_seconds + max(calls, size / min(group.bandwidth, network.sync_ipc_rate))


def _way(transport: SyncTransport, fleet: Fleet, constants: Constants) -> _Route:
    n = constants.network
    near = {
        "local_start": n.sync_seconds,
        "local_per_tensor": n.sync_local_tensor_seconds,
        "local_rate": n.sync_local_rate,
    }
    if transport == "tensors":
        return _Route(start=n.sync_seconds, per_tensor=n.sync_tensor_seconds, rate=n.sync_tensor_rate, **near)
    if transport == "buckets":
        near["local_per_tensor"] = 0.0
        return _Route(start=n.sync_seconds, per_tensor=n.sync_bucket_tensor_seconds, rate=n.sync_bucket_rate, **near)
    if transport == "packed":
        rate = card_bandwidth(fleet.accelerator) * n.node_share
        return _Route(start=n.sync_seconds, per_tensor=n.sync_packed_tensor_seconds, rate=rate, **near)
    per_tensor, rate = n.sync_broadcast_tensor_seconds, n.sync_broadcast_rate
    if transport == "deltas":
        per_tensor, rate = 0.0, n.sync_delta_rate
    return _Route(
        start=n.sync_group_seconds,
        per_tensor=per_tensor,
        rate=rate,
        local_start=n.sync_group_local_seconds,
        local_per_tensor=per_tensor,
        local_rate=rate,
    )


_BANDS: Mapping[SyncTransport, str] = {
    "ipc": "network.sync_band_ipc",
    "tensors": "network.sync_band_tensors",
    "buckets": "network.sync_band_buckets",
    "packed": "network.sync_band_packed",
    "broadcast": "network.sync_band_broadcast",
    "deltas": "network.sync_band_deltas",
}
