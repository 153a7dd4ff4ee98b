"""What a label of a single response may be in the data."""

_WORDS = {
    "true": True,
    "1": True,
    "yes": True,
    "desirable": True,
    "false": False,
    "0": False,
    "-1": False,
    "no": False,
    "undesirable": False,
}


def as_label(value: object) -> bool | None:
    """Return whether a label says desirable; None if it is none: true and false, 1, 0 and -1, or these as words."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _WORDS.get(str(value).strip().lower()) if isinstance(value, bool | int | str) else None
