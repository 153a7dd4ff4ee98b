"""The OpenAPI document as the console serves it: made once in a process, because that takes seconds."""

from typing import Any

from console.api import docs
from console.api.api import api


def document() -> dict[str, Any]:
    """Return the document."""
    made: dict[str, Any] = docs.document(api)
    return made
