"""Torch's history of device memory: every block that its allocator gave out and took back, with the calls that asked.

Not run on a GPU: written after torch's documentation of memory snapshots, and tested with a stand-in.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiling.config import What
from profiling.recorders.recorder import InMemory, RecorderFailed, ToolRank

MOST_ENTRIES = 200_000
"""Each takes some kB: the oldest are dropped above this."""


class MemoryRecorder:
    """One snapshot, with the history since the start."""

    marks = "none"

    def __init__(self) -> None:
        self._path = Path()
        self._snapshot: Any = None

    def sees_other_threads(self) -> bool:
        """The allocator serves all of them."""
        return True

    def start(self, path: Path) -> None:
        """Let the allocator keep its history."""
        self._path = path
        try:
            _memory()._record_memory_history(max_entries=MOST_ENTRIES)
        except RuntimeError as error:
            raise RecorderFailed(f"torch does not keep the history of its memory here: {error}") from error

    def begin_step(self, step: int) -> None:
        """A block belongs to no step."""

    def end_step(self) -> None:
        """As above."""

    def stop(self) -> None:
        """Take the snapshot, and keep no more history."""
        self._snapshot = _memory()._snapshot()
        _memory()._record_memory_history(enabled=None)

    def write(self) -> None:
        """Write the snapshot. Raises: RecorderFailed."""
        import pickle

        part = self._path.with_name(f".part-{self._path.name}")
        try:
            with part.open("wb") as file:
                pickle.dump(self._snapshot, file)
            part.replace(self._path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise RecorderFailed(f"The snapshot was not written: {error}") from error
        finally:
            self._snapshot = None

    def discard(self) -> None:
        """Keep no more history."""
        _memory()._record_memory_history(enabled=None)


def _memory() -> Any:
    return sys.modules["torch"].cuda.memory


class MemoryTool(InMemory):
    """The tool `memory`."""

    name = "memory"
    about = "each block of torch's device memory, with who asked for it"
    suffix = ".snapshot.pickle"
    must_tell = False
    shows: Mapping[What, ToolRank] = {
        "memory": ToolRank(on=("cuda",), order=1, because="tells each block with the calls that asked for it")
    }

    def problem(self) -> str:
        """Only the allocator of CUDA and ROCm keeps a history."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return "Torch keeps no memory history on CPU; it takes a GPU. Peaks per phase are reported anyway."
        return ""

    def version(self) -> str:
        """Return the version of torch."""
        return f"torch {sys.modules['torch'].__version__}"

    def recorder(self, what: str) -> MemoryRecorder:  # noqa: ARG002
        """Return a recorder for one capture."""
        return MemoryRecorder()


PLUGIN = MemoryTool()
