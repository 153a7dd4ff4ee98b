"""What XLA's profiles hold, in either form (planes in protocol buffers, or JSON for Chrome): devices, lines, events.

On GPUs a line is a stream or a view that was derived from streams; on TPUs `XLA Ops` is what the cores do.
"""

import re
from typing import Literal, NamedTuple

from profiling.trace.category import Category, of_kernel, of_range

Kind = Literal["host", "device", "steps", "derived"]
"""What the events of a line are: of the CPU, work of a device, its steps, or a view that was derived from its work."""

INFO_KEYS = ("hlo_op", "hlo_module", "tf_op", "hlo_category", "long_name", "kernel_details", "source", "flops")
"""Statistics of an event that are shown."""
LONGEST_INFO = 600
STEP_NUMBER = "step_num"
"""The statistic of a range of the host that is a step: `jax.profiler.StepTraceAnnotation("train", step_num=3)`."""

_DEVICE = re.compile(r"/device:(?P<kind>[A-Z]+)(?:_[A-Z]+)?:(?P<index>\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_CALL = re.compile(r"(?:cu|cuda|hip|hsa_?|nccl|rccl)[A-Z]\w+")
_WAIT = re.compile(r"Synchronize|BlockHostUntilDone|StreamWait")
_COPY = re.compile(
    r"^(?:Memcpy|(?:async-)?copy(?:-start|-done)?[.\d]*$|infeed|outfeed)|^Copy(?:Host|Device)To(?:Host|Device)$", re.I
)
_COLLECTIVE = re.compile(r"(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|send|recv)\b")


class PlaneDevice(NamedTuple):
    """Which device a plane is of; `number` is -1 for a host."""

    number: int
    is_gpu: bool


def device_of(plane: str) -> PlaneDevice:
    """Return the device of a plane by its name."""
    match = _DEVICE.search(plane)
    return PlaneDevice(int(match["index"]), match["kind"] == "GPU") if match else PlaneDevice(-1, False)


def kind_of_line(device: PlaneDevice, name: str) -> Kind:
    """Return what the events of a line are."""
    if device.number < 0:
        return "host"
    if stream_of(name) is not None if device.is_gpu else name.endswith("XLA Ops"):
        return "device"
    return "steps" if name == "Steps" else "derived"


def stream_of(line: str) -> int | None:
    """Return the number of a GPU's stream; None for another line."""
    match = _STREAM.search(line)
    return int(match[1]) if match else None


class HostSteps:
    """Which ranges of a host are steps: those of the first name that has a number, where no device tells its own.

    What evaluates between the steps counts by itself, and one step would have the number of another.
    """

    def __init__(self, *, are_wanted: bool = True) -> None:
        self._are_wanted = are_wanted
        self._name: str | None = None

    def number(self, name: str, kind: Kind, number: int | None) -> int | None:
        """Return the number of the step that an event is; None for another one."""
        if number is None or number < 0 or kind != "host" or not self._are_wanted:
            return None
        self._name = name if self._name is None else self._name
        return number if name == self._name else None


def is_steps_of_device(plane: str, line: str) -> bool:
    """Return True for the line on which a device tells its steps."""
    return kind_of_line(device_of(plane), line) == "steps"


def shown_name(name: str, kind: Kind, step: int | None = None) -> str:
    """Return the name that an event is shown by: devices call steps by a number alone, a host by a name alone."""
    if step is not None:
        return f"{name} {step}"
    return f"step {name}" if kind == "steps" and name.isdecimal() else name


def category_of(
    name: str, kind: Kind, *, is_linked: bool = False, is_step: bool = False, is_hlo: bool = False
) -> Category:
    """Return what an event is, by its name and the kind of its line.

    An event of a host `is_linked` if work of a device names it as its cause: a launch, which on AMD's devices is called
    as what it launches. It `is_hlo` if it names an operator of XLA: a CPU runs these itself.
    """
    if kind == "steps" or is_step:
        return Category.STEP
    if kind == "derived":
        return Category.RANGE
    if kind == "device":
        if _COPY.match(name):
            return Category.COPY
        if re.match(r"memset", name, re.I):
            return Category.MEMSET
        return Category.COMMUNICATION if _COLLECTIVE.search(name) else of_kernel(name)
    if name.startswith("$"):
        return Category.PYTHON
    if _CALL.match(name):
        return Category.SYNC if _WAIT.search(name) else Category.RUNTIME
    if _WAIT.search(name):
        return Category.SYNC
    if is_linked:
        return Category.RUNTIME
    if is_hlo:
        return Category.COMMUNICATION if _COLLECTIVE.search(name) else Category.OPERATOR
    return of_range(name)
