"""Kinds of events in torch's traces, as torch's versions and other makers' plugins call them: where each is shown, and
what it is.
"""

import re
from collections.abc import Mapping

from profiling.trace.category import Category, of_kernel, of_range, waits_on_device
from profiling.trace.formats.ascend_json import is_copy
from profiling.trace.frames import FRAMES

_WAIT = re.compile(r"Synchronize|MemcpyWithStream", re.I)
_CALL = re.compile(r"(?:cuda|cu|hip)[A-Z]\w+")
"""A call of a device's interface, in traces that give no kind."""

ON_CPU, ON_STREAM, RANGES, WAITS, ITERATIONS = "thread", "stream", "ranges", "waits", "iterations"
THREADS = frozenset({ON_CPU, FRAMES})
_ASCEND = "task of Ascend"
"""How we call the kind of events to which torch_npu gives none: they have a task type."""
_OF_RPD = {
    "KernelExecution": "kernel",
    "Task": "kernel",
    "FillBuffer": "gpu_memset",
    "CopyDeviceToDevice": "gpu_memcpy",
    "CopyDeviceToHost": "gpu_memcpy",
    "CopyHostToDevice": "gpu_memcpy",
}
"""What rocmProfileData's converter (rpd2tracing.py) says in `desc` of work of a device, which it gives no kind; of a
range it says its name, and on the device's side how much lies below it.
"""
_OPERATOR = re.compile(r"\w+::[\w.]+(?:,|$)")
_KINDS = {
    "kernel": (ON_STREAM, Category.KERNEL),
    "concurrent_kernel": (ON_STREAM, Category.KERNEL),
    "gpu_memcpy": (ON_STREAM, Category.COPY),
    _ASCEND: (ON_STREAM, Category.KERNEL),
    "gpu_memset": (ON_STREAM, Category.MEMSET),
    "gpu_user_annotation": (RANGES, Category.RANGE),
    "cuda_sync": (WAITS, Category.SYNC),
    "cpu_op": (ON_CPU, Category.OPERATOR),
    "user_annotation": (ON_CPU, Category.RANGE),
    "python_function": (FRAMES, Category.PYTHON),
    "python_gc": (ON_CPU, Category.COLLECTOR),
    "overhead": (ON_CPU, Category.OVERHEAD),
    "profiler_overhead": (ON_CPU, Category.OVERHEAD),
    "cuda_event": (WAITS, Category.OTHER),
    "cuda_profiler_range": (RANGES, Category.RANGE),
    # iterations of Ascend's devices, as MindSpore's profiler and msprof call them
    "Iteration Time": (ITERATIONS, Category.STEP),
    "FP_BP Time": (ITERATIONS, Category.RANGE),
    "Iteration Refresh": (ITERATIONS, Category.RANGE),
    # tools for Python alone: VizTracer, py-spy
    "FEE": (FRAMES, Category.PYTHON),
    "fee": (FRAMES, Category.PYTHON),
    "py-spy": (FRAMES, Category.PYTHON),
    # NCCL's example of a profiler
    "COLL": (ON_CPU, Category.COMMUNICATION),
    "P2P": (ON_CPU, Category.COMMUNICATION),
    # other accelerators, as kineto and their plugins call them
    "mtia_ccp_events": (ON_STREAM, Category.KERNEL),
    "mtia_insight": (RANGES, Category.OTHER),
    "hpu_op": (ON_STREAM, Category.KERNEL),
    "collective_comm": (ON_STREAM, Category.COMMUNICATION),
    # as torch 1.8 to 1.11 calls them
    "Kernel": (ON_STREAM, Category.KERNEL),
    "Memcpy": (ON_STREAM, Category.COPY),
    "Memset": (ON_STREAM, Category.MEMSET),
    "Operator": (ON_CPU, Category.OPERATOR),
}
"""Where events of a kind are shown, and what they are."""
_OF_GPUS = frozenset({"kernel", "concurrent_kernel", "Kernel"})
_OTHER_DEVICE = re.compile(r"(?:gpu|xpu|mtia|hpu|npu|musa|mlu|privateuse1)_(kernel|memcpy|memset|user_annotation)")
_OF_DEVICE = {
    "kernel": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "user_annotation": "gpu_user_annotation",
}


OF_AUTOGRAD = {"CPU functions": "cpu_op", "CUDA functions": "kernel"}
"""What the processes of traces are called that torch.autograd.profiler wrote until torch 1.8, and the kind of their
events, which have none.
"""


def kind_told_by(args: Mapping[str, object], name: str) -> str:
    """Return the kind of an event that has none, by its arguments and its name."""
    if "Task Type" in args:
        return _ASCEND
    described = args.get("desc")
    if not isinstance(described, str):
        return ""
    if described in _OF_RPD:
        return _OF_RPD[described]
    if described == name:
        return "cpu_op" if _OPERATOR.match(name) else "user_annotation"
    return "gpu_user_annotation" if described.startswith("UserMarker frame") else ""


def place_and_category(kind: str, name: str) -> tuple[str, Category]:
    """Return where events of a kind and name belong, and what they are."""
    place, category = _KINDS.get(kind) or _of_accelerator(kind)
    if category is Category.KERNEL:
        category = Category.COPY if kind == _ASCEND and is_copy(name) else of_kernel(name)
        if kind not in _OF_GPUS and waits_on_device(name):
            place, category = WAITS, Category.SYNC
    elif category is Category.RANGE and place == ON_CPU:
        category = of_range(name)
    elif category is Category.OPERATOR and of_range(name) is Category.STEP:
        category = Category.STEP  # as Ascend's and torch 1.8's traces have it
    elif category is Category.OTHER:
        category = _of_other(kind, name)
    return place, category


def _of_accelerator(kind: str) -> tuple[str, Category]:
    """Return where events of a kind that is not in the table belong: xpu_kernel, privateuse1_memcpy, mtia_memset."""
    match = _OTHER_DEVICE.fullmatch(kind)
    return _KINDS[_OF_DEVICE[match[1]]] if match else (ON_CPU, Category.OTHER)


def _of_other(kind: str, name: str) -> Category:
    """Return the category of a kind of event that is none of the usual: the runtimes of devices have many names."""
    if kind.endswith(("_runtime", "_driver", "Runtime")) or (not kind and _CALL.fullmatch(name)):
        return Category.SYNC if _WAIT.search(name) else Category.RUNTIME
    return Category.OVERHEAD if "overhead" in kind.lower() else Category.OTHER
