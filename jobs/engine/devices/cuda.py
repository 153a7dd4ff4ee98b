"""CUDA: NCCL everywhere, one GPU per worker. Written after vLLM's and DeepSpeed's sources; docs/develop/engine.md
says what was not run.
"""

import base64
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from jobs.catalog.role import ROLES
from jobs.catalog.spec.runspec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor


_RANKS_PER_NODE = 8


class NcclSender:
    """Broadcast packed buffers with vLLM's own producer, which its `nccl` backend consumes."""

    def __init__(self, host: str, port: int, world_size: int) -> None:
        from vllm.distributed.weight_transfer.nccl_common import trainer_init

        self._group = trainer_init({"master_address": host, "master_port": port, "world_size": world_size})

    def send(self, weights: "Iterable[tuple[str, Tensor]]") -> None:
        """Send all tensors and wait until they have left."""
        import torch
        from vllm.distributed.weight_transfer.packed_tensor import (
            DEFAULT_PACKED_BUFFER_SIZE_BYTES,
            DEFAULT_PACKED_NUM_BUFFERS,
            packed_nccl_broadcast_producer,
        )

        # The producer packs on streams of its own, which wait for nothing: let the optimizer's last kernels finish.
        torch.cuda.current_stream().synchronize()
        packed_nccl_broadcast_producer(
            iterator=iter(weights),
            group=self._group,
            src=0,
            post_iter_func=lambda item: item[1],
            buffer_size_bytes=DEFAULT_PACKED_BUFFER_SIZE_BYTES,
            num_buffers=DEFAULT_PACKED_NUM_BUFFERS,
        )
        torch.cuda.current_stream().synchronize()

    def close(self) -> None:
        """Leave the group."""
        self._group.destroy()


class IpcLender:
    """Packed buffers on this rank's GPU, by vLLM's own producer, which its `ipc` backend opens in the engine.

    Handles go by the GPU's UUID: each worker of an engine takes that of the GPU it shares.
    """

    def __init__(self, capacity: int) -> None:
        import torch

        self._capacity = capacity
        self._gpu = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)

    def lend(self, weights: "Iterable[tuple[str, Tensor]]") -> Iterator[dict[str, Any]]:
        """See Lender. The producer waits for its copies before it yields, and frees its buffer at the end."""
        from vllm.distributed.weight_transfer.packed_tensor import packed_ipc_producer

        for chunk in packed_ipc_producer(
            iterator=iter(weights),
            gpu_uuid=self._gpu,
            post_iter_func=lambda item: item[1],
            buffer_size_bytes=self._capacity,
        ):
            yield {
                "names": chunk.names,
                "dtype_names": chunk.dtype_names,
                "shapes": chunk.shapes,
                "tensor_sizes": chunk.tensor_sizes,
                "ipc_handles": chunk.ipc_handle,
            }

    def end(self) -> None:
        """Free the buffer, which the engine has closed."""
        import torch

        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()


class Cuda:
    """The device kind `cuda`."""

    name = "cuda"
    collective_backend = "nccl"
    transfer_backend = "nccl"
    shared_transfer_backend = "ipc"
    gpus_per_worker = 1.0
    gives_back_memory = True
    nsys_trace = "cuda,nvtx"
    pins_memory = True
    compiles_layers = True

    def prepare_trainer(self) -> None:
        """Ray shows a worker its own GPU only, so it is device 0."""
        os.environ["DS_ACCELERATOR"] = "cuda"
        import torch

        torch.cuda.set_device(0)

    def prepare_host_optimizer(self, num_ranks: int) -> None:
        """Ray allows one thread for each CPU that it reserved, which is one. The ranks may all be on this node, up to
        the eight that nodes have.
        """
        import torch

        cores = len(os.sched_getaffinity(0))
        torch.set_num_threads(max(cores // min(num_ranks, _RANKS_PER_NODE), 1))

    def prepare_rollout(self, spec: RunSpec) -> None:
        """One worker can live in the engine's process; several need processes of their own, which take the handles of
        memory that the policy lends as a pickle of ours.
        """
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if spec.hardware.tensor_parallel_size == 1 else "1"
        if ROLES["vllm"].share_devices(spec) and spec.hardware.tensor_parallel_size > 1:
            os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"

    def torch_device(self) -> str:
        """The one GPU that Ray gave."""
        return "cuda:0"

    def rollout_arguments(self, spec: RunSpec) -> Mapping[str, Any]:
        """The share of the GPU that vLLM may fill, whether it captures CUDA graphs, and whether it can sleep."""
        return {
            "enable_sleep_mode": ROLES["vllm"].share_devices(spec),
            "gpu_memory_utilization": spec.float_knob("rollout.gpu_memory_fraction"),
            "enforce_eager": bool(spec.knob("rollout.enforce_eager")),
            "distributed_executor_backend": "uni" if spec.hardware.tensor_parallel_size == 1 else "mp",
        }

    def transfer_init(self, *, host: str, port: int, world_size: int, rank_offset: int) -> dict[str, object]:
        """The init info of vLLM's NCCL backend; both sides pack."""
        return {
            "master_address": host,
            "master_port": port,
            "world_size": world_size,
            "rank_offset": rank_offset,
            "packed": True,
        }

    def open_sender(self, *, host: str, port: int, world_size: int) -> NcclSender:
        """Join as rank 0."""
        return NcclSender(host, port, world_size)

    def shared_transfer_init(self, *, source: int) -> dict[str, object]:  # noqa: ARG002 (handles go by GPU)
        """The init info of vLLM's IPC backend; both sides pack."""
        return {"packed": True}

    def open_lender(self, *, rank: int, is_source: bool, capacity: int) -> IpcLender:  # noqa: ARG002
        """Every rank lends to the worker on its own GPU."""
        return IpcLender(capacity)

    def update_info(self, filling: dict[str, Any], spec: RunSpec) -> dict[str, Any]:
        """Handles hold torch's types, which go to workers in other processes as a pickle alone."""
        if spec.hardware.tensor_parallel_size == 1:
            return filling
        pickled = base64.b64encode(pickle.dumps(filling["ipc_handles"])).decode("ascii")
        return filling | {"ipc_handles": None, "ipc_handles_pickled": pickled}

    def release_memory(self) -> None:
        """Hand the cached blocks of torch's allocator back to the driver, for the other process on this GPU."""
        import torch

        torch.cuda.empty_cache()

    def memory_readings(self) -> dict[str, float]:
        """What torch holds on the GPU, in use and reserved; the most of each phase is told with its span."""
        import torch

        return {
            "device_memory_bytes": float(torch.cuda.memory_allocated()),
            "device_memory_reserved_bytes": float(torch.cuda.memory_reserved()),
        }

    def allocated_bytes(self) -> int:
        """What torch's allocator has given out; nothing before torch is there."""
        torch = sys.modules.get("torch")
        return int(torch.cuda.memory_allocated()) if torch is not None and torch.cuda.is_initialized() else 0

    def peak_bytes(self) -> tuple[int, int]:
        """What torch's allocator gave out and reserved at most."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return 0, 0
        return int(torch.cuda.max_memory_allocated()), int(torch.cuda.max_memory_reserved())

    def reset_peak(self) -> None:
        """Let torch's peaks begin at what is held now."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()


PLUGIN = Cuda()
