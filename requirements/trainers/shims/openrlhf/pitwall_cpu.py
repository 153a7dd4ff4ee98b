"""Lets OpenRLHF train on CPU: only where DS_ACCELERATOR is cpu, which tells DeepSpeed the same.

Python reads this at its start (pitwall_cpu.pth). Four things change, each when the module that has it is imported:
torch.cuda's current_device, set_device, synchronize and empty_cache do nothing; a device mesh of "cuda" is one of
"cpu"; DeepSpeed does not compile its shared-memory operation; and its FusedAdam, which would be compiled for minutes,
is torch's AdamW, which computes the same.
"""

import importlib.abc
import importlib.util
import os
import sys


def _torch(torch):
    torch.cuda.current_device = lambda: "cpu"
    for name in ("set_device", "synchronize", "empty_cache"):
        setattr(torch.cuda, name, lambda *_arguments, **_more: None)


def _device_mesh(module):
    theirs = module.init_device_mesh
    module.init_device_mesh = lambda _device, *arguments, **more: theirs("cpu", *arguments, **more)


def _ops(module):
    module.__compatible_ops__["deepspeed_shm_comm"] = False


def _adam(module):
    import torch

    class FusedAdam(torch.optim.AdamW):
        """DeepSpeed asks for the decoupled form by adam_w_mode; it is the only one here."""

        def __init__(self, params, adam_w_mode=True, **more):
            if not adam_w_mode:
                raise ValueError("On CPU, the stand-in for DeepSpeed's FusedAdam has decoupled weight decay only.")
            more.pop("bias_correction", None)
            super().__init__(params, **more)

    module.FusedAdam = FusedAdam


_CHANGES = {
    "torch": _torch,
    "torch.distributed.device_mesh": _device_mesh,
    "deepspeed.ops": _ops,
    "deepspeed.ops.adam": _adam,
}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find a module, and changes it once it is executed."""

    def find_spec(self, name, path=None, target=None):
        """Return the spec of a module to be changed, None for all others."""
        change = _CHANGES.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("DS_ACCELERATOR") == "cpu":
    sys.meta_path.insert(0, _Finder())
