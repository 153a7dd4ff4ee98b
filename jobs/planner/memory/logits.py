"""Logits and loss: bytes at the end of the forward pass, the usual cause of running out of memory.

Per token and vocabulary entry (docs/develop/planner-formulas.md): log-softmax 4 bytes, its gradient 4 and that of the
fp32 logits 4, in the plain way, where what the allocator keeps of the 16-bit logits comes on top; 4 more over shards of
the vocabulary; less where kernels fuse them. All results are bytes.
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
    "half": lambda memory: memory.logits_half,
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
        usual = memory.logits_divided if _is_divided(training) else _BYTES[training.head](memory)
        each = training.logit_bytes or usual * scale + entropy
        return tokens * entries * each
    if training.head_axis == "vocabulary":
        return (
            tokens * min(float(training.head_chunk or training.model.vocab), entries) * constants.memory.logits_streamed
        )
    chunk = min(float(_chunk_tokens(training) or tokens), tokens)
    if training.keeps_logits and training.kernels == "compiled":
        width = 4.0 if training.compute == "fp32" else 2.0
        return entries * (tokens * width + chunk * (constants.memory.logits_parallel - width))
    stored = tokens * entries * constants.memory.logits_kept if training.keeps_logits else 0.0
    is_liger = training.kernels == "liger" and not training.keeps_logits
    each = constants.memory.logits_liger if is_liger else constants.memory.logits_chunked
    return stored + chunk * entries * (training.logit_bytes or each)


def logit_gaps(training: Training, constants: Constants) -> float:
    """Return bytes that the allocator keeps beside whole logits: blocks of the 16-bit ones, which those in fp32 cannot
    take."""
    if training.objective == "scalar" or training.head != "unfused" or training.logit_bytes:
        return 0.0
    memory = constants.memory
    each = memory.logits_gaps_expandable if training.allocator == "expandable" else memory.logits_gaps
    return training.tokens * training.model.vocab / training.layout.tensor * each


def _is_divided(training: Training) -> bool:
    """Return whether PyTorch's own loss works on shards of the vocabulary (loss_parallel), as FSDP2's trainers have it
    under tensor parallelism."""
    return training.head == "unfused" and training.family == "fsdp" and training.layout.tensor > 1


def _chunk_tokens(training: Training) -> int:
    """Return the tokens of one chunk of the head, 0 for all. Liger takes so many that the logits of a chunk are no
    wider than the hidden state of all tokens, rounded up to a power of two (ops/fused_linear_cross_entropy.py)."""
    if training.head_chunks:
        return math.ceil(training.tokens / training.head_chunks)
    if training.head_chunk or training.kernels != "liger":
        return training.head_chunk
    wider = -(-training.model.vocab // training.model.hidden)
    return 1 << (-(-training.tokens // wider) - 1).bit_length()


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
    is_narrow = head in ("parallel", "inplace", "half")
    each = constants.memory.logits_parallel if is_narrow else constants.memory.logits_forward
    if head == "chunked" and head_chunk:
        tokens = min(tokens, head_chunk)
    return tokens * model.vocab / tensor * (logit_bytes or each)
