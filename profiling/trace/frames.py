"""Frames of Python on the timeline: which are of a framework, and which stand inside another frame of the same one.

A stack of torch is sixty frames deep, most of them of torch itself. On the lane of a thread's frames one stands for
each run of frames of one package: the outermost. Those inside it are on a lane beside, so that none is lost.
"""

import re
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FRAMES = "frames"
"""The title of a thread's lane of Python frames."""
INNER_FRAMES = "inner frames"
"""The title of the lane beside it: frames that lie in a frame of the same framework."""

OWN = ""
"""The package of what is no framework: people's own code, and modules of a model, which they know by name."""
BUILT_IN = "built-in"
"""The package of what has no file; it goes with the frame that calls it."""
STANDARD = "Python"

_FRAME = re.compile(r"^(?P<path>[^(]*)\(\d+\): ")
_INSTALLED = re.compile(r"^.*(?:site|dist)-packages/")
_LIBRARY = re.compile(r"^.*lib/python3?\.?\d*/")
_FROZEN = re.compile(r"^<frozen ")
_FRAMEWORKS = frozenset(
    {
        "accelerate", "aiohttp", "apex", "deepspeed", "fastapi", "flash_attn", "functorch", "grpc", "ignite", "jax",
        "jaxlib", "liger_kernel", "lightning", "lightning_fabric", "megatron", "numpy", "peft",
        "pytorch_lightning", "ray", "sgl_kernel", "sglang", "starlette", "torch", "torchao", "torchdata",
        "torchgen", "torchtitan", "torchtune", "torchvision", "transformer_engine", "transformers", "triton",
        "uvicorn", "uvloop", "vllm", "xformers"
    }
)  # fmt: skip
"""Packages whose paths torch writes relative to where they are installed; trainers are what people look for."""
_SCRIPTS = frozenset({"cmd", "code", "profile", "test", "this"})
"""Names of the standard library that people give to scripts of their own."""


def package_of(name: str) -> str:
    """Return whose frame it is by its name, `torch/nn/modules/module.py(1501): _call_impl`: a package, or OWN."""
    if name.startswith("<built-in "):
        return BUILT_IN
    match = _FRAME.match(name)
    if match is None:
        return OWN
    path = match["path"]
    if _FROZEN.match(path):
        return STANDARD
    installed = _INSTALLED.sub("", path)
    is_installed = installed != path
    path = installed if is_installed else _LIBRARY.sub("", path)
    first = path.partition("/")[0].removesuffix(".py")
    if first in sys.stdlib_module_names and first not in _SCRIPTS:
        return STANDARD
    return first if is_installed or first in _FRAMEWORKS else OWN


class Packages:
    """Numbers of the packages of names; 0 is OWN."""

    def __init__(self) -> None:
        self._numbers = {OWN: 0, BUILT_IN: 1}

    def numbers(self, names: Sequence[str]) -> Ints:
        """Return the number of the package of each name [n]."""
        return np.array([self._number(package_of(name)) for name in names], np.int64)

    def _number(self, package: str) -> int:
        return self._numbers.setdefault(package, len(self._numbers))


class Runs:
    """Finds, on one lane, frames that lie in a frame of the same framework; block by block, as they are swept."""

    def __init__(self) -> None:
        self._above: Mapping[int, int] = {}  # the package of the last frame at each depth

    def inner(self, depth: Ints, package: Ints) -> Bools:
        """Return which frames of the next block do. `depth`, and `package` as a number, 0 for OWN; all [n]."""
        package = package.copy()
        is_inner = np.zeros(len(depth), np.bool_)
        order = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2))
        last = dict(self._above)
        above: Ints = np.empty(0, np.int64)
        for level in range(len(bounds) - 1):
            rows = order[bounds[level] : bounds[level + 1]]
            at = np.searchsorted(above, rows) - 1
            parent = np.full(len(rows), self._above.get(level - 1, 0), np.int64)
            parent[at >= 0] = package[above[at[at >= 0]]]
            package[rows] = np.where(package[rows] == 1, parent, package[rows])
            is_inner[rows] = (package[rows] > 1) & (package[rows] == parent)
            if len(rows):
                last[level] = int(package[rows[-1]])
            above = rows
        self._above = last
        return is_inner
