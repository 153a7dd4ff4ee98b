"""What a run records of itself: `RunSpec.profile`. Standard library only; jobs.catalog.runspec checks it."""

from dataclasses import dataclass
from typing import Literal

Tool = Literal["none", "torch", "nsys"]
Marks = Literal["auto", "none", "timers", "nvtx", "torch", "mstx"]
NsysReady = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConfig:
    """A capture asked for at launch, and what marks do besides.

    `tool` records steps `first_step` to `first_step + num_steps - 1` (from 1) on `roles` and `ranks`, lists divided by
    commas, "" for all; "none" asks for no capture. `marks` is the backend of detail marks, `auto` the best that the
    node offers (profiling.profilers). `nsys_ready` starts workers so that nsys can attach to them at any step; `auto`
    does so on nodes that have nsys.
    """

    tool: Tool = "none"
    first_step: int = 2
    num_steps: int = 2
    roles: str = ""
    ranks: str = ""
    marks: Marks = "auto"
    nsys_ready: NsysReady = "auto"
