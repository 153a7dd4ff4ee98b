"""The variables that a run is given: asked of the console, set for the trainer and its Ray workers, never written down.

Ray shows the environment of a job to whoever may open its dashboard, so secrets do not travel in it. The runner asks
for them once, over its own connection and under a key that it made up; the trainer has them in its environment, and
Ray's workers fetch them from Ray's own store when they start (`ray_workers.py`).
"""

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.catalog.spec.environment import why_no_name
from jobs.runner.captures.attachable import RAY_JOB
from jobs.runner.console_client.backoff import Backoff
from jobs.runner.console_client.console import (
    AttemptFenced,
    Console,
    ConsoleUnreachable,
    LaunchAnswer,
    RequestRejected,
)
from jobs.runner.console_client.runner_job import RunnerJob
from profiling.redaction import remember

KEY_FILE = ".key"
HOOK = "jobs.runner.variables.ray_workers.take"
STORE_SECONDS = 60.0  # a cold import of Ray on a busy shared disk
_WARM_WORKERS = "PITWALL_WARM_SOCKET"  # workers are forked of a process that has read its environment before


class VariablesMissing(Exception):
    """What the run is given cannot be had; `side` is who has to do something about it."""

    def __init__(self, side: str, text: str) -> None:
        super().__init__(text)
        self.side = side


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenVariables:
    """What the trainer gets besides the runner's environment: `shown` may be told, `secret` not."""

    shown: Mapping[str, str] = field(default_factory=dict)
    secret: Mapping[str, str] = field(default_factory=dict)

    @property
    def all(self) -> dict[str, str]:
        """Both, by name."""
        return {**self.shown, **self.secret}


NO_VARIABLES = GivenVariables()


def ask_variables(
    job: RunnerJob, console: Console, answer: LaunchAnswer, *, wait: Callable[[float], bool]
) -> GivenVariables:
    """Return what the run is given; its secrets are hidden in all that is shipped from then on.

    Names that no run may be given are left out, whoever put them into the answer. `wait(seconds)` pauses and returns
    True to give up, which raises ConsoleUnreachable.
    Raises: VariablesMissing, AttemptFenced, OSError where the run directory takes no file.
    """
    environment = answer.get("environment")
    if environment is None:
        return NO_VARIABLES
    shown = {name: text for name, text in environment["variables"].items() if why_no_name(name) is None}
    if not environment["secrets"]:
        return GivenVariables(shown=shown)
    backoff = Backoff()
    while True:
        try:
            variables = console.secrets(_key(job.run_dir))
            break
        except ConsoleUnreachable:
            if wait(backoff.wait_seconds()):
                raise
        except RequestRejected as error:
            raise VariablesMissing("user", f"the run's secrets are not to be had: {error}") from error
    remember(variables.values())
    return GivenVariables(shown=shown, secret={k: v for k, v in variables.items() if why_no_name(k) is None})


def remember_secrets(job: RunnerJob, console: Console) -> bool:
    """Learn again which secrets an earlier runner of the attempt had, so that they are hidden in what it left.

    True also if it had none; False if they are not to be had any more.
    """
    if not (job.run_dir / KEY_FILE).exists():
        return True
    try:
        remember(console.secrets(_key(job.run_dir)).values())
    except (AttemptFenced, ConsoleUnreachable, RequestRejected, OSError):
        return False
    return True


def with_variables(environ: Mapping[str, str], variables: GivenVariables) -> dict[str, str]:
    """Return the environment that the trainer is started in; its Ray workers are told to take theirs from the store.

    The names of secrets are told too, so that recorders hide them whatever they are called (profiling.redaction).
    """
    if not variables.all:
        return dict(environ)
    merged = {**environ, **variables.all, "PITWALL_SECRETS": " ".join(variables.secret)}
    merged.pop(_WARM_WORKERS, None)
    with contextlib.suppress(ValueError, TypeError, AttributeError):  # a Ray that writes it otherwise
        job = json.loads(environ.get(RAY_JOB) or "null")
        if job is not None:
            job.setdefault("runtime_env", {})["worker_process_setup_hook"] = HOOK
            merged[RAY_JOB] = json.dumps(job)
    return merged


def store_for_workers(variables: GivenVariables, environ: Mapping[str, str]) -> None:
    """Put what is given where Ray's workers of the attempt find it; nothing to do without Ray, or without variables.

    Raises: VariablesMissing.
    """
    if variables.all and RAY_JOB in environ:
        problem = _of_ray("put", environ, json.dumps({**variables.all, "PITWALL_SECRETS": " ".join(variables.secret)}))
        if problem:
            raise VariablesMissing("cluster", f"Ray's store does not take the run's variables: {problem}")


def drop_from_store(job: RunnerJob, environ: Mapping[str, str]) -> None:
    """Take out of Ray's store what a runner of the attempt has put there; never raises."""
    if (job.run_dir / KEY_FILE).exists() and RAY_JOB in environ:
        _of_ray("drop", environ, "")


def _of_ray(verb: str, environ: Mapping[str, str], text: str) -> str:
    """Ask a process of its own, which loads Ray and ends; values go through its standard input. Return what failed."""
    argv = [sys.executable, "-m", "jobs.runner.variables.ray_workers", verb]
    try:
        done = subprocess.run(
            argv, check=False, input=text.encode(), capture_output=True, timeout=STORE_SECONDS, env=dict(environ)
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return (lines or [f"exit code {done.returncode}"])[-1][:300] if done.returncode else ""


def _key(run_dir: Path) -> str:
    """Return the key of this attempt's runner, made when it is first asked for, in a file that only its user reads."""
    path = run_dir / KEY_FILE
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text("ascii")
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key := secrets.token_hex(32))
    return key
