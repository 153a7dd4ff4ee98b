"""Faults for `make proof-diagnosis`, and a load for `make bench-profiling`.

They are planted in every process that starts with this folder in front of its path. The file that PITWALL_PLANTED names
holds the names of those that are on. It is read at each call, because Ray starts workers ahead of the run that they
will belong to. Nothing of the product knows of this.
"""

import importlib.abc
import importlib.util
import os
import sys
import time
from pathlib import Path


def _on(name):
    try:
        return name in Path(os.environ["PITWALL_PLANTED"]).read_text().split()
    except OSError:
        return False


def _rank():
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def _before(owner, name, action):
    """Call `action(arguments)` before each call of a function."""
    inner = getattr(owner, name)

    def outer(*args, **kwargs):
        action(args)
        return inner(*args, **kwargs)

    setattr(owner, name, outer)


_kept = []
_updates = 0
_is_loaded = False


def _many_ranges():
    """Mark as many ranges as asked, once."""
    global _is_loaded
    if _is_loaded or _rank():
        return
    _is_loaded = True
    from profiling.profilers.nvtx import DOMAIN, package

    nvtx = package()  # not by our marks: they would be live spans, too
    for _ in range(int(os.environ["PITWALL_PLANTED_RANGES"])):
        nvtx.push_range("forward", domain=DOMAIN)
        nvtx.pop_range(domain=DOMAIN)


def _policy(module):
    def late(_args):
        if _on("straggler") and _rank() == 1:
            time.sleep(0.15)
        if _on("outlier") and _rank() == 1 and _updates == 7:
            time.sleep(2.5)

    def count(_args):
        global _updates
        _updates += 1
        if _on("many_ranges"):
            _many_ranges()
        if _on("memory_growth"):
            _kept.append(bytearray(b"x" * (24 << 20)))
        if _on("recompilation"):
            import torch

            def made_anew(x):
                for _ in range(12):
                    x = torch.sin(x) + torch.cos(x)
                return x

            for _ in range(2):
                torch.compile(made_anew, backend="eager", dynamic=False)(torch.ones(_updates + 1, 3))
                torch._dynamo.reset()

    def slow_link(_args):
        if _on("sync_stall"):
            time.sleep(0.8)

    _before(module.Policy, "_outputs", late)
    _before(module.Policy, "update", count)
    _before(module.Policy, "send_weights", slow_link)


def _trained_model(module):
    _before(module, "write_part", lambda _args: time.sleep(1.0) if _on("disk_stall") else None)


def _loop(module):
    _before(module.Loop, "_take", lambda _args: time.sleep(0.8) if _on("slow_data") else None)
    _before(module.Loop, "_is_stopping", lambda _args: time.sleep(0.8) if _on("host_loop") else None)


def _generator(module):
    """One answer of each batch is as long as allowed, all others end after four tokens."""
    inner = module.Generator._parameters

    def parameters(self, request, temperature):
        made = inner(self, request, temperature)
        if _on("long_tail"):
            self._planted = getattr(self, "_planted", -1) + 1
            if self._planted % 16 == 0:
                made.ignore_eos, made.stop_token_ids = True, []
            else:
                made.max_tokens = 4
        return made

    module.Generator._parameters = parameters


_PLANTS = {
    "jobs.engine.roles.policy": _policy,
    "jobs.engine.roles.trained_model": _trained_model,
    "jobs.engine.loop": _loop,
    "jobs.engine.roles.generator": _generator,
}


class _Planter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name not in _PLANTS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def planted(module):
            execute(module)
            _PLANTS[name](module)

        spec.loader.exec_module = planted
        return spec


if "PITWALL_PLANTED" in os.environ:
    sys.meta_path.insert(0, _Planter())
