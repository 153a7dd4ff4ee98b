"""A zip of a folder that is never written anywhere: its bytes are made while they are read.

Stored, sorted, with fixed times: the same files give the same bytes, so an upload can go on at any offset, also after a
restart, and a full disk is no obstacle. Headers come from zipfile itself, which writes them into a recorder.
"""

import hashlib
import io
import re
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

from profiling.redaction import Mask

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can name
_CHUNK = 1 << 20
NO_MASK = Mask(())
_CHECKPOINT = re.compile(r"checkpoint-\d+")  # as Transformers calls them


class FilesChanged(OSError):
    """A file changed while it was being packed."""


class NoTimeLeft(Exception):
    """Who packs is to end."""


def no_end() -> bool:
    """Return False: packing goes on to its end."""
    return False


@dataclass(slots=True)
class _Part:
    """Bytes of the image: a header, or a whole file."""

    start: int
    size: int
    header: bytearray
    path: Path | None = None


class ZipImage:
    """The bytes of a zip, readable at any offset."""

    def __init__(self, parts: Sequence[_Part], *, mask: Mask = NO_MASK, give_up: Callable[[], bool] = no_end) -> None:
        self._parts, self._mask = parts, mask
        self._starts = [part.start for part in parts]
        self.size = parts[-1].start + parts[-1].size
        self.sha256 = self._digest(give_up)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`. Raises: FilesChanged if a file has shrunk; OSError if it is gone."""
        out = bytearray()
        size = min(size, self.size - offset)
        while len(out) < size:
            at = offset + len(out)
            part = self._parts[bisect_right(self._starts, at) - 1]
            out += _read(part, at - part.start, min(size - len(out), part.start + part.size - at), self._mask)
        return bytes(out)

    def _digest(self, give_up: Callable[[], bool]) -> str:
        digest = hashlib.sha256()
        for offset in range(0, self.size, _CHUNK):
            _check_end(give_up)
            digest.update(self.read(offset, _CHUNK))
        return digest.hexdigest()


def is_of_checkpoint(path: PurePath) -> bool:
    """Return True if a path relative to a model's folder is in a checkpoint there: training state, several times it."""
    return _CHECKPOINT.fullmatch(path.parts[0]) is not None and len(path.parts) > 1


def zip_image(
    path: Path,
    *,
    extra: Mapping[str, Path] | None = None,
    mask: Mask = NO_MASK,
    give_up: Callable[[], bool] = no_end,
) -> ZipImage:
    """Return the zip of a file, or of everything in a folder, with the `extra` files (name in the zip -> path) besides.

    What `mask` knows is overwritten in it, and stays in the files. `give_up` is asked before each MiB.

    Reads every file twice (checksum of the zip entry, checksum of the zip). Left out are a link that leads out of the
    folder, and checkpoints that a trainer keeps below its model. Raises: FileNotFoundError if there is no file,
    FilesChanged if one changes meanwhile; NoTimeLeft.
    """
    home = path.resolve()
    inside = (file for file in path.rglob("*") if file.is_file() and file.resolve().is_relative_to(home))
    inside = (file for file in inside if not is_of_checkpoint(file.relative_to(path)))
    by_name = {file.relative_to(path).as_posix(): file for file in inside}
    if path.is_file():
        by_name = {path.name: path}
    if not by_name:
        raise FileNotFoundError(f"{path.name} holds no file.")
    recorder = _Recorder()
    with zipfile.ZipFile(recorder, "w", zipfile.ZIP_STORED) as archive:
        for name, file in sorted((by_name | dict(extra or {})).items()):
            _add(archive, recorder, name, file, mask, give_up)
    return ZipImage(recorder.parts, mask=mask, give_up=give_up)


def _add(
    archive: zipfile.ZipFile,
    recorder: "_Recorder",
    name: str,
    file: Path,
    mask: Mask,
    give_up: Callable[[], bool],
) -> None:
    info = zipfile.ZipInfo(name, date_time=_EPOCH)
    info.create_system = 3  # Unix, wherever it is made
    info.external_attr = 0o644 << 16
    info.file_size = file.stat().st_size
    with archive.open(info, "w", force_zip64=info.file_size >= 1 << 31) as entry:
        recorder.begin(file)
        written = 0
        for chunk in _chunks(file, info.file_size, mask):
            _check_end(give_up)
            written += entry.write(chunk)
        recorder.end()
    if written != info.file_size:
        raise FilesChanged(f"{file.name} changed while it was packed.")


def _check_end(give_up: Callable[[], bool]) -> None:
    if give_up():
        raise NoTimeLeft("There was no time left.")


class _Recorder(io.RawIOBase):
    """Takes what zipfile writes: keeps headers, and of file contents only where they came from."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[_Part] = []
        self._position = 0
        self._end = 0
        self._content: _Part | None = None

    def begin(self, path: Path) -> None:
        """What comes next are the contents of `path`."""
        self._content = _Part(start=self._end, size=0, header=bytearray(), path=path)

    def end(self) -> None:
        """The contents are complete."""
        if self._content is not None and self._content.size:
            self.parts.append(self._content)
        self._content = None

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._end}[whence]
        self._position = origin + offset
        return self._position

    def write(self, data: object) -> int:
        raw = bytes(memoryview(data))  # type: ignore[arg-type]  # whatever zipfile hands over is a buffer
        if self._position < self._end:
            self._patch(raw)
        elif self._content is not None:
            self._content.size += len(raw)
            self._end += len(raw)
        else:
            self.parts.append(_Part(start=self._end, size=len(raw), header=bytearray(raw)))
            self._end += len(raw)
        self._position += len(raw)
        return len(raw)

    def _patch(self, raw: bytes) -> None:
        """zipfile goes back to a header once it knows the checksum of what followed."""
        part = next(part for part in reversed(self.parts) if part.start <= self._position)
        at = self._position - part.start
        assert part.path is None
        assert at + len(raw) <= part.size
        part.header[at : at + len(raw)] = raw


def _read(part: _Part, at: int, size: int, mask: Mask) -> bytes:
    if part.path is None:
        return bytes(part.header[at : at + size])
    with part.path.open("rb") as file:
        data = _masked(file, at, size, mask)
    if len(data) != size:
        raise FilesChanged(f"{part.path.name} changed while it was handed over.")
    return data


def _chunks(path: Path, size: int, mask: Mask) -> Iterator[bytes]:
    with path.open("rb") as file:
        for at in range(0, size, _CHUNK):
            yield _masked(file, at, min(_CHUNK, size - at), mask)


def _masked(file: BinaryIO, at: int, size: int, mask: Mask) -> bytes:
    """Return a piece of a file; a secret may begin before it or end behind it."""
    before = min(mask.reach, at)
    file.seek(at - before)
    return mask(file.read(before + size + mask.reach))[before : before + size]
