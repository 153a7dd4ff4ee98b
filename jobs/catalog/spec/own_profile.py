"""What a trainer's own profiler records of a run, and which tool a launch of another trainer is recorded with.

A trainer has a profiler of its own if the knob `profiling.tool` means something to it. `RunSpec.profile` asks for
captures of every trainer in one way; these knobs say the same in one trainer's words, and more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.knob import applicable, default_values
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import as_version, trainers
from profiling.config import MAX_STEPS, Device, names_of, ranks_of
from profiling.recorders.recorder import INSTEAD, candidates

TOOL_KNOB = "profiling.tool"
THEIRS: Mapping[str, str] = {"torch": "torch", "nsys": "nsys", "memory": "torch_memory", "msprof": "npu"}
"""Our word for a tool -> the knob's."""

BESIDE = ("torch", "stacks", "memory")
"""Tools that record in a process that we did not write, from beside (profiling.attach)."""

_STARTS = "nsys"
"""The tool that records only what it has started (profiling.launch_nsys)."""

CHOOSING = (
    TOOL_KNOB,
    "profiling.enable",
    "profiling.steps",
    "profiling.first_step",
    "profiling.last_step",
    "profiling.policy",
    "profiling.rollout",
    "profiling.reference",
    "profiling.critic",
    "profiling.all_ranks",
    "profiling.ranks",
)
"""Knobs that say what RunSpec.profile says: one of the two is enough."""

_ROLES = {"policy": "policy", "critic": "critic", "reference": "reference", "vllm": "rollout"}
_ALL = slice(0, MAX_STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProfile:
    """What the trainer records itself: steps from 1, roles and ranks, () for all."""

    tool: str
    first_step: int
    num_steps: int
    roles: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


def own_tools(spec: RunSpec) -> tuple[str, ...]:
    """Return the tools that the run's trainer can record with itself, by our words."""
    knob = applicable(spec.algorithm, spec.trainer.name, spec.trainer.version).get(TOOL_KNOB)
    return tuple(tool for tool, theirs in THEIRS.items() if knob is not None and theirs in knob.choices)


def beside_tools(spec: RunSpec) -> tuple[str, ...]:
    """Return the tools that can record the run's processes from beside, by our words.

    nsys is one where the runner starts these processes itself; those that are Ray's workers the trainer starts.
    """
    return BESIDE if trainers()[spec.trainer.name].uses_ray(spec.algorithm) else (*BESIDE, _STARTS)


def starts_under_nsys(spec: RunSpec) -> bool:
    """Return True if the runner starts another trainer under nsys: it is asked for, and the trainer does not do it."""
    is_asked = launch_tool(spec) == _STARTS or spec.profile.nsys_ready == "on"
    return not spec.is_native and is_asked and _STARTS in beside_tools(spec) and _STARTS not in own_tools(spec)


def launch_tool(spec: RunSpec) -> str:
    """Return the tool that a launch of another trainer is recorded with, "" if nothing is asked for or shows it.

    The one that the spec names, else the first that shows what is wanted: nsys and what only Ascend has are never
    picked, as they have to be on every node.
    """
    wanted = spec.profile
    if wanted.what == "none" or wanted.tool != "none":
        return "" if wanted.tool == "none" else wanted.tool
    device: Device = "cpu" if spec.hardware.device == "cpu" else "cuda"
    shown = candidates(INSTEAD.get((wanted.what, device), wanted.what), device)
    return next((tool for tool in shown if tool in BESIDE), "")


def own_profile(spec: RunSpec) -> OwnProfile | None:
    """Return what the trainer's own profiler is to record, by RunSpec.profile or by its knobs; None for nothing."""
    tool = launch_tool(spec)
    if tool:
        wanted = spec.profile
        if tool not in own_tools(spec):
            return None
        return OwnProfile(
            tool=tool,
            first_step=wanted.first_step,
            num_steps=wanted.num_steps,
            roles=tuple(names_of(wanted.roles)),
            ranks=tuple(ranks_of(wanted.ranks)),
        )
    return _by_knobs(spec.values())


def _by_knobs(values: Mapping[str, Any]) -> OwnProfile | None:
    tool = next((ours for ours, theirs in THEIRS.items() if values.get(TOOL_KNOB) == theirs), "")
    steps = _steps(values)
    if not tool or not steps:
        return None
    roles = tuple(role for role, knob in _ROLES.items() if values.get(f"profiling.{knob}") in (True, "on"))
    try:
        ranks = tuple(ranks_of(str(values.get("profiling.ranks") or "")))
    except ValueError:
        ranks = ()  # the trainer says what is wrong with it
    return OwnProfile(
        tool=tool,
        first_step=steps[0],
        num_steps=min(steps[-1] - steps[0] + 1, MAX_STEPS),
        roles=roles,
        ranks=() if values.get("profiling.all_ranks") else ranks or (0,),
    )


def _steps(values: Mapping[str, Any]) -> list[int]:
    """Return the steps that the knobs name, sorted; [] if none is recorded."""
    if "profiling.enable" in values:
        first, last = int(values.get("profiling.first_step") or -1), int(values.get("profiling.last_step") or -1)
        return [first, last] if values["profiling.enable"] and 1 <= first <= last else []
    roles = any(values.get(f"profiling.{knob}") in (True, "on") for knob in _ROLES.values())
    named = [part.strip() for part in str(values.get("profiling.steps") or "").split(",")][_ALL]
    return sorted(int(step) for step in named if step.isdecimal() and 0 < int(step) < 10**9) if roles else []


def profile_problem(spec: RunSpec) -> tuple[str, Sentence] | None:
    """Return (field, sentence) of what a trainer that is not ours cannot record as RunSpec.profile asks; else None."""
    wanted, info = spec.profile, trainers()[spec.trainer.name]
    if spec.is_native or wanted.what == "none":
        return None
    called = Sentence(info.called(spec.trainer.version))
    own, tool = own_tools(spec), launch_tool(spec)
    able = sorted({*own, *beside_tools(spec)})
    if tool and tool not in able:
        text = Sentence(
            "{trainer} cannot be recorded with {tool} here. Use {able}.",
            trainer=called,
            tool=tool,
            able=", ".join(able),
        )
        return "profile.tool", text
    if not tool:
        text = Sentence(
            "No tool that records {trainer} shows {what}. Choose something else.", trainer=called, what=wanted.what
        )
        return "profile.what", text
    if tool in own:
        return _own_problem(spec, tool, called)
    return None


def _own_problem(spec: RunSpec, tool: str, called: Sentence) -> tuple[str, Sentence] | None:
    chosen = [knob for knob in CHOOSING if knob in spec.knobs and spec.knobs[knob].value != _plain(spec, knob)]
    if chosen:
        text = Sentence(
            "What to record is set twice: by Profile, and by the knob {knob}. Leave one of them out.", knob=chosen[0]
        )
        return f"knobs.{chosen[0]}", text
    roles = names_of(spec.profile.roles)
    if "reward" in roles:
        return "profile.roles", Sentence("The profiler of {trainer} does not record reward models.", trainer=called)
    if tool == "nsys" and roles == ["vllm"]:
        text = Sentence("With nsys {trainer} records no rollout engines. Use torch, or other roles.", trainer=called)
        return "profile.roles", text
    collects_since = as_version(trainers()[spec.trainer.name].collects_nsys_since)
    if tool == "nsys" and is_in(spec.algorithm, "rl") and as_version(spec.trainer.version) < collects_since:
        text = Sentence(
            "{trainer} leaves reports of nsys in Ray's folder on each node, where nothing collects them. Use torch, or "
            "the knobs of the group profiling.",
            trainer=called,
        )
        return "profile.tool", text
    return None


def _plain(spec: RunSpec, knob_id: str) -> Any:
    return default_values(spec.algorithm, spec.trainer.name, spec.trainer.version, spec.hardware.device)[knob_id]
