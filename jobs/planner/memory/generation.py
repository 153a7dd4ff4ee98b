"""Memory while the trainer itself generates, without an engine: its weights as a whole, a cache, one token's logits.

Under ZeRO-3 and FSDP trainers gather the whole model before they generate, as each token would gather every layer anew.
Transformers keeps keys and values of each sequence of a batch up to its longest (cache_utils.py, DynamicCache), and
logits of the last token in 16 bits and in fp32 (generation/utils.py, _sample).
"""

from jobs.planner.job import Training
from jobs.planner.memory.activations import forward_elements
from jobs.planner.memory.precision import compute_bytes
from jobs.planner.memory.stages import Stage, stage_share
from jobs.planner.memory.states import States
from jobs.planner.result import Term
from jobs.planner.serving.kv_cache import token_bytes

_LOGITS = 6.0  # bytes of one: 16 bits and fp32


def generation_terms(training: Training, stage: Stage, held: States, *, rows: int, length: int) -> dict[Term, float]:
    """Return bytes of one rank while it generates `rows` sequences of up to `length` tokens, beside what it holds."""
    model, layout, width = training.model, training.layout, compute_bytes(training)
    gathered, is_packed = 0.0, training.method == "qlora"
    if layout.shards == 3 and layout.num_devices > 1:
        gathered = stage_share(stage, model, layout).total * (training.base_bytes if is_packed else width)
    each = token_bytes(model.layers, layout.tensor, width)
    tokens = min(rows * length, training.tokens)  # of prompts, which a first pass reads together
    return {
        "weights": held.weights + gathered,
        "optimizer": held.optimizer,
        "kv_cache": rows * length * each / layout.pipeline,
        "activations": width * tokens * forward_elements(model, tensor=layout.tensor),
        "logits": rows * model.vocab / layout.tensor * _LOGITS,
    }
