"""Write the adapters of a policy as the folder that PEFT loads, there whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobs.engine.atomic_folder import atomic_folder
from jobs.engine.checkpoints.export import ABOUT
from jobs.engine.workers.worker_group import WorkerGroup

SUFFIX = "-adapter"
"""Of the folder beside that of the merged model: transformers would take a folder that holds both for an adapter."""


def export_adapters(workers: WorkerGroup, final: Path, *, about: Mapping[str, Any]) -> None:
    """Write the adapters of the policy ranks into the folder `final`; `about` becomes its `pitwall.json`.

    They come from rank 0 in one message, which is small beside that of a bucket of weights.
    """
    tensors, config = workers.gather([p.call("export_adapters") for p in workers.policies])[0]
    write_adapters(final, tensors, config, about=about)


def write_adapters(
    final: Path, tensors: Mapping[str, Any], config: Mapping[str, Any], *, about: Mapping[str, Any]
) -> None:
    """Write what `adapters.adapter_files` returns."""
    from safetensors.torch import save_file

    with atomic_folder(final) as partial:
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, partial / "adapter_model.safetensors", metadata={"format": "pt"})
        for name, content in (("adapter_config.json", config), (ABOUT, about)):
            (partial / name).write_text(json.dumps(dict(content), indent=2, default=str) + "\n", encoding="utf-8")
