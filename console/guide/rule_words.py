"""What people call a rule."""


def rule_title(rule_id: str) -> str:
    """Return a rule's id as words: batch.updates_do_not_divide_samples is "Updates do not divide samples"."""
    words = rule_id.partition(".")[2].replace("_", " ")
    return words[:1].upper() + words[1:]
