"""What can be recorded of a run, with what, and how much of it."""

from typing import Literal, get_args

Tool = Literal["none", "torch", "nsys", "stacks", "memory", "msprof", "torch_pieces"]
What = Literal["none", "timing", "operators", "kernels", "memory", "communication", "stacks"]
Device = Literal["cpu", "cuda", "npu"]
Marks = Literal["auto", "none", "timers", "memory", "nvtx", "torch", "mstx"]
NsysReady = Literal["auto", "on", "off"]

TOOLS: tuple[str, ...] = tuple(tool for tool in get_args(Tool) if tool != "none")
"""What a capture can be recorded with: the files of profiling.recorders, the one that needs nothing first."""

WHATS: tuple[What, ...] = tuple(what for what in get_args(What) if what != "none")
"""What people can ask to see; profiling.recorders.recorder selects the tool that shows it."""

MAX_STEPS = 100
"""The most steps of one capture: its files grow with each."""

MAX_FIRST_STEP = 1_000_000

MAX_SECONDS = 300.0
"""The longest that a recording by time may last: it ends by itself if nobody ends it."""


def is_torch(tool: str) -> bool:
    """Return True if torch's own tracer makes the files: it needs the GPU's tracing alone, and vLLM has it built in.

    Its tools are named torch and torch_SOMETHING.
    """
    return tool.startswith("torch")


def names_of(text: str) -> list[str]:
    """Return the names in a list separated by commas, sorted, each once; [] for all."""
    return sorted({part.strip() for part in text.split(",") if part.strip()})


def ranks_of(text: str) -> list[int]:
    """Return the ranks in a list separated by commas ("0, 2" or "0-3"), sorted, each once; [] for all.

    Raises: ValueError naming the part that is no rank.
    """
    ranks: set[int] = set()
    for part in names_of(text):
        low, dash, high = part.partition("-")
        if not low.strip().isdecimal() or (dash and not high.strip().isdecimal()) or len(part) > 15:
            raise ValueError(f"{part!r} is not a rank. Use numbers from 0, separated by commas: 0, 2 or 0-3.")
        first, last = int(low), int(high) if dash else int(low)
        if last < first or last - first > 4096:
            raise ValueError(f"{part!r} is not a range of ranks. Use the lower one first: 0-3.")
        ranks.update(range(first, last + 1))
    return sorted(ranks)
