"""What a launch carries so that a trainer's TensorBoard files can be read while it runs."""

from importlib.resources import files
from pathlib import Path

FILE = "inputs/live/sitecustomize.py"


def files_to_flush() -> dict[str, str]:
    """Return the file by its path below the run directory; its own text says what it does."""
    return {FILE: (files("jobs.adapters.logs.live") / "sitecustomize.py").read_text("utf-8")}


def environment_to_flush(run_dir: Path) -> dict[str, str]:
    """Return the variable that has Python read the file. The runner puts it before the PYTHONPATH that is there."""
    return {"PYTHONPATH": str((run_dir / FILE).parent)}
