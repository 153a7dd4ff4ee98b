"""Names of events: long ones, as compilers make them of templates, stay apart; which ones hold a pattern."""

import re
from collections.abc import Sequence
from hashlib import sha256

LONGEST_NAME = 2000
_HASH = 12


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a text of at most `longest` characters that is another one for every other text: its end is a hash."""
    if len(text) <= longest:
        return text
    digest = sha256(text.encode(errors="replace")).hexdigest()[:_HASH]
    return f"{text[: longest - _HASH - 4]}... #{digest}"[:longest]


def numbers_of(names: Sequence[str], pattern: re.Pattern[str]) -> list[int]:
    """Return the numbers of those names in which the pattern is found."""
    return [number for number, name in enumerate(names) if pattern.search(name)]
