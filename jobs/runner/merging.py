"""A checkpoint of a trainer as a Hugging Face folder, made by the trainer's own program.

At the end of a run of its newest checkpoint, where the trainer has left no model itself; and of any checkpoint that
somebody asks for. What is made is handed over like any model, to be tried and downloaded.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from jobs.adapters.adapter import adapter
from jobs.adapters.captures import files_below
from jobs.adapters.checkpoints import adapter_merge
from jobs.adapters.inputs import model_path
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner.models_left import holds_head
from jobs.runner.trainer import end_with_parent

MERGE_SECONDS = 3600.0
LOOK_SECONDS = 0.2
WAIT_SECONDS = 3600.0
"""For the program of another merge on this node to end."""
LAST_WAIT_SECONDS = 120.0
"""The same at the end of a run, which holds its devices meanwhile."""

LOG = "log/merge-0.stdout"
WORKPLACE = ".merge-"
LEFT_SECONDS = 24 * 3600.0
"""After which the folder of a job that was killed goes."""


class NotMerged(Exception):
    """No model was made; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSource:
    """Whose checkpoints are merged, and by what: the trainer's interpreter, and the environment of its program.

    `give_up` is asked several times a second: a runner or a job that is to end leaves the checkpoint as it is.
    The run directory lies below `run_root`, beside those of other runs.
    """

    spec: RunSpec
    python: str
    run_dir: Path
    run_root: Path
    environ: Mapping[str, str]
    give_up: Callable[[], bool]

    def saved(self) -> Mapping[int, Path]:
        """Return the folders of the checkpoints that are whole, by step."""
        try:
            return adapter(self.spec.trainer.name).checkpoints.saved(spec=self.spec, run_dir=self.run_dir)
        except OSError:
            return {}

    def command(self, folder: Path, target: Path) -> tuple[str, ...]:
        """Return the program that makes the folder `target` of a checkpoint; () where there is none."""
        checkpoints = adapter(self.spec.trainer.name).checkpoints
        return checkpoints.merge_command(spec=self.spec, python=self.python, folder=folder, target=target)

    def adapter_command(self, folder: Path, target: Path) -> tuple[str, ...]:
        """Return the program that makes the folder `target` of PEFT's adapters, which a trainer leaves at its end."""
        return adapter_merge(spec=self.spec, python=self.python, folder=folder, target=target)


def merge_left(source: MergeSource, adapters: Path | None, *, say: Callable[[str], None]) -> bool:
    """Make a whole model of what a trainer has left; return whether it is there. Says why, where it is not.

    It is `model/merged_adapters` of the folder of its adapters, where they make one: of a reward model they do with the
    trained head alone. Else it is `model/merged_<step>` of its newest checkpoint.
    """
    scores = is_in(source.spec.algorithm, "scalar")
    if adapters is not None and (holds_head(adapters) or not scores):
        return _made("the run's adapters", adapters, "merged_adapters", source.adapter_command, source, say=say)
    step, folder = max(source.saved().items(), default=(0, source.run_dir))
    if adapters is not None and not step:
        say("No model was made of the run's adapters. The trained head is not among them, and there is no checkpoint.")
    return bool(step) and _made(f"checkpoint {step}", folder, f"merged_{step}", source.command, source, say=say)


def _made(
    what: str,
    folder: Path,
    name: str,
    command_of: Callable[[Path, Path], tuple[str, ...]],
    source: MergeSource,
    *,
    say: Callable[[str], None],
) -> bool:
    target, draft = source.run_dir / "model" / name, source.run_dir / "model" / f".{name}.draft"
    if not (command := command_of(folder, draft)):
        return False
    say(f"Making a Hugging Face folder of {what}.")
    try:
        draft.mkdir(parents=True, exist_ok=True)
        _run(command, source, folder, log=source.run_dir / LOG, wait_seconds=LAST_WAIT_SECONDS)
    except NotMerged as error:
        shutil.rmtree(draft, ignore_errors=True)
        where = f" The output is in {LOG}." if (source.run_dir / LOG).exists() else ""
        say(f"No model was made of {what}. {error}{where}")
        return False
    os.replace(draft, target)  # noqa: PTH105 (both names are in one folder; one call)
    return True


@contextlib.contextmanager
def merge_checkpoint(source: MergeSource, step: int) -> Iterator[Path]:
    """Give the model of the checkpoint of a step as a folder of its own, which is gone after the block.

    The program dies with this process, of which it has to be the main thread that calls. Raises: NotMerged.
    """
    folder = source.saved().get(step)
    if folder is None:
        raise NotMerged(f"Checkpoint {step} is not on this node, {os.uname().nodename}, below {source.run_dir}.")
    files = adapter(source.spec.trainer.name).checkpoints.model_files(spec=source.spec, folder=folder)
    _remove_left(source.run_dir.parent)
    with tempfile.TemporaryDirectory(
        prefix=f"{WORKPLACE}{step}-", dir=source.run_dir, ignore_cleanup_errors=True
    ) as at:
        target, log = Path(at) / "model", Path(at) / "output.txt"
        if files:
            _take(files, target)
        elif command := source.command(folder, target):
            target.mkdir()
            try:
                _run(command, source, folder, log=log, parent=os.getpid())
            finally:
                print(log.read_text("utf-8", "replace") if log.exists() else "", flush=True)
        else:
            raise NotMerged(f"Checkpoint {step} holds no whole model, and its trainer has no program that makes one.")
        yield target


def _take(files: Sequence[Path], target: Path) -> None:
    """Link what is a model already: it stays as it is if the trainer deletes its checkpoint. Raises: NotMerged."""
    target.mkdir()
    try:
        for file in files:
            try:
                os.link(file, target / file.name)
            except OSError:  # a file system without links
                shutil.copyfile(file, target / file.name)
    except OSError as error:
        raise NotMerged(f"Its files cannot be read any more: {error.strerror or error}.") from error


def _remove_left(folder_of_run: Path) -> None:
    """Remove what jobs left that were killed, of any attempt; those that are under way keep theirs."""
    for folder in folder_of_run.glob(f"*/{WORKPLACE}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > LEFT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _sole(source: MergeSource, wait_seconds: float) -> Iterator[None]:
    """Have the node to oneself, as far as other merges go: memory that one found free, another would take as well.

    Raises: NotMerged.
    """
    deadline = time.monotonic() + wait_seconds
    with (source.run_root / f".merge-{os.uname().nodename}.lock").open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise NotMerged(f"For {wait_seconds / 60:.0f} min other models were made on its node.") from None
            except OSError:
                break  # a file system without locks
            _check_end(source)
            time.sleep(LOOK_SECONDS)
        yield


def _check_end(source: MergeSource) -> None:
    if source.give_up():
        raise NotMerged("It was told to end.")


def _check_memory(source: MergeSource, folder: Path) -> None:
    """Raises: NotMerged where the node has too little."""
    checkpoints = adapter(source.spec.trainer.name).checkpoints
    origin = source.run_dir / model_path(source.spec)  # a folder, or a hub id, of which nothing is known
    whole = 2 * sum(size for _, size in files_below(origin))  # adapters are far smaller than the model they go into
    need = max(checkpoints.merge_bytes(spec=source.spec, folder=folder), whole)
    free = psutil.virtual_memory().available
    if need > free:
        about = f"{need / 2**30:.1f} GiB of host memory, {free / 2**30:.1f} GiB are free"
        raise NotMerged(f"Its program needs about {about} on {os.uname().nodename}.")


def _run(
    command: tuple[str, ...],
    source: MergeSource,
    folder: Path,
    *,
    log: Path,
    parent: int = 0,
    wait_seconds: float = WAIT_SECONDS,
) -> None:
    """Run the program to its end, once no other one runs. With a `parent`, this process, it dies with it.

    Raises: NotMerged.
    """
    with _sole(source, wait_seconds):
        _check_memory(source, folder)
        _run_alone(command, source, log=log, parent=parent)


def _run_alone(command: tuple[str, ...], source: MergeSource, *, log: Path, parent: int) -> None:
    deadline = time.monotonic() + MERGE_SECONDS
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=None if source.spec.is_native else source.run_dir,  # the built-in trainer's code is where ours is
            env=dict(source.environ),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=(lambda: end_with_parent(parent)) if parent else None,
        )
        try:
            while (code := process.poll()) is None:
                _check_end(source)
                if time.monotonic() > deadline:
                    raise NotMerged(f"Its program took longer than {MERGE_SECONDS / 60:.0f} minutes.")
                time.sleep(LOOK_SECONDS)
        finally:
            process.kill()
            process.wait()
    if code:
        raise NotMerged(f"Its program ended with exit code {code}: {_last_line(log)}")


def _last_line(path: Path) -> str:
    try:
        lines = path.read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else "no output"
