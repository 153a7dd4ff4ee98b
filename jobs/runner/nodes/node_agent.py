"""What the runner has on each other node of an attempt: a Ray actor that reads, cleans up and hands files over."""

import os
from collections.abc import Mapping
from pathlib import Path

from jobs.runner.nodes.node import NodeReader
from jobs.runner.nodes.orphans import Cleanup, kill_orphans
from profiling.captures.capture import LeftFile, left, recordings
from profiling.redaction import own_secrets

READ_BYTES = 4 << 20


class NodeAgent:
    """One node. Imports nothing but the standard library and psutil; holds nothing between calls but a clock."""

    def __init__(self, *, run: str, attempt: int, run_dir: str) -> None:
        self._run, self._attempt, self._run_dir = run, attempt, Path(run_dir)
        self._reader = NodeReader(run_dir=self._run_dir, run=run)

    def readings(self) -> dict[str, float]:
        """Return the readings of this node since the last call."""
        return self._reader.read()

    def kill_orphans(self, leave_seconds: float, write_seconds: float) -> Cleanup:
        """End what is left of the attempt here, and return the clean-up report (`jobs.runner.nodes.orphans`)."""
        return kill_orphans(
            run=self._run,
            attempt=self._attempt,
            leave_seconds=leave_seconds,
            write_seconds=write_seconds,
            recordings=recordings(self._run_dir),
        )

    def left(self, tools: Mapping[str, str]) -> dict[str, LeftFile]:
        """Return by name what workers here left of captures (id -> tool), once they have ended."""
        return left(self._run_dir, tools, secrets=own_secrets())

    def log_sizes(self) -> dict[str, int]:
        """Return the name and the bytes of each log file of the attempt here."""
        folder = self._run_dir / "log"
        if not folder.is_dir():
            return {}
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}

    def read_log(self, name: str, offset: int) -> bytes:
        """Return up to 4 MiB of a log file from `offset` on. Raises: OSError."""
        return _read(self._run_dir / "log" / Path(name).name, offset)

    def read_left(self, name: str, offset: int) -> bytes:
        """Return up to 4 MiB of a file of `left` from `offset` on. Raises: OSError."""
        return _read(recordings(self._run_dir) / Path(name).name, offset)


def _read(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(READ_BYTES)
