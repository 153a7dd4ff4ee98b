"""The OpenAPI document, made once for all tests of a process: it takes seconds."""

from functools import cache
from typing import Any

from console.api.api import api


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    return dict(api.get_openapi_schema(path_prefix="/api/"))
