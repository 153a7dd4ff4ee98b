"""A whole capture as one zip, made while it is sent: its files, their checksums, and how to open them."""

import asyncio
import hashlib
import io
import json
import re
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _

from jobs.models import Artifact, Capture, Run

PIECE_BYTES = 256 * 1024
SUMS = "SHA256SUMS"
_DATE = (2026, 1, 1, 0, 0, 0)  # of every entry: the same capture is the same zip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of the zip: its name there, where its bytes are, and what they must sum up to."""

    name: str
    path: Path
    sha256: str
    artifact: Artifact


class _Sink(io.RawIOBase):
    """What a zip is written to: keeps the bytes until they are taken. It cannot seek, so sizes follow the data."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def zip_response(capture: Capture, entries: list[Entry], *, is_head: bool = False) -> HttpResponseBase:
    """Return all files of a ready capture in one folder of a zip, with SHA256SUMS, README.txt and manifest.json."""
    folder = f"{capture.run_id}-{capture.pk}"
    headers = {
        "Content-Disposition": content_disposition_header(True, f"{folder}.zip") or "attachment",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }
    if is_head:
        return HttpResponse(headers=headers, content_type="application/zip")
    pieces = _in_thread(zip_pieces(folder, entries, about(capture, entries)))
    return StreamingHttpResponse(pieces, headers=headers, content_type="application/zip")


def zip_pieces(folder: str, entries: list[Entry], texts: dict[str, str]) -> Iterator[bytes]:
    """Yield the zip bit by bit. A file whose bytes are no longer those that were checked ends it before its end.

    Nothing is compressed: traces are already, and reports nearly so.
    """
    sink = _Sink()
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    sums |= {entry.name: entry.sha256 for entry in entries}
    listed = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for name, text in {**texts, SUMS: listed}.items():
            archive.writestr(_info(f"{folder}/{name}"), text)
        for entry in entries:
            digest = hashlib.sha256()
            with (
                entry.path.open("rb") as source,
                archive.open(_info(f"{folder}/{entry.name}"), "w", force_zip64=True) as to,
            ):
                while piece := source.read(PIECE_BYTES):
                    digest.update(piece)
                    to.write(piece)
                    yield sink.take()
            if digest.hexdigest() != entry.sha256:
                raise OSError(f"{entry.path} is damaged: it is no longer what arrived.")
        yield sink.take()
    yield sink.take()


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, date_time=_DATE)
    info.external_attr = 0o644 << 16
    return info


def about(capture: Capture, entries: list[Entry]) -> dict[str, str]:
    """Return manifest.json and README.txt of the zip: what was recorded, and how to open it."""
    files = [{"name": e.name, "size": e.artifact.size, "sha256": e.sha256, **_plain(e.artifact.meta)} for e in entries]
    first, last = capture.recorded_steps or (None, None)
    manifest = {
        "run": capture.run_id,
        "run_name": capture.run.name,
        "attempt": capture.attempt,
        "capture": capture.pk,
        "what": capture.what,
        "tool": capture.tool,
        "first_step": first,
        "last_step": last,
        "roles": capture.roles,
        "ranks": capture.ranks,
        "state_times": capture.state_times,
        "meta": capture.meta,
        "files": files,
    }
    how = _HOW.get(capture.tool, "")
    versions = sorted({str(e.artifact.meta["tool_version"]) for e in entries if e.artifact.meta.get("tool_version")})
    made = f"Recorded with {', '.join(versions)}.\n" if versions else ""
    steps = f"steps {first} to {last}" if first != last else f"step {first}" if first else "some steps"
    readme = (
        f"Capture {capture.pk} of run {capture.run_id} ({capture.run.name}), attempt {capture.attempt}:\n"
        f"{steps}, recorded by {capture.tool}.\n{made}\n{how}\n"
        f"Check the files:\n    sha256sum -c {SUMS}\n\nmanifest.json says the same for programs.\n"
    )
    return {
        "README.txt": readme,
        "manifest.json": json.dumps(manifest, indent=2, ensure_ascii=False, default=str) + "\n",
    }


_TORCH = (
    "*.json.gz is a trace of torch.profiler. Open it in Perfetto (the run's page does that without any internet),\n"
    "or in chrome://tracing. No need to unpack it.\n"
)
_HOW = {
    "torch": _TORCH,
    "torch_pieces": _TORCH,
    "nsys": (
        "*.nsys-rep is a report of NVIDIA Nsight Systems. Open it in the Nsight Systems window (nsys-ui FILE), of the\n"
        "same version or a newer one: a newer one opens older reports, not the other way round. Without a window:\n"
        "    nsys stats FILE\n    nsys export -t sqlite FILE\n"
    ),
}


def safe_names(names: list[str]) -> list[str]:
    """Return a name without folders or odd characters for each, no two the same."""
    safe: list[str] = []
    for name in names:
        plain = re.sub(r"[^\w.+=@-]+", "-", name.rpartition("/")[2], flags=re.ASCII).strip("-.") or "file"
        taken = {SUMS, "README.txt", "manifest.json", *safe}
        stem, dot, rest = plain.partition(".")
        number = 2
        while plain in taken:
            plain, number = f"{stem}-{number}{dot}{rest}", number + 1
        safe.append(plain)
    return safe


def _plain(meta: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in meta.items() if k not in ("capture", "name", "size", "sha256")}


def zip_entries(run: Run, capture_id: str) -> tuple[Capture, list[Entry]]:
    """Return a ready capture of the run and what its zip holds. Raises: Http404 where there is none."""
    capture = get_object_or_404(Capture.objects.select_related("run"), pk=capture_id, run=run)
    files = list(capture.files.order_by("name"))
    paths = [file.stored_path for file in files]
    if capture.state != "ready" or not all(file.is_file() for file in paths):
        raise Http404(_("Capture %(id)s is not ready. Try again when the page says so.") % {"id": capture.pk})
    names = safe_names([file.name for file in files])
    entries = [
        Entry(name=name, path=at, sha256=file.sha256, artifact=file)
        for name, at, file in zip(names, paths, files, strict=True)
    ]
    return capture, entries


async def _in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    done = object()
    while (piece := await asyncio.to_thread(next, pieces, done)) is not done:
        if piece:
            yield piece  # type: ignore[misc]  # only `done` is no bytes
