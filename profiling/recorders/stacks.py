"""Samples of Python stacks: where every thread of the process stands, a hundred times a second. Works everywhere.

The file has one line a stack, its calls divided by semicolons, and how often it was seen: what flame graph tools read.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from profiling.config import What
from profiling.recorders.recorder import InMemory, RecorderFailed, ToolRank
from profiling.stacks import stacks

SECONDS = 0.01
MOST_STACKS = 200_000


class StacksRecorder:
    """One file of samples."""

    marks = "none"

    def __init__(self) -> None:
        self._path = Path()
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def sees_other_threads(self) -> bool:
        """It looks at all of them."""
        return True

    def start(self, path: Path) -> None:
        """Begin to look."""
        self._path = path
        self._thread = threading.Thread(target=self._sample, name="stack samples", daemon=True)
        self._thread.start()

    def begin_step(self, step: int) -> None:
        """A stack belongs to no step."""

    def end_step(self) -> None:
        """As above."""

    def stop(self) -> None:
        """End it."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()

    def write(self) -> None:
        """Write what was seen, the most frequent first. Raises: RecorderFailed."""
        part = self._path.with_name(f".part-{self._path.name}")
        try:
            with part.open("w", encoding="utf-8") as file:
                for stack, count in self._counts.most_common():
                    file.write(f"{';'.join(call.replace(';', ',') for call in stack)} {count}\n")
            part.replace(self._path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise RecorderFailed(f"The stacks were not written: {error}") from error

    def discard(self) -> None:
        """End it without a file."""
        self._is_over.set()

    def _sample(self) -> None:
        me = threading.get_ident()
        while True:  # once at least, however short it is
            for name, stack in stacks(without=[me]).items():
                key = (name, *stack)
                if key in self._counts or len(self._counts) < MOST_STACKS:
                    self._counts[key] += 1
            if self._is_over.wait(SECONDS):
                return


class StacksTool(InMemory):
    """The tool `stacks`."""

    name = "stacks"
    about = "the stack of every Python thread, 100 times a second"
    suffix = ".stacks.txt"
    must_tell = False
    shows: Mapping[What, ToolRank] = {
        "stacks": ToolRank(on=("cpu", "cuda", "npu"), order=1, because="looks at every Python thread, hanging ones too")
    }

    def problem(self) -> str:
        """It needs nothing but Python."""
        return ""

    def version(self) -> str:
        """Return what made the file."""
        return f"Pitwall, a sample each {1e3 * SECONDS:.0f} ms"

    def recorder(self, what: str) -> StacksRecorder:  # noqa: ARG002
        """Return a recorder for one capture."""
        return StacksRecorder()


PLUGIN = StacksTool()
