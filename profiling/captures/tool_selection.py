"""Which tool records what somebody wants to see: by the device, and by what each worker said that it can use.

Pure, and the same on the console (before somebody asks) and in the engine (for what a spec asks for, once its workers
are there). What each tool shows stands in its own file (`shows`, profiling.recorders), so nothing here names a tool.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from profiling.config import WHATS, Device, What
from profiling.recorders.recorder import Tool, load_tool, tool_names

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
    found = {}
    for name, tools in workers.items():
        why = tools.get(tool)
        if why or (why is None and must_tell):
            found[name] = why or ""
    return found


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
        if len(devices) == 1 and any(told.get(tool.name) == "" for told in workers):
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
