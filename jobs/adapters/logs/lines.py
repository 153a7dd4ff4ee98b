"""Whole lines of a text file that grows, or that is written anew."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

READ_BYTES = 4 << 20


@dataclass(slots=True, kw_only=True)
class GrowingFile:
    """A file of lines, and how far it has been read."""

    path: Path
    _position: int = field(default=0, init=False)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that are whole and were not read before; none while the file is not there.

        Raises: OSError.
        """
        while True:
            try:
                with self.path.open("rb") as file:
                    if self._position > file.seek(0, 2):
                        self._position = 0  # it is shorter than what was read: somebody began it anew
                    file.seek(self._position)
                    data = file.read(READ_BYTES)
            except FileNotFoundError:
                return
            cut = data.rfind(b"\n") + 1
            if not cut:
                if len(data) < READ_BYTES:
                    return
                cut = len(data)  # a "line" without end
            self._position += cut
            yield from data[:cut].splitlines()
