"""CPU: gloo everywhere, vLLM in process. Why each setting stands is measured in docs/develop/engine.md."""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jobs.catalog.spec.runspec import RunSpec

if TYPE_CHECKING:
    from torch import Tensor

_MIB = 1 << 20
_STEP_TOKENS = 8192  # prompt tokens that vLLM takes into one step
_JOIN = timedelta(seconds=120)


class GlooSender:
    """Broadcast tensor by tensor over a gloo group of its own, beside the trainer's default group."""

    def __init__(self, host: str, port: int, world_size: int) -> None:
        from jobs.engine.roles.gloo_group import join_group

        self._group = join_group(host=host, port=port, rank=0, world_size=world_size, timeout=_JOIN)

    def send(self, weights: "Iterable[tuple[str, Tensor]]") -> None:
        """Send each tensor; gloo copies from the tensor itself, so it must be contiguous."""
        for _, tensor in weights:
            self._group.broadcast(tensor.contiguous(), 0).wait()

    def close(self) -> None:
        """The group ends with the process; gloo has no other end."""


class MemoryLender:
    """Weights in anonymous shared memory, which ends with the processes that have it open.

    `rank` names it to the engine that reads it. A rank without a reader has none and only goes through the weights.
    """

    def __init__(self, rank: int, capacity: int, *, is_source: bool) -> None:
        from jobs.engine.roles.shared_memory import SharedMemory

        self._rank, self._capacity = str(rank), capacity
        self._memory = SharedMemory(capacity) if is_source else None

    def lend(self, weights: "Iterable[tuple[str, Tensor]]") -> Iterator[dict[str, Any]]:
        """See Lender."""
        from jobs.engine.roles.shared_memory import fillings

        for filling in fillings(weights, memory=self._memory, capacity=self._capacity):
            handles = {self._rank: self._memory.handle} if self._memory is not None else {}
            yield filling | {"ipc_handles": handles}

    def end(self) -> None:
        """The memory is used again."""


class Cpu:
    """The device kind `cpu`."""

    name = "cpu"
    collective_backend = "gloo"
    transfer_backend = "gloo"
    shared_transfer_backend = "shared_memory"
    gpus_per_worker = 0.0
    gives_back_memory = False
    nsys_trace = "nvtx"
    pins_memory = False
    compiles_layers = False  # its workers are forked from a warm process, where compiling is off

    def prepare_trainer(self) -> None:
        """One thread per rank; DeepSpeed on its CPU accelerator, which otherwise looks for one on its own."""
        os.environ["DS_ACCELERATOR"] = "cpu"
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def prepare_host_optimizer(self, num_ranks: int) -> None:
        """The threads that it has: the model is computed by the same cores."""

    def prepare_rollout(self, spec: RunSpec) -> None:
        """Everything in one process: it saves two more imports of vLLM, 8 s each. No compilation: 10 s for two tiny
        functions.
        """
        in_process = spec.hardware.tensor_parallel_size == 1
        os.environ.update(
            {
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if in_process else "1",
                "TORCHDYNAMO_DISABLE": "1",
                "OMP_NUM_THREADS": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            }
        )

    def torch_device(self) -> str:
        """The CPU."""
        return "cpu"

    def rollout_arguments(self, spec: RunSpec) -> Mapping[str, Any]:
        """A fixed KV cache (else vLLM claims 92 % of the node); the `mp` executor where there are several workers.

        A prompt is never split over two steps: for the piece before the last vLLM takes back the draw of the sample's
        own generator, which torch's CPU generator cannot do. So one step must hold the longest sequence.
        """
        longest = spec.int_knob("rollout.max_prompt_tokens") + spec.int_knob("rollout.max_new_tokens")
        return {
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(_STEP_TOKENS, longest),
            "kv_cache_memory_bytes": spec.int_knob("rollout.kv_cache_mib") * _MIB,
            "distributed_executor_backend": "uni" if spec.hardware.tensor_parallel_size == 1 else "mp",
            "enforce_eager": True,
        }

    def transfer_init(self, *, host: str, port: int, world_size: int, rank_offset: int) -> dict[str, object]:
        """The init info of our gloo backend."""
        return {"host": host, "port": port, "world_size": world_size, "rank_offset": rank_offset}

    def open_sender(self, *, host: str, port: int, world_size: int) -> GlooSender:
        """Join as rank 0."""
        return GlooSender(host, port, world_size)

    def shared_transfer_init(self, *, source: int) -> dict[str, object]:
        """The init info of our shared_memory backend."""
        return {"source": str(source)}

    def open_lender(self, *, rank: int, is_source: bool, capacity: int) -> MemoryLender:
        """All workers of an engine read what the first of its ranks lends."""
        return MemoryLender(rank, capacity, is_source=is_source)

    def update_info(self, filling: dict[str, Any], spec: RunSpec) -> dict[str, Any]:  # noqa: ARG002 (numbers and text)
        """As it is."""
        return filling

    def release_memory(self) -> None:
        """There is no allocator but the process's own."""

    def memory_readings(self) -> dict[str, float]:
        """A CPU process has no memory but its own."""
        return {}

    def allocated_bytes(self) -> int:
        """As above."""
        return -1

    def peak_bytes(self) -> tuple[int, int]:
        """As above."""
        return -1, -1

    def reset_peak(self) -> None:
        """As above."""


PLUGIN = Cpu()
