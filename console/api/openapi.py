"""The API's OpenAPI document: made from the operations, and kept beside Python's compiled files until a source changes.

Making it takes a second or more, and longer while a console starts. So what was made is kept with the digest of
everything that it is made from; `make install` and the image's build make it (`manage.py openapi --keep`).
"""

import contextlib
import hashlib
import json
import os
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings

if TYPE_CHECKING:
    from ninja import NinjaAPI

_MADE_FROM = ("console", "jobs")
_SUFFIXES = (".py", ".toml")
_LIBRARIES = ("django-ninja", "pydantic")


def make_document(api: "NinjaAPI") -> dict[str, Any]:
    """Return the document, made anew."""
    from console.api.runs.spec_schema import refer_to_spec  # which loads the catalogue, and reading has no need of it

    return refer_to_spec(api.get_openapi_schema())


def kept_document() -> dict[str, Any] | None:
    """Return the document that was kept, or None if there is none of these sources."""
    with contextlib.suppress(OSError, ValueError):
        head, _newline, text = _place().read_text(encoding="utf-8").partition("\n")
        if head == _digest():
            document: dict[str, Any] = json.loads(text)
            return document
    return None


def keep_document(document: dict[str, Any]) -> None:
    """Keep a document of these sources, where the place can be written."""
    part = _place().with_name(f"{_place().name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(f"{_digest()}\n{json.dumps(document)}", encoding="utf-8")
        part.replace(_place())  # whole or not at all, whoever else does the same


def _place() -> Path:
    return Path(cache_from_source(__file__)).with_name("openapi.json")


@cache
def _digest() -> str:
    """Return one digest of the sources and of the libraries that turn them into a document."""
    base = Path(settings.BASE_DIR)
    digest = hashlib.sha256(repr([sys.version, *map(version, _LIBRARIES)]).encode())
    for folder in _MADE_FROM:
        for file in sorted(file for file in (base / folder).rglob("*") if file.suffix in _SUFFIXES):
            digest.update(f"\n{file.relative_to(base)}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
