"""Logits and loss: bytes at the end of the forward pass, the usual cause of running out of memory.

Per token and vocabulary entry (docs/develop/planner-formulas.md): logits of 2 bytes, their fp32 copy 4, log-softmax 4,
its gradient 4 and that of the logits 2, in the plain way; less where kernels fuse them. All results are bytes.
"""

import math
from collections.abc import Callable

from jobs.planner.constant import Constants
from jobs.planner.constant_groups import MemoryConstants
from jobs.planner.job import Head, Training
from jobs.planner.shapes.model_shape import ModelShape

_BYTES: dict[Head, Callable[[MemoryConstants], float]] = {
    "unfused": lambda memory: memory.logits_unfused,
    "compiled": lambda memory: memory.logits_compiled,
    "parallel": lambda memory: memory.logits_parallel,
    "inplace": lambda memory: memory.logits_inplace,
    "chunked": lambda memory: memory.logits_chunked,
}


def training_logits(training: Training, constants: Constants) -> float:
    """Return bytes of logits and loss in training, on the stage that has the head; 0 for a head of one output.

    Chunks of tokens hold `head_chunk` tokens at once (all logits stay where `keeps_logits`), chunks of the vocabulary
    `head_chunk` entries of all tokens. A compiled loss keeps the logits alone, and writes their gradients from them.
    """
    if training.objective == "scalar":
        return 0.0
    tokens, entries = float(training.tokens), training.model.vocab / training.layout.tensor
    scale = 2.0 if training.compute == "fp32" and training.head in ("parallel", "inplace") else 1.0
    if training.head != "chunked":
        memory, entropy = constants.memory, 0.0
        if training.has_entropy:
            entropy = memory.logits_entropy_compiled if training.head == "inplace" else memory.logits_entropy
        each = training.logit_bytes or _BYTES[training.head](memory) * scale + entropy
        return tokens * entries * each
    if training.head_axis == "vocabulary":
        return (
            tokens * min(float(training.head_chunk or training.model.vocab), entries) * constants.memory.logits_streamed
        )
    size = math.ceil(tokens / training.head_chunks) if training.head_chunks else training.head_chunk
    chunk = min(float(size or tokens), tokens)
    if training.keeps_logits and training.kernels == "compiled":
        width = 4.0 if training.compute == "fp32" else 2.0
        return entries * (tokens * width + chunk * (constants.memory.logits_parallel - width))
    stored = tokens * entries * constants.memory.logits_kept if training.keeps_logits else 0.0
    return stored + chunk * entries * (training.logit_bytes or constants.memory.logits_chunked)


def scoring_logits(
    model: ModelShape,
    tokens: int,
    *,
    tensor: int,
    head: Head,
    head_chunk: int = 0,
    logit_bytes: float = 0.0,
    constants: Constants,
) -> float:
    """Return bytes of log-probabilities without gradients over all tokens of one pass; `head`, `head_chunk`: as it is
    trained; `logit_bytes` as counted, 0: as usual. A head that is fused with its loss scores in the same chunks of
    tokens (a trainer that fuses it does so in both passes)."""
    each = constants.memory.logits_parallel if head in ("parallel", "inplace") else constants.memory.logits_forward
    if head == "chunked" and head_chunk:
        tokens = min(tokens, head_chunk)
    return tokens * model.vocab / tensor * (logit_bytes or each)
