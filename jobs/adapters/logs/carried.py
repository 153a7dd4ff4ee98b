"""Files that a launch carries so that what a trainer measures can be read while it trains (`live/sitecustomize.py`)."""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

FOLDER = "inputs/live"
ON_TENSORBOARD = files("jobs.adapters.logs.live") / "on_tensorboard.py"


def carried_files(*changes: Traversable) -> dict[str, str]:
    """Return files by their path below the run directory: what Python reads at its start, and these changes."""
    start = files("jobs.adapters.logs.live") / "sitecustomize.py"
    return {f"{FOLDER}/{file.name}": file.read_text("utf-8") for file in (start, *changes)}


def carried_environment(run_dir: Path) -> dict[str, str]:
    """Return the variable that has Python read them. The runner puts it before the PYTHONPATH that is there."""
    return {"PYTHONPATH": str(run_dir / FOLDER)}
