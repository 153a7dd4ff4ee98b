"""Fork Ray workers from a process that has imported vLLM, too: `python -m tests.warm_workers.server SOCKET`.

The imports of a worker (4 to 9 s of a core) are most of what a run of the engine costs in a test, and a run starts
four. It is the server of the embedded console (`jobs.engine.warm.server`), but that it knows vLLM, and ends with the
tests.
"""

import os
import sys
from pathlib import Path

from jobs.engine.warm.server import LIBRARIES, end_with_parent, open_listener, preload, serve

OF_VLLM = (
    "vllm",
    "vllm.entrypoints.llm",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.engine.core",
    "vllm.v1.engine.core_client",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu_model_runner",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen2",
    "vllm.model_executor.models.qwen3",
    "vllm.distributed.weight_transfer.factory",
    "vllm.model_executor.model_loader.reload",
)
OF_ADAPTERS = ("peft",)
LOOK_FOR_RAY = ("vllm.v1.executor.ray_utils", "vllm.v1.metrics.ray_wrappers")
"""Each worker's own to import, as Ray is."""


def main() -> None:
    """Import, listen, serve."""
    end_with_parent()
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    path = Path(sys.argv[1])
    listener = open_listener(path.with_suffix(".new"))
    preload((*LIBRARIES, *OF_VLLM, *OF_ADAPTERS), without=LOOK_FOR_RAY)
    path.with_suffix(".new").rename(path)  # who finds the socket is answered at once
    serve(listener, ends_children=True)


if __name__ == "__main__":
    main()
