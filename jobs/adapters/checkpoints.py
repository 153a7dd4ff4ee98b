"""What the runner asks of a trainer about its checkpoints: `checkpoints.py` of the trainer's folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from jobs.adapters.captures import files_below
from jobs.adapters.inputs import model_path
from jobs.adapters.launching import Launch
from jobs.catalog.algorithm import is_in
from jobs.catalog.sentence import Sentence
from jobs.catalog.spec.runspec import RunSpec

MERGE = Path(__file__).resolve().parents[1] / "runner" / "model_merge.py"
"""The program for `merge_command` where the trainer has none that makes a whole model."""

_TRUST = "models.trust_remote_code"


class TrainerCheckpoints(Protocol):
    """Where a trainer saves, how it goes on from there, and what becomes of it when it is stopped."""

    def saves_when_stopped(self, spec: RunSpec) -> bool:
        """Return True if the trainer saves and ends once it gets SIGTERM."""
        ...

    def saved(self, *, spec: RunSpec, run_dir: Path) -> Mapping[int, Path]:
        """Return the folders of the checkpoints that are whole, by the step after which they were saved.

        What is being written, and what no run can go on from, is not among them.
        """
        ...

    def resumed(self, *, launch: Launch, spec: RunSpec, folder: Path) -> Launch:
        """Return how to start the trainer from a checkpoint in `folder`, one of `saved`, on this node.

        `launch` is how it would be started without. Nothing is read or written here.
        """
        ...

    def why_no_model(self, spec: RunSpec) -> str:
        """Return why no model can be made of any checkpoint of a run, as a sentence; "" where one can."""
        ...

    def model_files(self, *, spec: RunSpec, folder: Path) -> Sequence[Path]:
        """Return the files of a checkpoint that are a Hugging Face folder of what was trained; () where none are."""
        ...

    def merge_command(self, *, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:
        """Return what makes a Hugging Face folder `target` of a checkpoint that holds none; () where nothing does.

        It is the trainer's own program, or MERGE, run with its interpreter in the run directory, and needs no device.
        """
        ...

    def merge_bytes(self, *, spec: RunSpec, folder: Path) -> int:
        """Return about how many bytes of host memory that program takes for a checkpoint."""
        ...


class NoCheckpoints:
    """A trainer that announces its checkpoints itself, and finds the one to go on from in `resume.json`."""

    def saves_when_stopped(self, spec: RunSpec) -> bool:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return False

    def saved(self, *, spec: RunSpec, run_dir: Path) -> Mapping[int, Path]:  # noqa: ARG002
        """See TrainerCheckpoints: the built-in trainer's folders are there whole or not at all."""
        folders = (run_dir / "checkpoints").glob("step-*")
        return {int(folder.name[5:]): folder for folder in folders if folder.name[5:].isdecimal()}

    def resumed(self, *, launch: Launch, spec: RunSpec, folder: Path) -> Launch:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return launch

    def why_no_model(self, spec: RunSpec) -> str:  # noqa: ARG002
        """See TrainerCheckpoints: what such a trainer saves, only it knows."""
        return Sentence("What is in the checkpoints of this trainer, only the trainer knows: no model is made of them.")

    def model_files(self, *, spec: RunSpec, folder: Path) -> Sequence[Path]:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return ()

    def merge_command(self, *, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:  # noqa: ARG002
        """See TrainerCheckpoints."""
        return ()

    def merge_bytes(self, *, spec: RunSpec, folder: Path) -> int:  # noqa: ARG002
        """See TrainerCheckpoints: all shards, and the whole."""
        return 2 * sum(size for _, size in files_below(folder))


def adapter_merge(*, spec: RunSpec, python: str, folder: Path, target: Path) -> tuple[str, ...]:
    """Return what adds PEFT's adapters in a folder to the model that was trained, as the folder `target`.

    Of a reward model the folder has to hold the head, too, as PEFT's does where it knew of it.
    """
    where = (str(folder), model_path(spec), str(target))
    scores = ("--scores",) if is_in(spec.algorithm, "scalar") else ()
    return (python, str(MERGE), "adapter", *where, precision_option(spec), *_trusts(spec), *scores)


def fsdp_merge(*, spec: RunSpec, python: str, folder: Path, model: Path, target: Path) -> tuple[str, ...]:
    """Return what makes the folder `target` of the ranks' shards in a folder; `model` has configuration and texts."""
    where = (str(folder), str(model), str(target))
    return (python, str(MERGE), "fsdp", *where, precision_option(spec), *_trusts(spec))


def _trusts(spec: RunSpec) -> tuple[str, ...]:
    """Return what lets a model's own code run: no more than the trainer itself did."""
    return ("--trust-remote-code",) if spec.values().get(_TRUST) else ()


def precision_option(spec: RunSpec) -> str:
    """Return the option of MERGE that says in what it writes: the precision of the run."""
    return f"--precision={spec.values().get('memory.precision') or 'bfloat16'}"


def origin_of(run_dir: Path) -> int:
    """Return the step that an attempt was resumed from, as `resume.json` has it; 0 where it began at the start."""
    try:
        return int(json.loads((run_dir / "resume.json").read_text("utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
