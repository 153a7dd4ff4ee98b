"""What the runner is told through its environment, read in one place."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REQUIRED = ("PITWALL_URL", "PITWALL_TOKEN", "PITWALL_RUN", "PITWALL_ATTEMPT", "PITWALL_RUN_ROOT")


class EnvironmentIncomplete(ValueError):
    """A variable that the console sets when it submits the job is missing or makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerJob:
    """One attempt of a run, where its console is, and where its files go."""

    url: str
    token: str
    run: str
    attempt: int
    run_root: Path
    device: str = "auto"
    trainers: str = ""  # where other trainers are, as jobs.catalog.trainer_environment reads it
    stop_grace_seconds: float = 300.0  # from the stop command to SIGTERM: one step and one checkpoint
    term_grace_seconds: float = 15.0  # from SIGTERM to SIGKILL
    leave_seconds: float = 8.0  # Ray ends the workers of a job by itself once its driver is gone

    @property
    def run_dir(self) -> Path:
        """The run directory of this attempt on this node."""
        return self.run_root / self.run / f"a{self.attempt}"


def read_job(environ: Mapping[str, str]) -> RunnerJob:
    """Return the job that the PITWALL_ variables describe.

    Raises: EnvironmentIncomplete, naming the variable.
    """
    missing = [name for name in REQUIRED if not environ.get(name)]
    if missing:
        text = f"{', '.join(missing)} not set. The console sets them when it submits the job; start runs from there."
        raise EnvironmentIncomplete(text)
    return RunnerJob(
        url=environ["PITWALL_URL"].rstrip("/"),
        token=environ["PITWALL_TOKEN"],
        run=environ["PITWALL_RUN"],
        attempt=int(_number(environ, "PITWALL_ATTEMPT", 1)),
        run_root=Path(environ["PITWALL_RUN_ROOT"]),
        device=environ.get("PITWALL_DEVICE") or "auto",
        trainers=environ.get("PITWALL_TRAINERS", ""),
        stop_grace_seconds=_number(environ, "PITWALL_STOP_GRACE_SECONDS", 300.0),
        term_grace_seconds=_number(environ, "PITWALL_TERM_GRACE_SECONDS", 15.0),
        leave_seconds=_number(environ, "PITWALL_LEAVE_SECONDS", 8.0),
    )


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "") or str(default)
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e9:
        raise EnvironmentIncomplete(f"{name} is {text!r}; it has to be a number from 0.")
    return number
