"""A single file as it is handed over: readable at any offset, and the same bytes from the first to the last."""

import hashlib
from pathlib import Path

from jobs.runner.console_client.zip_image import FilesChanged


class FileImage:
    """The bytes of one file that does not change any more. Raises: OSError if it is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = path.stat().st_size
        with path.open("rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at `offset`. Raises: FilesChanged if the file has shrunk; OSError if it is gone."""
        with self._path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) < min(size, self.size - offset):
            raise FilesChanged(f"{self._path.name} changed while it was handed over.")
        return data
