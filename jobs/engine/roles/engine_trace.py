"""Torch traces of a vLLM engine whose workers are processes of their own: vLLM starts and stops a profiler in each.

An engine in the actor's own process needs none of this: profiling.captures.recording sees it. These traces show vLLM's
own ranges (batches by tokens of context and generation), not our phases, which the actor's process marks.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EngineTrace:
    """Traces of one engine's workers, in a folder of this node."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pitwall-vllm-"))
        self._earlier_files: set[Path] = set()

    def arguments(self) -> Mapping[str, Any]:
        """Return what vLLM's LLM is to be built with, so that it can be traced later. Stacks would cost memory."""
        settings = {
            "profiler": "torch",
            "torch_profiler_dir": str(self._folder),
            "torch_profiler_with_stack": False,
            "ignore_frontend": True,
        }
        return {"profiler_config": settings}

    def start(self, engine: Any) -> None:
        """Start the profiler of every worker."""
        self._earlier_files = set(self._folder.iterdir())
        engine.start_profile()

    def stop(self, engine: Any, *, stem: Path) -> list[Path]:
        """Stop them; return their files in order of rank, as `<stem>-worker<n>.pt.trace.json.gz`.

        Raises: FileNotFoundError if vLLM wrote none.
        """
        engine.stop_profile()
        new = sorted(
            p for p in self._folder.iterdir() if p not in self._earlier_files and p.name.endswith(".trace.json.gz")
        )
        if not new:
            raise FileNotFoundError("vLLM's workers wrote no trace.")
        stem.parent.mkdir(parents=True, exist_ok=True)
        traces = []
        for number, path in enumerate(new):
            target = stem.with_name(f"{stem.name}-worker{number}.pt.trace.json.gz")
            part = target.with_name(f".part-{target.name}")
            shutil.move(path, part)  # it may be copied, and what has its own name is whole
            part.replace(target)
            traces.append(target)
        return traces
