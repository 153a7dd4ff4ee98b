"""The worker side of the `shared_memory` weight-transfer backend for vLLM: what CUDA IPC is on a GPU, on CPU.

The engine sits on the node of the policy ranks whose devices it shares, and reads the weights where the first of them
has put them (shared_memory.py). Importing this module registers the backend.
"""

from dataclasses import dataclass

from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from jobs.engine.roles.gloo_transfer import LayerwiseTransfer
from jobs.engine.roles.shared_memory import open_memory, unpacked


@dataclass
class SharedInit(WeightTransferInitInfo):
    """Which policy rank lends to this engine."""

    source: str


@dataclass
class SharedUpdate(WeightTransferUpdateInfo):
    """What lies in the shared memory now, in order, and by rank where that is; the fields of vLLM's packed IPC."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]
    tensor_sizes: list[int]
    ipc_handles: dict[str, tuple[int, int]]


class SharedTransfer(LayerwiseTransfer[SharedInit, SharedUpdate]):
    """Load checkpoint-format weights from memory of a policy rank."""

    init_info_cls = SharedInit
    update_info_cls = SharedUpdate

    def init_transfer_engine(self, init_info: SharedInit) -> None:
        """Remember whose memory it is; each update says where."""
        self._source = init_info.source

    def receive_weights(self, update_info: SharedUpdate) -> None:
        """Load what lies there."""
        process, number = update_info.ipc_handles[self._source]
        self.model.load_weights(unpacked(update_info, open_memory((process, number))))


WeightTransferEngineFactory.register_engine("shared_memory", SharedTransfer)
