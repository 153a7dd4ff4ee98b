"""The OpenAPI document as the console serves it: made once in a process, because that takes seconds."""

from typing import Any

from console.api import docs
from console.api.api import api
from console.api.openapi import keep_document, kept_document


def document() -> dict[str, Any]:
    """Return the document."""
    made: dict[str, Any] = docs.document(api)
    if kept_document() is None:  # the other processes of the tests, and their consoles, read it then
        keep_document(made)
    return made
