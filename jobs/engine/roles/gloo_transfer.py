"""The worker side of the `gloo` weight-transfer backend for vLLM, so that CPU uses the same lifecycle calls as NCCL on
GPU.

vLLM's own backends need CUDA. Weights go through the layerwise reload, because on CPU vLLM has packed every linear
weight and emptied the parameter; a plain `load_weights` would fail or leave stale weights. Importing this module
registers the backend.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from jobs.engine.roles.gloo_group import join_group

_JOIN = timedelta(seconds=120)


@dataclass
class GlooInit(WeightTransferInitInfo):
    """Where policy rank 0 listens, and at which rank this engine's workers start."""

    host: str
    port: int
    world_size: int
    rank_offset: int


@dataclass
class GlooUpdate(WeightTransferUpdateInfo):
    """What is about to be broadcast, in order."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


Init = TypeVar("Init", bound=WeightTransferInitInfo)
Update = TypeVar("Update", bound=WeightTransferUpdateInfo)


class LayerwiseTransfer(WeightTransferEngine[Init, Update]):
    """A backend that loads checkpoint-format weights, however they come."""

    def start_weight_update(self) -> None:
        """Open the layerwise reload."""
        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """Close the reload, then pack the tied output layer again."""
        finalize_layerwise_reload(self.model, self.model_config)
        refresh_tied_head(self.model, self.model_config.hf_config)

    def shutdown(self) -> None:
        """What it has open ends with the process."""


class GlooTransfer(LayerwiseTransfer[GlooInit, GlooUpdate]):
    """Receive checkpoint-format weights over gloo."""

    init_info_cls = GlooInit
    update_info_cls = GlooUpdate

    def init_transfer_engine(self, init_info: GlooInit) -> None:
        """Join the group."""
        config = self.parallel_config
        rank = config.data_parallel_index * config.world_size + config.rank + init_info.rank_offset
        self._group = join_group(
            host=init_info.host, port=init_info.port, rank=rank, world_size=init_info.world_size, timeout=_JOIN
        )

    def receive_weights(self, update_info: GlooUpdate) -> None:
        """Receive each tensor and load it."""

        def received() -> Iterator[tuple[str, torch.Tensor]]:
            for name, dtype, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True):
                weight = torch.empty(shape, dtype=getattr(torch, dtype))
                self._group.broadcast(weight, 0).wait()
                yield name, weight

        self.model.load_weights(received())


def refresh_tied_head(model: torch.nn.Module, config: Any) -> None:
    """Pack the output layer anew where it shares the embedding's weight.

    The layerwise reload does not know that the two are one: the embedding is new, the packed copy of the output layer
    is old, and every logit is wrong by nats. Untied output layers are reloaded like any other.
    """
    if getattr(config, "tie_word_embeddings", False):
        for module in model.modules():
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)


WeightTransferEngineFactory.register_engine("gloo", GlooTransfer)
