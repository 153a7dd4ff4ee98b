"""The contract of a device kind, and the lookup of one in `devices/`: the only place that asks which device.

Files of the folder import torch, deepspeed and vLLM inside functions: the driver reads names and resources without
them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

from jobs.catalog.spec.runspec import RunSpec
from profiling import plugins


class Sender(Protocol):
    """The trainer's end of the weight transfer group; rank 0 of it."""

    def send(self, weights: Any) -> None:
        """Broadcast an iterable of (name, tensor) to every rollout worker, in the order of the announced metadata."""

    def close(self) -> None:
        """Leave the group."""


class Lender(Protocol):
    """A policy rank's end of a transfer to an engine on its own device: weights lie in memory that both can read."""

    def lend(self, weights: Any) -> Iterator[dict[str, Any]]:
        """Put an iterable of (name, tensor) into the shared memory, as much as fits at once, and yield each filling.

        A filling is the `update_info` of vLLM's `update_weights`: `names`, `dtype_names`, `shapes`, `tensor_sizes` in
        bytes, and `ipc_handles`, where the memory is, by device. The reader has to be done with one before the next is
        asked for.
        """

    def end(self) -> None:
        """Take back what the readers of the last filling have let go of."""


class Device(Protocol):
    """What differs between CPU and CUDA.

    `collective_backend` is torch.distributed's; `transfer_backend` and `shared_transfer_backend` are vLLM's
    weight-transfer backends, the second where engines share the policy's devices; `gpus_per_worker` is what Ray
    reserves for a worker besides CPUs. `gives_back_memory`: a sleeping engine and states that moved to the host leave
    room on the device, so that those who share it start one after the other and move; else none of it would change
    anything.
    """

    name: str
    collective_backend: str
    transfer_backend: str
    shared_transfer_backend: str
    gpus_per_worker: float
    gives_back_memory: bool
    nsys_trace: str
    """What nsys is to record of a worker, as it names it."""
    pins_memory: bool
    """Whether what is kept in host memory for the device is page-locked, which copies faster."""
    compiles_layers: bool
    """Whether torch.compile serves there (`kernels.compile_layers`)."""

    def prepare_trainer(self) -> None:
        """Set what must stand before torch and deepspeed are imported in a policy or reference process."""

    def prepare_host_optimizer(self, num_ranks: int) -> None:
        """Give this process, one of `num_ranks` that train, its share of the host's cores for the optimizer's step."""

    def prepare_rollout(self, spec: RunSpec) -> None:
        """Set what must stand before vLLM is imported."""

    def torch_device(self) -> str:
        """Return torch's name of this process's device."""

    def rollout_arguments(self, spec: RunSpec) -> Mapping[str, Any]:
        """Return the arguments of vLLM's LLM that depend on the device."""

    def transfer_init(self, *, host: str, port: int, world_size: int, rank_offset: int) -> dict[str, object]:
        """Return the worker side's init info of the transfer backend."""

    def open_sender(self, *, host: str, port: int, world_size: int) -> Sender:
        """Join the transfer group as rank 0; blocks until every rollout worker has joined."""

    def shared_transfer_init(self, *, source: int) -> dict[str, object]:
        """Return the worker side's init info of the shared backend; `source` is the first policy rank of the engine."""

    def open_lender(self, *, rank: int, is_source: bool, capacity: int) -> Lender:
        """Return a policy rank's end of the shared backend, with room for `capacity` bytes at once.

        `is_source`: an engine names this rank as its source. Others take part only in gathering shards, but for devices
        where each worker of an engine reads from its own.
        """

    def update_info(self, filling: dict[str, Any], spec: RunSpec) -> dict[str, Any]:
        """Return what was lent as vLLM's `update_weights` takes it, whatever process its workers are in."""

    def release_memory(self) -> None:
        """Give back what the allocator of this process keeps for later."""

    def memory_readings(self) -> dict[str, float]:
        """Return what the device's allocator says of this process (`device_memory_bytes`); empty on CPU."""

    def allocated_bytes(self) -> int:
        """Return the bytes this process holds of its device now, within microseconds; -1 where it has none."""

    def peak_bytes(self) -> tuple[int, int]:
        """Return the most that this process held of its device, and the most that its allocator reserved, since
        `reset_peak`; -1 where it has none.
        """

    def reset_peak(self) -> None:
        """Let the peaks begin at what is held now."""


def load_device(name: str) -> Device:
    """Return the device kind of that name. Raises: UnknownPlugin, naming those there are."""
    return cast(Device, plugins.load("jobs.engine.devices", name))
