"""Long names, as compilers make them of templates: what is too long to keep stays a name of its own."""

from hashlib import sha256

LONGEST_NAME = 2000
_HASH = 12


def shortened(text: str, longest: int = LONGEST_NAME) -> str:
    """Return a text of at most `longest` characters that is another one for every other text: its end is a hash."""
    if len(text) <= longest:
        return text
    digest = sha256(text.encode(errors="replace")).hexdigest()[:_HASH]
    return f"{text[: longest - _HASH - 4]}... #{digest}"[:longest]
