"""The decoder layers of a model, each compiled.

Between its matrix products a layer is many small operations, which wait for memory rather than compute; torch.compile
joins them into few kernels.
"""

import contextlib
from typing import Any

import torch


def compile_layers(model: Any, *, backend: Any = "inductor") -> int:
    """Let calls of each decoder layer of a model of transformers run compiled; return how many layers it has.

    It happens at a layer's first call, and once more when shapes vary; layers of one kind share what was compiled.
    Weights must be whole (not ZeRO-3). A layer that recomputes its activations is compiled within the recomputation.
    Raises: ValueError for a model that does not name its layers.
    """
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    layers = [module for module in model.modules() if type(module).__name__ in kinds]
    if not layers:
        raise ValueError(f"{type(model).__name__} does not say which of its modules are layers (_no_split_modules).")
    for layer in layers:
        layer.compile(backend=backend)
    return len(layers)


def uncompiled() -> contextlib.AbstractContextManager[None]:
    """Return a block in which compiled layers run as they are: where every call has another shape, as in decoding."""
    return torch.compiler.set_stance("force_eager")
