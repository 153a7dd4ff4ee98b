"""Checkpoints: written by all policy ranks, there whole or not at all, loaded by any number of ranks at any ZeRO stage.

A folder holds the training state as part files (parts.py) and `checkpoint.json`: the step, the data position, the
scores, what the parts are and their checksums. There is no random state to save: every draw is a function of the seed
and the position. Nodes need share no file system: a rank that does not see the driver's folder hands its parts over
through Ray's object store, and is handed what it needs when it loads.
"""

import json
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.engine.atomic_folder import atomic_folder
from jobs.engine.problem import CheckpointLost, RunProblem
from jobs.engine.workers.worker import Worker
from jobs.engine.workers.worker_group import WorkerGroup

INDEX, TOKEN = "checkpoint.json", "token"
VERSION = 1
PART_BYTES = 256 << 20
HANDED_BYTES = 64 << 20
"""The largest part of a rank's state in one file, and in one message where it goes through the object store."""
_STEP = re.compile(r"step-(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Where a run stands after `step`: what a resumed attempt starts from.

    `evaluated_step` is the last step whose policy was evaluated on held-out data, -1 if none was.
    """

    step: int
    num_consumed: int
    best_score: float | None = None
    best_step: int = -1
    evaluated_step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that was written to `folder` in `seconds`; the steps whose checkpoints were `removed` for it."""

    folder: Path
    seconds: float
    removed: tuple[int, ...]


class Checkpoints:
    """The checkpoints of a run, in `folder`."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def save(self, workers: WorkerGroup, state: LoopState, *, about: Mapping[str, Any]) -> SavedCheckpoint:
        """Write `step-<n>`, then delete all but the newest `keep` and the best.

        `about` is added to `checkpoint.json`: the spec, and what the data were.
        """
        begin = time.perf_counter()
        final = self._folder / f"step-{state.step}"
        with atomic_folder(final) as partial:
            index = (
                asdict(state)
                | {"version": VERSION, "ranks": len(workers.policies)}
                | write_state(workers, partial, state)
            )
            (partial / INDEX).write_text(json.dumps(index | dict(about), indent=1) + "\n", encoding="utf-8")
        seconds = time.perf_counter() - begin
        removed = [old for old in self.steps()[: -self._keep] if old != state.best_step and self._remove(old)]
        return SavedCheckpoint(folder=final, seconds=seconds, removed=tuple(removed))

    def _remove(self, step: int) -> bool:
        """Delete a checkpoint and return whether nothing of it is left."""
        folder = self._folder / f"step-{step}"
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that are there, oldest first."""
        matches = [_STEP.fullmatch(p.name) for p in self._folder.glob("step-*")]
        return sorted(int(match.group(1)) for match in matches if match)


def write_state(workers: WorkerGroup, partial: Path, state: LoopState) -> dict[str, object]:
    """Have every rank's training state written into `partial`; return what `checkpoint.json` says of it."""
    from jobs.engine.roles.parts import PartFile, part_name, to_json, write_part

    token = secrets.token_hex(16)
    (partial / TOKEN).write_text(token, encoding="utf-8")
    near, far = who_sees(workers, partial, token)
    telling = workers.policies[0]
    (metadata, optimizer_step) = workers.gather([telling.call("weight_metadata"), telling.call("optimizer_step")])
    files: list[PartFile] = []
    for written in workers.gather(
        [p.call("save_parts", str(partial), PART_BYTES, step=state.step, phase="checkpoint") for p in near]
    ):
        files += written
    index = 0
    while far:
        calls = [p.call("state_part", index, HANDED_BYTES, step=state.step, phase="checkpoint") for p in far]
        handed = dict(zip(far, workers.gather(calls), strict=True))
        far = [p for p, data in handed.items() if data is not None]
        files += [write_part(partial / part_name(p.rank, index), handed[p]) for p in far]
        index += 1
    return {
        "optimizer_step": optimizer_step,
        "parameters": dict(zip(metadata["names"], metadata["shapes"], strict=True)),
        "files": to_json(files),
    }


def who_sees(workers: WorkerGroup, folder: Path, token: str) -> tuple[list[Worker], list[Worker]]:
    """Return the policy ranks whose node has the driver's `folder`, and those whose node has not."""
    answers = workers.gather([p.call("sees", str(folder), token) for p in workers.policies])
    near = [p for p, sees in zip(workers.policies, answers, strict=True) if sees]
    return near, [p for p in workers.policies if p not in near]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSource:
    """A checkpoint to go on from; `name` begins a sentence about it, `index` is the content of `checkpoint.json`."""

    folder: Path
    name: str
    state: LoopState
    index: Mapping[str, Any]

    @property
    def called(self) -> str:
        """Its name inside a sentence."""
        return f"{self.name[:1].lower()}{self.name[1:]}"

    def check(self) -> None:
        """Raise CheckpointLost naming the file if one is missing or damaged. Reads everything."""
        from jobs.engine.roles.parts import PartFile, check_parts

        files = [PartFile(name=f["name"], size=f["size"], crc32=f["crc32"]) for f in self.index["files"]]
        check_parts(self.folder, files, what=self.name)

    def check_model(self, metadata: Mapping[str, list[Any]]) -> None:
        """Raise RunProblem naming the parameter if the model (`Policy.weight_metadata`) is not the one that was
        saved.
        """
        then = {name: list(shape) for name, shape in self.index["parameters"].items()}
        now = {name: list(shape) for name, shape in zip(metadata["names"], metadata["shapes"], strict=True)}
        for name in sorted(then | now):
            if then.get(name) != now.get(name):
                raise RunProblem(
                    "resume",
                    f"{self.name} is of another model: {name} {_shape(then.get(name))} there and "
                    f"{_shape(now.get(name))} in this run's model. Resume with the model it was trained from.",
                )

    def restore(self, workers: WorkerGroup) -> None:
        """Bring the checkpoint's training state into every policy rank. Raises: RunProblem, WorkerFailed."""
        from jobs.engine.roles.parts import WEIGHTS, Parts

        (metadata,) = workers.gather([workers.policies[0].call("weight_metadata")])
        self.check_model(metadata)
        parts = Parts(self.folder)
        states = [WEIGHTS, *sorted(parts.states - {WEIGHTS})]
        workers.gather([p.call("begin_load", step=0, phase="load") for p in workers.policies])
        token = (self.folder / TOKEN).read_text(encoding="utf-8")
        near, far = who_sees(workers, self.folder, token)
        loading = [p.call("load_parts", str(self.folder), states, PART_BYTES, step=0, phase="load") for p in near]
        wanted = workers.gather([p.call("wanted", states, HANDED_BYTES) for p in far])
        for rank, batches in zip(far, wanted, strict=True):
            for pieces in batches:
                values = [parts.read(piece) for piece in pieces]
                workers.gather([rank.call("take", pieces, values, step=0, phase="load")])
        workers.gather(loading)
        calls = [p.call("finish_load", self.index["optimizer_step"], step=0, phase="load") for p in workers.policies]
        workers.gather(calls)


def _shape(shape: list[int] | None) -> str:
    return "is not" if shape is None else f"has shape {shape}"


def open_checkpoint(folder: Path, *, name: str) -> CheckpointSource:
    """Return the checkpoint in `folder`, of which everything but the content of its parts was checked.

    Raises: CheckpointLost saying what is missing or damaged; RunProblem if it is of another format.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        version = index["version"]
        state = LoopState(**{field: index[field] for field in LoopState.__dataclass_fields__})
        for needed in ("files", "parameters", "optimizer_step", "ranks"):
            index[needed]
        if not (folder / TOKEN).is_file():
            raise KeyError(TOKEN)
    except FileNotFoundError as error:
        what = f"its {INDEX} is missing" if folder.is_dir() else f"there is no folder {folder} on this node"
        raise CheckpointLost(f"{name} cannot be read: {what}. Resume from another checkpoint.") from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointLost(
            f"{name} cannot be read: {INDEX} is damaged ({error}). Resume from another checkpoint."
        ) from error
    if version != VERSION:
        raise RunProblem("resume", f"{name} is of format {version}; this trainer reads format {VERSION}.")
    return CheckpointSource(folder=folder, name=name, state=state, index=index)


def read_state(folder: Path) -> LoopState:
    """Return the loop state of a checkpoint folder. Raises: RunProblem."""
    return open_checkpoint(folder, name=f"Checkpoint {folder.name}").state
