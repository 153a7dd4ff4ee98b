"""The contract of a tool that records steps in one process, the lookup in its folder, and which tool shows what.

A file of the folder is a tool; its PLUGIN makes one recorder per capture. Who owns it, and that there is only one at a
time, is profiling.captures.recording's part.

A tool is selected by the device, and by what each worker said that it can use: the same on the console (before somebody
asks) and in the engine (for what a spec asks for, once its workers are there). What each tool shows stands in its own
file (`shows`), so nothing here names a tool.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Protocol, cast

from profiling import plugins
from profiling.config import WHATS, Device, What


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


# -- which tool records what somebody wants to see --

Tools = Mapping[str, str]
"""What one worker told: tool -> "" if it is ready, else why not. Empty while it has not told."""

INSTEAD: Mapping[tuple[What, Device], What] = {("kernels", "cpu"): "operators"}
"""What is recorded where a device has nothing of the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedTool:
    """A tool that would have come first, and the workers that lack it, each with the reason ("": has not told)."""

    tool: str
    lacking: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSelection:
    """What is recorded for `what`, with which tool, on which workers (`able`; `lacking` says why the others cannot).

    `tool` is "" where none can: `passed` then has those that show it, none where nothing shows it on this device.
    `recorded` is another thing than `what` where the device has nothing of that kind.
    """

    what: What
    recorded: What
    device: Device
    tool: str
    able: tuple[str, ...] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    passed: tuple[PassedTool, ...] = ()


def select_tool(what: What, *, device: Device, workers: Mapping[str, Tools]) -> ToolSelection:
    """Return which tool records `what` on these workers (name -> what it told), and why not another.

    The first in order that is ready on all of them, else the one that is ready on most.
    """
    recorded = INSTEAD.get((what, device), what)
    passed: list[PassedTool] = []
    for tool in candidates(recorded, device):
        if load_tool(tool).is_only_named:
            continue
        lacking = lacking_of(tool, workers)
        if not lacking:
            able = tuple(workers)
            return ToolSelection(
                what=what, recorded=recorded, device=device, tool=tool, able=able, passed=tuple(passed)
            )
        passed.append(PassedTool(tool=tool, lacking=lacking))
    best = min(passed, key=lambda one: len(one.lacking), default=None)
    if best is None or len(best.lacking) == len(workers):
        return ToolSelection(what=what, recorded=recorded, device=device, tool="", passed=tuple(passed))
    return ToolSelection(
        what=what,
        recorded=recorded,
        device=device,
        tool=best.tool,
        able=tuple(name for name in workers if name not in best.lacking),
        lacking=best.lacking,
        passed=tuple(passed[: passed.index(best)]),
    )


def candidates(what: What, device: Device) -> tuple[str, ...]:
    """Return the tools that show this on such a device, the one to take first first; () where there is none."""
    able = [tool for tool in _tools() if what in tool.shows and device in tool.shows[what].on]
    return tuple(tool.name for tool in sorted(able, key=lambda tool: tool.shows[what].order))


def lacking_of(tool: str, workers: Mapping[str, Tools]) -> dict[str, str]:
    """Return the workers that the tool cannot record, each with the reason, "" for one that has not told and must."""
    must_tell = load_tool(tool).must_tell
    reasons = {}
    for name, tools in workers.items():
        why = tools.get(tool)
        if why or (why is None and must_tell):
            reasons[name] = why or ""
    return reasons


def shown_by(tool: str, device: Device | None = None) -> tuple[What, ...]:
    """Return what a tool shows, on any device if none is named; what it is best at comes first."""
    shows = load_tool(tool).shows
    return tuple(what for what, shown in shows.items() if device is None or device in shown.on)


def seen_in(tool: str, what: What, *, device: Device) -> tuple[What, ...]:
    """Return what can be seen in a file that the tool records for `what`, itself among them."""
    shows = load_tool(tool).shows
    return tuple(one for one in shown_by(tool, device) if one == what or not shows[one].is_extra)


def without(*, device: Device, seen: Sequence[What]) -> tuple[What, ...]:
    """Return what is not among what can be seen, of what this device has."""
    return tuple(what for what in WHATS if what not in seen and (what, device) not in INSTEAD)


def device_of(workers: Sequence[Tools], *, planned: Device) -> Device:
    """Return the device that the workers have, by the tools of one device that are ready on them, else the planned."""
    for tool in _tools():
        devices = {device for shown in tool.shows.values() for device in shown.on}
        if len(devices) == 1 and any(tools.get(tool.name) == "" for tools in workers):
            return devices.pop()
    return planned


def planned_tool(what: What, tool: str, *, device: Device) -> str:
    """Return the tool that a spec asks for on such a device: the one it names, else the first that shows what it wants.

    For what has to be decided before there are workers. "none" where nothing is to be recorded, or nothing shows it.
    """
    if what == "none" or tool != "none":
        return tool
    return next(iter(candidates(INSTEAD.get((what, device), what), device)), "none")


@cache
def _tools() -> tuple[Tool, ...]:
    return tuple(load_tool(name) for name in tool_names())
