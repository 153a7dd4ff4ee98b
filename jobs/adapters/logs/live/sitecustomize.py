"""Put beside a run of another trainer by Pitwall, so that its curves are live: TensorBoard files
are flushed each second.

TensorBoard's writer keeps values in memory for two minutes, and trainers do not ask for less. Python reads this file at
its start because its folder stands first in PYTHONPATH. Nothing else changes; a sitecustomize of the environment's own
is read as before.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

WRITER = "tensorboard.summary.writer.event_file_writer"
SECONDS = 1


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find the writer's module, and changes it once it is executed."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of that one module."""
        if name != WRITER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            theirs = module._AsyncWriter

            def hurried(record_writer: Any, max_queue_size: int = 20, flush_secs: float = SECONDS) -> Any:
                return theirs(record_writer, max_queue_size, min(flush_secs, SECONDS))

            module._AsyncWriter = hurried  # type: ignore[attr-defined]  # it is the module that we change

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _read_the_next() -> None:
    """Execute the sitecustomize that this file stands before, if there is one."""
    here = Path(__file__).resolve().parent
    places = [number for number, entry in enumerate(sys.path) if Path(entry or ".").resolve() == here]
    rest = sys.path[max(places, default=-1) + 1 :]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, _Finder())
    _read_the_next()
