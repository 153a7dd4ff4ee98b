"""Show the services' logs on the terminal, line by line with the service's name, and keep the files from growing."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

MAX_LOG_BYTES = 16 << 20
COLORS = (36, 33, 35, 32, 34, 31)  # ANSI foregrounds


def write_to_terminal(text: str) -> None:
    """Print to standard output; a terminal that has gone away is no reason to stop."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (BrokenPipeError, OSError):
        return


class LogTail:
    """What is new in each log since it was last looked at."""

    def __init__(self, paths: Mapping[str, Path], write: Callable[[str], None], *, is_colored: bool) -> None:
        """Begin at the current end of each file."""
        self._write = write
        self._paths = dict(paths)
        self._offsets = {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}
        self._rests = dict.fromkeys(paths, b"")
        width = max(map(len, paths), default=0)
        self._prefixes = {
            name: f"\033[{COLORS[i % len(COLORS)]}m{name:<{width}}\033[0m " if is_colored else f"{name:<{width}} "
            for i, name in enumerate(paths)
        }

    def show(self) -> None:
        """Write the complete new lines of all logs."""
        for name, path in self._paths.items():
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(self._offsets[name])
                data = self._rests[name] + file.read(1 << 20)
                self._offsets[name] = file.tell()
            *lines, self._rests[name] = data.split(b"\n")
            if lines:
                prefix = self._prefixes[name]
                self._write("".join(f"{prefix}{line.decode(errors='replace')}\n" for line in lines))
            if self._offsets[name] > MAX_LOG_BYTES:
                path.with_suffix(".log.1").write_bytes(path.read_bytes())
                with path.open("r+b") as file:  # writers append, so they go on at the new end
                    file.truncate(0)
                self._offsets[name] = 0
