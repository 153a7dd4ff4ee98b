"""Which training data another trainer reads: a digest of the files, or the revision of a dataset of the hub.

The built-in trainer tells that of what it reads itself.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from jobs.adapters.inputs import MATERIALIZED, train_path
from jobs.catalog.spec.runspec import RunSpec

MAX_DATA_BYTES = 8 << 30  # half a minute of reading, beside the run
MAX_FILES = 10_000
_REVISION = "main"  # what trainers read that are told none


def data_digest(spec: RunSpec | None, run_dir: Path | None) -> str:
    """Return the SHA-256 of the files that the run trains on; why there is none, where there is none.

    That of one file is its own; that of several, or of a folder, is of their names and digests. "" for the built-in
    trainer and for a dataset of the hub.
    """
    if spec is None or spec.is_native or not (spec.data.kind == "path" or spec.data.kind in MATERIALIZED):
        return ""
    try:
        files = list(_files(train_path(spec), run_dir or Path()))
        size = sum(path.stat().st_size for _, path in files)
        if len(files) > MAX_FILES:
            return f"too large to hash: {len(files):,} files"
        if size > MAX_DATA_BYTES:
            return f"too large to hash: {size / 1e9:,.1f} GB"
        digests = [(name, _sha256(path)) for name, path in files]
    except OSError as error:
        return f"not hashed: {error.strerror or error}, {error.filename or train_path(spec)}"
    if len(digests) == 1:
        return digests[0][1]
    return hashlib.sha256("".join(f"{name}\0{digest}\n" for name, digest in digests).encode()).hexdigest()


def hub_revision(spec: RunSpec, environ: Mapping[str, str]) -> str:
    """Return the commit of a dataset of the hub that lies in this node's cache, "" where none does."""
    home = Path(environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    cache = Path(environ.get("HF_HUB_CACHE") or environ.get("HUGGINGFACE_HUB_CACHE") or home / "hub")
    ref = cache / f"datasets--{spec.data.id.replace('/', '--')}" / "refs" / _REVISION
    with contextlib.suppress(OSError, ValueError):  # a name that is no path, for instance
        return ref.read_text("utf-8").strip()[:64]
    return ""


def _files(named: str, run_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and place of each file: of a file itself, of a list divided by commas, of all in a folder.

    Raises: OSError for a path that is not there.
    """
    whole = run_dir / named
    places = [whole] if whole.exists() else [run_dir / each.strip() for each in named.split(",") if each.strip()]
    for place in places:
        if not place.is_dir():
            place.stat()
            yield place.name, place
            continue
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                if path.is_file():
                    yield str(path.relative_to(place)), path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
