"""What kinds of events a trace holds, whichever tool recorded it."""

import re
from enum import IntEnum

from profiling.phases import BY_KEY


class Category(IntEnum):
    """The kind of an event. Stores keep the numbers: new kinds go to the end."""

    OTHER = 0
    STEP = 1
    PHASE = 2
    RANGE = 3
    """A range that somebody's code named: NVTX, record_function."""
    OPERATOR = 4
    PYTHON = 5
    RUNTIME = 6
    """A call of the device's interface on the CPU: cudaLaunchKernel, cudaMemcpyAsync."""
    SYNC = 7
    """A wait of the CPU for the device, and of a stream for another."""
    KERNEL = 8
    COMMUNICATION = 9
    """A kernel of a collective, or a collective that a CPU does itself; on other lanes than streams the latter."""
    COPY = 10
    MEMSET = 11
    BATCH = 12
    """One pass of an inference engine over a batch."""
    COLLECTOR = 13
    """Python's garbage collector."""
    SYSTEM = 14
    """A call of the operating system."""
    OVERHEAD = 15
    """The profiler's own work."""
    NATIVE = 16
    """A frame of native code, as samples of a CPU saw it."""
    SCHEDULING = 17
    """When a thread had a CPU, and when not: the names say which (profiling/trace/scheduling.py)."""


DEVICE = frozenset({Category.KERNEL, Category.COMMUNICATION, Category.COPY, Category.MEMSET})
"""What keeps a device busy."""

_DEVICE_COLLECTIVE = re.compile(
    r"nccl|rccl|hccl|oneccl|mscclpp?|cross_device_reduce|(?:all|multimem).*_reduce_kernel", re.I
)
_STEP = re.compile(r"ProfilerStep#?\s*\d")
_BATCH = re.compile(r"execute_(?:context|new|model)_\d+\(")
"""vLLM names its passes `execute_context_<requests>(<tokens>)_generation_<requests>(<tokens>)`."""
_CPU_COLLECTIVE = re.compile(r"gloo:|mpi:|hccl_|hcom_", re.I)
_DEVICE_WAIT = re.compile(r"(?:event|notify)[ _]?(?:wait|record|reset)|write[ _]value$|profiling_(?:en|dis)able$", re.I)
"""What accelerators other than GPUs tell among what they do: a stream waits for another one, or lets it go on."""


_COPY_KERNEL = re.compile(r"__amd_rocclr_copy|MEMORY_COPY_|Memcpy ")
_FILL_KERNEL = re.compile(r"__amd_rocclr_fill|Memset ")
"""What ROCm 7.1 and older record as kernels, although they copy and set memory."""


def of_kernel(name: str) -> Category:
    """Return whether a kernel computes, copies or communicates, by its name: NCCL, RCCL, HCCL, MSCCL, vLLM's own
    all-reduce; ROCm's copies and fills.
    """
    if _COPY_KERNEL.match(name):
        return Category.COPY
    if _FILL_KERNEL.match(name):
        return Category.MEMSET
    return Category.COMMUNICATION if _DEVICE_COLLECTIVE.search(name) else Category.KERNEL


def waits_on_device(name: str) -> bool:
    """Return True for what stands among the tasks of a device and is a wait: an event of another stream, a peer."""
    return _DEVICE_WAIT.match(name) is not None


def of_range(name: str) -> Category:
    """Return what a range of code is by its name: a step, phase, batch, collective of the CPU (`gloo:...`), or none."""
    if _STEP.match(name):
        return Category.STEP
    if name in BY_KEY:
        return Category.PHASE
    if _BATCH.match(name):
        return Category.BATCH
    if _CPU_COLLECTIVE.match(name):
        return Category.COMMUNICATION
    return Category.COLLECTOR if name.startswith("Python GC") else Category.RANGE
