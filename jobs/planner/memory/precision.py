"""Which types a training holds, gathers and passes on, where what it holds is wider than what it computes with.

FSDP's own mixed precision casts weights as they are gathered, so that the whole pass runs in the type that is computed
in. torch.autocast leaves them as they are: each product casts its inputs, additions and norms do not, and so the hidden
state between them has the type of the embedding's weights. Counted with hooks on saved tensors of Transformers' modules
on a CPU (tests/jobs/planner/memory/test_precision.py).
"""

from jobs.planner.job import Training

_FP32 = 4.0


def compute_bytes(training: Training) -> float:
    """Return bytes of an element of what is computed with: fp8 keeps its tensors in bf16 and casts inside."""
    return _FP32 if training.compute == "fp32" else 2.0


def ends_bytes(training: Training) -> float:
    """Return bytes of an element of embedding, head and norms as they are held."""
    if training.method == "full":
        return training.weight_bytes
    if training.method == "lora":
        return training.base_bytes
    return training.ends_bytes or compute_bytes(training)


def is_autocast(training: Training) -> bool:
    """Return whether torch.autocast casts what operations take: where it is said, and where weights are wider than
    what is computed with and nothing shards them, as nothing else could cast them then."""
    if training.compute == "fp32" or training.mixed_precision == "pure":
        return False
    if training.mixed_precision == "autocast":
        return True
    return training.family == "plain" and ends_bytes(training) > compute_bytes(training)


def gathered_bytes(training: Training) -> float:
    """Return bytes of an element of what sharding gathers of embedding, head and of matrices that are not packed."""
    return ends_bytes(training) if is_autocast(training) else compute_bytes(training)


def stream_width(training: Training) -> float:
    """Return bytes of an element of the hidden state between layers, in elements of what is computed with: 2 where it
    is fp32, else 1. It is by autocast; and peaks of Transformers' modules over a base that FSDP shards and that is
    narrower than the adapters beside it are as if it were, under a Trainer that casts (PEFT's page on Llama-2-70B,
    PD05; fms-acceleration, JK11 and JK15; what makes it so was not found), not where 16 bits alone are held and nothing
    casts."""
    is_beside = training.method != "full" and training.base_bytes < trained_bytes(training)
    is_sharded = training.family == "fsdp" and training.layout.num_devices > 1
    is_cast = training.compute != "fp32" and training.mixed_precision != "pure"
    if is_beside and is_sharded and training.kernels in ("eager", "liger") and is_cast:
        return 2.0
    return max(gathered_bytes(training) / compute_bytes(training), 1.0)


def trained_bytes(training: Training) -> float:
    """Return bytes of an element of what is trained, as it is held."""
    return training.weight_bytes if training.method == "full" else training.adapter_bytes or training.weight_bytes


def casts_inputs_of_adapters(training: Training) -> bool:
    """Return whether each adapter has its own copy of what goes in: PEFT casts it to the adapter's type, which is
    fp32 where the trainer does not cast weights, and autocast casts it back (tuners/lora/layer.py)."""
    if training.method == "full" or training.kernels == "megatron" or training.family in ("megatron", "deepspeed"):
        return False
    is_cast_by_sharding = training.family == "fsdp" and training.mixed_precision == "fsdp"
    return trained_bytes(training) > compute_bytes(training) and not is_cast_by_sharding
