"""Logits and loss: bytes at the end of the forward pass, the usual cause of running out of memory.

Per token and vocabulary entry (planner reference, 2.4): logits of 2 bytes, their fp32 copy 4, log-softmax 4, its
gradient 4 and that of the logits 2, in the plain way; less where kernels fuse them. All results are bytes.
"""

import math

from jobs.planner.constant import Constants
from jobs.planner.job import Head, Training
from jobs.planner.shapes.model_shape import ModelShape

_BYTES: dict[Head, str] = {
    "unfused": "memory.logits_unfused",
    "compiled": "memory.logits_compiled",
    "parallel": "memory.logits_parallel",
    "inplace": "memory.logits_inplace",
    "chunked": "memory.logits_chunked",
}


def training_logits(t: Training, k: Constants) -> float:
    """Return bytes of logits and loss in training, on the stage that has the head; 0 for a head of one output.

    Chunks of tokens hold `head_chunk` tokens at once (all logits stay where `keeps_logits`), chunks of the vocabulary
    `head_chunk` entries of all tokens. A compiled loss keeps the logits alone, and writes their gradients from them.
    """
    if t.objective == "scalar":
        return 0.0
    tokens, entries = float(t.tokens), t.model.vocab / t.layout.tensor
    scale = 2.0 if t.compute == "fp32" and t.head in ("parallel", "inplace") else 1.0
    if t.head != "chunked":
        name = "memory.logits_entropy_compiled" if t.head == "inplace" else "memory.logits_entropy"
        entropy = k[name] if t.has_entropy else 0.0
        return tokens * entries * (k[_BYTES[t.head]] * scale + entropy)
    if t.head_axis == "vocabulary":
        return tokens * min(float(t.head_chunk or t.model.vocab), entries) * k["memory.logits_streamed"]
    size = math.ceil(tokens / t.head_chunks) if t.head_chunks else t.head_chunk
    chunk = min(float(size or tokens), tokens)
    if t.keeps_logits and t.kernels == "compiled":
        width = 4.0 if t.compute == "fp32" else 2.0
        return entries * (tokens * width + chunk * (k["memory.logits_parallel"] - width))
    kept = tokens * entries * k["memory.logits_kept"] if t.keeps_logits else 0.0
    return kept + chunk * entries * k["memory.logits_chunked"]


def scoring_logits(
    model: ModelShape, tokens: int, *, tensor: int, head: Head, head_chunk: int = 0, k: Constants
) -> float:
    """Return bytes of log-probabilities without gradients over all tokens of one pass; `head`, `head_chunk`: as it is
    trained. A head that is fused with its loss scores in the same chunks of tokens (a
    trainer that fuses it does so in both passes)."""
    each = k["memory.logits_parallel" if head in ("parallel", "inplace") else "memory.logits_forward"]
    if head == "chunked" and head_chunk:
        tokens = min(tokens, head_chunk)
    return tokens * model.vocab / tensor * each
