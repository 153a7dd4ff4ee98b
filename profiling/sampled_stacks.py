"""Read samples of Python stacks (`.stacks.txt`): where threads stood, and how often, of several processes together."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from profiling.stacks import MAIN, MOST_FRAMES

Samples = dict[tuple[str, tuple[str, ...]], int]
"""How often a thread (by name) was seen with a stack, the outermost call first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """A thread of a process that was seen with a stack, in `share` of that thread's samples."""

    process: str
    thread: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledStack:
    """A stack, the outermost call first, and the threads that were seen with it."""

    stack: tuple[str, ...]
    standing: tuple[ThreadStack, ...]

    @property
    def processes(self) -> int:
        """How many processes have a thread here."""
        return len({one.process for one in self.standing})

    @property
    def is_main(self) -> bool:
        """Return True if a thread that does the work of a process was here."""
        return any(one.thread == MAIN for one in self.standing)


def read(lines: Iterable[str]) -> Samples:
    """Return the samples of a file, `thread;outermost call;...;innermost call count` a line; others are skipped."""
    samples: Samples = {}
    for line in lines:
        text, _, count = line.rstrip("\n").rpartition(" ")
        thread, *stack = text.split(";")
        if stack and count.isdecimal() and len(count) < 12:
            key = (thread, tuple(stack[-MOST_FRAMES:]))
            samples[key] = samples.get(key, 0) + int(count)
    return samples


def places(files: Mapping[str, Samples]) -> list[SampledStack]:
    """Return equal stacks together, by process: those of working threads first, then where most stand, longest."""
    by_stack: dict[tuple[str, ...], list[ThreadStack]] = {}
    for process, samples in files.items():
        totals: dict[str, int] = {}
        for (thread, _), count in samples.items():
            totals[thread] = totals.get(thread, 0) + count
        for (thread, stack), count in samples.items():
            share = count / totals[thread] if totals[thread] else 0.0
            by_stack.setdefault(stack, []).append(ThreadStack(process=process, thread=thread, share=share))
    sampled = [
        SampledStack(stack=stack, standing=tuple(sorted(standing, key=lambda one: (one.process, one.thread))))
        for stack, standing in by_stack.items()
    ]
    return sorted(sampled, key=lambda one: (not one.is_main, -sum(each.share for each in one.standing), one.stack))
