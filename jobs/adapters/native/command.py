"""The built-in trainer, `python -m jobs.engine`. It reads the RunSpec itself, so nothing has to be translated."""

from pathlib import Path

from jobs.adapters.launching import Launch
from jobs.catalog.spec.runspec import RunSpec


def command(*, spec: RunSpec, run_dir: Path, python: str, device: str) -> Launch:
    """Return the engine's command; a device that the spec names wins over `device`."""
    wanted = spec.hardware.device if spec.hardware.device != "auto" else device
    argv: tuple[str, ...] = (python, "-m", "jobs.engine", str(run_dir))
    if wanted in ("cpu", "cuda"):
        argv += ("--device", wanted)
    return Launch(
        argv=argv,
        env={
            "PYTHONUNBUFFERED": "1",  # the last lines before a crash are the ones that matter
            "PYTHONFAULTHANDLER": "1",  # a crash in native code leaves the Python stack in the log
        },
    )
