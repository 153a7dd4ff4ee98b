"""The code that a run takes to the cluster: one zip, the same bytes for the same sources.

Ray keeps packages by name; ours is the hash of the content, so that each version is uploaded once.
"""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

PARTS = ("jobs/engine", "jobs/box", "jobs/runner", "jobs/adapters", "jobs/catalog", "profiling")
"""What the cluster side consists of; `jobs/__init__.py` comes with it. None of it imports Django."""

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can name
_LEFT_OUT = ("__pycache__",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A zip and its address in Ray's package store."""

    uri: str
    content: bytes


@cache
def package() -> Package:
    """Return the package of the sources as they were when this process first asked."""
    content = build(sources())
    # Ray's own form (ray/_private/runtime_env/packaging.py, get_uri_for_package); sha1 names, it does not protect
    digest = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    return Package(uri=f"gcs://_ray_pkg_{digest}.zip", content=content)


def sources() -> dict[str, bytes]:
    """Return path in the package -> content of every file of the cluster side."""
    contents = {"jobs/__init__.py": (files("jobs") / "__init__.py").read_bytes()}
    for part in PARTS:
        top, *rest = part.split("/")
        _collect(files(top).joinpath(*rest), part, contents)
    return contents


def build(contents: dict[str, bytes]) -> bytes:
    """Return a zip of `contents` whose bytes depend on nothing else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, wherever it is built
            info.external_attr = 0o644 << 16
            archive.writestr(info, contents[name])
    return buffer.getvalue()


def _collect(folder: Traversable, prefix: str, contents: dict[str, bytes]) -> None:
    for entry in folder.iterdir():
        path = f"{prefix}/{entry.name}"
        if entry.is_dir() and entry.name not in _LEFT_OUT:
            _collect(entry, path, contents)
        elif entry.is_file() and Path(entry.name).suffix != ".pyc":
            contents[path] = entry.read_bytes()
