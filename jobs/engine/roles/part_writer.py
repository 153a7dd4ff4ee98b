"""Write part files in a thread of their own, from copies in host memory, while their rank goes on training."""

import threading
from pathlib import Path

from torch import Tensor

from jobs.engine.roles.parts import PartFile, part_bytes, part_name, write_part


class PartWriter:
    """Writes one set of part files at a time."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._thread: threading.Thread | None = None
        self._written: list[PartFile] = []
        self._error: BaseException | None = None

    def start(self, folder: Path, parts: list[dict[str, Tensor]]) -> None:
        """Begin to write each of `parts`, tensors by piece key, as a file of `folder`. Their memory is given back as
        they are written, so nobody else may hold them. Waits until those before are written.
        """
        if self._thread is not None:
            self._thread.join()
        self._written, self._error = [], None
        self._thread = threading.Thread(target=self._write, args=(folder, parts), name="checkpoint", daemon=True)
        self._thread.start()

    def _write(self, folder: Path, parts: list[dict[str, Tensor]]) -> None:
        try:
            for index in range(len(parts)):
                data, parts[index] = part_bytes(parts[index]), {}
                self._written.append(write_part(folder / part_name(self._rank, index), data))
        except BaseException as error:  # raised where the files are asked for
            self._error = error

    def files(self, *, waits: bool) -> list[PartFile] | None:
        """Return the files once all of them are on the disk; None before that, unless it `waits`.

        Raises: what writing raised, an OSError where the disk does not take them.
        """
        if self._thread is None:
            return []
        if waits:
            self._thread.join()
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._written
