"""What people call a rule."""

from django.utils.translation import gettext as _

from jobs.catalog.trainer import trainers

_NAMES = {
    name.lower(): name
    for name in (
        *("Adam", "CPU", "CPUs", "CUDA", "DAPO", "DeepEP", "DeepSpeed", "DRO", "FP8", "GPU", "GPUs", "GRPO"),
        *("GSPO", "JSON", "KL", "KV", "Liger", "LoRA", "Megatron", "NCCL", "NPU", "Parquet", "PPO"),
        *("Python", "QAT", "Ray", "RL", "RLOO", "SFT", "SGLang", "SwanLab", "URL", "vLLM", "YaRN"),
        *(trainer.label for trainer in trainers().values() if trainer.package),
    )
} | {"wandb": "W&B"}
"""Words of ids that are names, by how they stand there."""


def rule_title(rule_id: str) -> str:
    """Return what people call a rule, in the reader's language."""
    return _(rule_name(rule_id))


def rule_name(rule_id: str) -> str:
    """Return a rule's id as words: batch.updates_do_not_divide_samples is "Updates do not divide samples"."""
    words = " ".join(_NAMES.get(word, word) for word in rule_id.partition(".")[2].split("_"))
    return words if words.partition(" ")[0] in _NAMES.values() else words[:1].upper() + words[1:]
