"""The contract of a device kind, and the lookup of one in `devices/`: the only place that asks which device.

Files of the folder import torch, deepspeed and vLLM inside functions: the driver reads names and resources without
them.
"""

from collections.abc import Mapping
from typing import Any, Protocol, cast

from jobs.catalog.spec.runspec import RunSpec
from profiling import plugins


class Sender(Protocol):
    """The trainer's end of the weight transfer group; rank 0 of it."""

    def send(self, weights: Any) -> None:
        """Broadcast an iterable of (name, tensor) to every rollout worker, in the order of the announced metadata."""

    def close(self) -> None:
        """Leave the group."""


class Device(Protocol):
    """What differs between CPU and CUDA.

    `collective_backend` is torch.distributed's, `transfer_backend` vLLM's weight-transfer backend, `gpus_per_worker`
    what Ray reserves for a worker besides CPUs.
    """

    name: str
    collective_backend: str
    transfer_backend: str
    gpus_per_worker: float
    nsys_trace: str
    """What nsys is to record of a worker, as it names it."""
    pins_memory: bool
    """Whether what is kept in host memory for the device is page-locked, which copies faster."""

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
