"""The contract of a tool that records a window of steps in one process, and the lookup in its folder.

A file of the folder is a tool; its PLUGIN makes one recorder per capture. Who owns it, and that there is only one at a
time, is profiling.captures.recording's part.
"""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from profiling import plugins
from profiling.config import Device, What


class RecorderFailed(RuntimeError):
    """The tool could not do it; the sentence says why."""


class WrongThread(RecorderFailed):
    """The tool can do it only in the thread that started it; nothing has happened."""


class Recorder(Protocol):
    """One recording: `start`, steps, `stop`, `write`, in this order. `marks` is the backend that is on meanwhile.

    The file stands under its name once it is whole; whatever else it takes has other names and is gone at the end, also
    where the recording failed or was dropped.
    """

    marks: str

    def sees_other_threads(self) -> bool:
        """Return True if it records work of threads that were there before it, so that any thread may start it."""

    def start(self, path: Path) -> None:
        """Begin to record; the file will be `path`. Raises: RecorderFailed."""

    def begin_step(self, step: int) -> None:
        """Open a range around what this process does for a step."""

    def end_step(self) -> None:
        """Close it."""

    def stop(self) -> None:
        """End the recording; the work after it is not in it any more. Raises: RecorderFailed."""

    def write(self) -> None:
        """Return when the file is complete; may run in another thread than the rest. Raises: RecorderFailed."""

    def discard(self) -> None:
        """End whatever is under way, without a file; also of a recording that has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRank:
    """How a tool shows a thing: `on` which devices, and at which place among the tools that show it there, from 1.

    No two tools have the same place for a thing on a device.

    `because` ends the sentence that says why it was selected: "nsys, because it is ready and ...". `is_extra`: it is
    there only where it is asked for, and only in a recording of whole steps.
    """

    on: tuple[Device, ...]
    order: int
    because: str
    is_extra: bool = False


class Tool(Protocol):
    """What a file of the folder offers. It is read wherever a tool is chosen, so its file imports no library."""

    name: str
    """That of its file."""
    about: str
    """What it records, in a few words."""
    shows: Mapping[What, ToolRank]
    """What can be seen in its files, what it is best at first."""
    must_tell: bool
    """Whether a worker that has not told counts as one that cannot: it takes more than a usual worker has."""
    is_only_named: bool
    """Whether it is for those alone who name it: it is never selected."""
    suffix: str
    """Of the file that it writes, dot included."""

    lost: str
    """What to say where a process that was killed while it recorded left no file."""

    def problem(self) -> str:
        """Return why it cannot record in this process, in a sentence, "" if it can."""

    def version(self) -> str:
        """Return what makes its files, with the version: "torch 2.9.0 (kineto)"; "" where that cannot be learned."""

    def recorder(self, what: str) -> Recorder:
        """Return a recorder for one capture in which `what` is to be seen, "" for the usual."""

    def gather(self, folder: Path, capture: str) -> dict[str, str]:
        """Make whole files of what processes that are gone left half of; return what went wrong, by a file's name."""

    def problem_of_left(self, path: Path, secrets: Collection[bytes]) -> str:
        """Return why the file that a process left when it ended is of no use, "" if it is whole; takes secrets out."""


class InMemory:
    """What tools have in common that hold a recording in the process, and put a file into place once it is whole."""

    is_only_named = False
    lost = "Its process was killed, and what it had recorded was in its memory."

    def gather(self, folder: Path, capture: str) -> dict[str, str]:  # noqa: ARG002
        """Of what was in the memory of a process nothing is left."""
        return {}

    def problem_of_left(self, path: Path, secrets: Collection[bytes]) -> str:  # noqa: ARG002
        """A file that is there is whole, and has no environment in it."""
        return ""


def load_tool(name: str) -> Tool:
    """Return the tool of that name. Raises: UnknownPlugin, naming those there are."""
    return cast(Tool, plugins.load("profiling.recorders", name))


def tool_names() -> tuple[str, ...]:
    """Return the names of all tools."""
    return plugins.names("profiling.recorders")


def free_text(folder: Path) -> str:
    """Return how much of a folder's disk is free, for a sentence: "12 MiB are free in /tmp"."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return f"{free / 2**20:.0f} MiB are free in {folder}"


def version_of(tool: Tool) -> str:
    """Return the tool's version, "" where it is not to be had: a file without it is still a good file."""
    try:
        return tool.version()
    except Exception:  # whatever a tool raises for a word about itself
        return ""
