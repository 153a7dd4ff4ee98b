"""What people call a rule."""

_NAMES = {
    name.lower(): name
    for name in (
        *("Adam", "CPU", "CUDA", "DRO", "FP8", "GPU", "GPUs", "GRPO", "KL", "LoRA", "Liger", "Megatron", "PPO"),
        *("Parquet", "Python", "QAT", "RLOO", "Ray", "SFT", "SGLang", "URL", "YaRN", "vLLM"),
    )
}
"""Words of ids that are names, by how they stand there."""


def rule_title(rule_id: str) -> str:
    """Return a rule's id as words: batch.updates_do_not_divide_samples is "Updates do not divide samples"."""
    words = " ".join(_NAMES.get(word, word) for word in rule_id.partition(".")[2].split("_"))
    return words if words.startswith("vLLM") else words[:1].upper() + words[1:]
