"""What happens before the trainer starts: ask the console what to run, make the run directory, fetch the inputs."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from jobs.adapters.adapter import adapter
from jobs.adapters.launching import Launch
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import RunSpec, to_text
from jobs.runner.console_client.backoff import Backoff
from jobs.runner.console_client.console import (
    ChecksumMismatch,
    Console,
    ConsoleUnreachable,
    InputFile,
    LaunchAnswer,
    RequestRejected,
    Resume,
)
from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.environment import TrainerMissing, check_services, interpreter
from jobs.runner.inputs import InputsFailed, materialize_inputs
from jobs.runner.variables.variables import NO_VARIABLES, GivenVariables

MAX_DOWNLOADS = 3
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NotPrepared(Exception):
    """The trainer cannot be started; `side` is who has to do something about it, `field` what is to blame, if known."""

    def __init__(self, side: str, text: str, *, field: str = "") -> None:
        super().__init__(text)
        self.side, self.field = side, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """What is run, how it is started, and the interpreter that has the trainer."""

    spec: RunSpec
    launch: Launch
    python: str


def fetch_launch(console: Console, *, wait: Callable[[float], bool], say: Callable[[str], None]) -> LaunchAnswer:
    """Return the console's answer to `GET launch`, waiting for it while the console is away.

    `wait(seconds)` pauses and returns True to give up, which raises ConsoleUnreachable.

    Raises: Fenced, RequestRejected.
    """
    backoff = Backoff()
    has_said = False
    while True:
        try:
            return console.launch()
        except ConsoleUnreachable as error:
            if not has_said:
                say(f"Waiting for the console. {error}")
            has_said = True
            if wait(backoff.wait_seconds()):
                raise


def make_run_dir(run_dir: Path) -> None:
    """Make the run directory and its folders."""
    for name in ("log", "inputs"):
        (run_dir / name).mkdir(parents=True, exist_ok=True)


def prepare(
    job: RunnerJob,
    console: Console,
    answer: LaunchAnswer,
    *,
    python: str,
    wait: Callable[[float], bool],
    variables: GivenVariables = NO_VARIABLES,
) -> PreparedRun:
    """Write `spec.json` and `resume.json`, fetch the inputs, write `launch.json`; return how to start the trainer.

    `python` is the runner's own interpreter, which has the built-in trainer. Another trainer's interpreter is looked
    for where it is declared, and its model and data are written.
    Raises: NotPrepared; OSError if the disk does not take it.
    """
    try:
        spec = parse_spec(answer["spec"])
        theirs = interpreter(spec.trainer, declared=job.trainers, own_python=python)
        check_services(spec, theirs)
        launch = adapter(spec.trainer.name).command(spec=spec, run_dir=job.run_dir, python=theirs, device=job.device)
    except TrainerMissing as error:
        raise NotPrepared("cluster", str(error)) from error
    except (KeyError, SpecInvalid, ValueError) as error:
        raise NotPrepared("pitwall", f"the runner cannot read this spec: {error}") from error
    write_whole(job.run_dir / "spec.json", to_text(spec))
    resume = answer.get("resume")
    if resume is not None:
        origin = _checkpoint(job, spec, resume)
        write_whole(job.run_dir / "resume.json", json.dumps(origin, indent=2))
        folder = Path(origin["folder"])
        launch = adapter(spec.trainer.name).checkpoints.resumed(launch=launch, spec=spec, folder=folder)
    for item in answer.get("inputs", ()):
        _fetch(console, item, job.run_dir / "inputs", wait)
    if not spec.is_native:
        try:
            materialize_inputs(job.run_dir)
        except InputsFailed as error:
            raise NotPrepared(error.side, str(error)) from error
    for name, text in launch.files.items():
        path = job.run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    for name, source in launch.copies.items():
        _copy(source, job.run_dir / name)
    write_whole(job.run_dir / "launch.json", json.dumps(_described(job, spec, launch, variables), indent=2))
    return PreparedRun(spec=spec, launch=launch, python=theirs)


class ResumeOrigin(TypedDict):
    """What `resume.json` says."""

    attempt: int
    step: int
    folder: str


def _checkpoint(job: RunnerJob, spec: RunSpec, resume: Resume) -> ResumeOrigin:
    """Return the checkpoint to go on from, in the run directory of its attempt on this node.

    Raises: NotPrepared if it is not there.
    """
    try:
        attempt, step = int(resume["attempt"]), int(resume["step"])
    except (KeyError, TypeError, ValueError) as error:
        raise NotPrepared("pitwall", f"the runner cannot read what to resume from: {resume!r}") from error
    run_dir = job.run_root / job.run / f"a{attempt}"
    try:
        folder = adapter(spec.trainer.name).checkpoints.saved(spec=spec, run_dir=run_dir).get(step)
    except OSError:
        folder = None
    if folder is None or not folder.is_dir():
        node = socket.gethostname()
        text = (
            f"checkpoint {step} of attempt {attempt} is not on this node, {node}: it is not below {run_dir}. "
            "Checkpoints stay on the node of the attempt that wrote them. Resume while that node is in the cluster, "
            "from a checkpoint that is here, or start from the beginning"
        )
        raise NotPrepared("cluster", text, field="resume")  # so that the console knows that it is lost
    return {"attempt": attempt, "step": step, "folder": str(folder)}


def _copy(source: Path, target: Path) -> None:
    """Copy a folder by links to its files where the disk is the same, so that it takes no space. Raises: OSError."""

    def link(one: str, other: str) -> str:
        try:
            os.link(one, other)
        except OSError:  # another file system, or one without links
            shutil.copy2(one, other)
        return other

    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, copy_function=link, dirs_exist_ok=False)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there completely or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)  # noqa: PTH105 (both names are in one folder; one call)


def _fetch(console: Console, item: InputFile, folder: Path, wait: Callable[[float], bool]) -> None:
    sha256, name = str(item["sha256"]), str(item.get("file_name", "input"))
    if not _SHA256.fullmatch(sha256):
        raise NotPrepared("pitwall", f"the console announces {name!r} with {sha256!r}, which is no SHA-256")
    backoff = Backoff()
    num_downloads = 0
    while not (folder / sha256).exists():
        try:
            console.fetch_input(sha256, folder / sha256)
        except ChecksumMismatch as error:
            num_downloads += 1
            if num_downloads == MAX_DOWNLOADS:
                raise NotPrepared(
                    "pitwall", f"the uploaded file {name} arrived damaged {MAX_DOWNLOADS} times"
                ) from error
        except ConsoleUnreachable:
            if wait(backoff.wait_seconds()):
                raise
        except RequestRejected as error:
            text = f"the uploaded file {name} cannot be fetched from the console ({error}). Upload it again"
            raise NotPrepared("pitwall", text) from error


def _described(job: RunnerJob, spec: RunSpec, launch: Launch, variables: GivenVariables) -> dict[str, object]:
    """What `launch.json` says. The runner's own environment, where the token is, stays out of it, as do secrets."""
    return {
        "run": job.run,
        "attempt": job.attempt,
        "trainer": spec.trainer.name,
        "trainer_version": spec.trainer.version,
        "argv": list(launch.argv),
        "env": dict(launch.env),
        "variables": dict(variables.shown),
        "secrets": sorted(variables.secret),
        "device": job.device,
    }
