"""TensorBoard files are flushed each second, so that curves are live.

TensorBoard's writer keeps values in memory for two minutes, and some trainers do not ask for less.
"""

from types import ModuleType
from typing import Any

MODULE = "tensorboard.summary.writer.event_file_writer"
SECONDS = 1


def change(module: ModuleType) -> None:
    """Have the writer flush."""
    theirs = module._AsyncWriter

    def hurried(record_writer: Any, max_queue_size: int = 20, flush_secs: float = SECONDS) -> Any:
        return theirs(record_writer, max_queue_size, min(flush_secs, SECONDS))

    module._AsyncWriter = hurried  # type: ignore[attr-defined]  # it is the module that we change
