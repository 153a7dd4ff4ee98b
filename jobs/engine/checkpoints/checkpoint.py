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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.engine.atomic_folder import new_draft, or_nothing, put_in_place
from jobs.engine.checkpoints.retention import PINNED, expendable, score_of
from jobs.engine.problem import CheckpointLost, DiskTooSmall, RunProblem
from jobs.engine.workers.worker import Worker
from jobs.engine.workers.worker_group import WorkerGroup

INDEX, TOKEN = "checkpoint.json", "token"
VERSION = 1
PART_BYTES = 256 << 20
HANDED_BYTES = 64 << 20
"""The largest part of a rank's state in one file, and in one message where it goes through the object store."""
_STEP = re.compile(r"step-(\d+)$")
_LATER_FIELDS = frozenset({"kl_coefficient", "sources"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Where a run stands after `step`: what a resumed attempt starts from.

    `evaluated_step` is the last step whose policy was evaluated on held-out data, -1 if none was. `kl_coefficient` is
    that of the next step where a controller moves it, else None. `sources` says where each source of the data stands,
    by name; None where `num_consumed` says it all, and in checkpoints of before.
    """

    step: int
    num_consumed: int
    best_score: float | None = None
    best_step: int = -1
    evaluated_step: int = -1
    kl_coefficient: float | None = None
    sources: Mapping[str, Mapping[str, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that was written to `folder` in `seconds`; the steps whose checkpoints were `removed` for it."""

    folder: Path
    seconds: float
    removed: tuple[int, ...]


class SaveUnderWay:
    """A checkpoint whose ranks have copied their state, and are writing it beside training.

    Either `finish` or `give_up` has to come; before that there is but a draft.
    """

    def __init__(
        self, workers: WorkerGroup, final: Path, *, state: LoopState, about: Mapping[str, Any], is_beside: bool
    ) -> None:
        self.state, self.folder = state, final
        self._begin = time.perf_counter()
        self._workers, self._about = workers, about
        self._draft = new_draft(final)
        with or_nothing(self._draft):
            self._written = begin_state(workers, self._draft, state, is_beside=is_beside)

    def is_written(self) -> bool:
        """Ask the ranks whether `finish` would not have to wait. Raises: WorkerFailed where one could not write."""
        return self._written.files is not None or self._take_files(waits=False)

    def _take_files(self, *, waits: bool) -> bool:
        """Return whether all ranks have written; what they wrote is known then."""
        with or_nothing(self._draft):
            calls = [p.call("saved_parts", waits=waits, step=self.state.step) for p in self._written.ranks]
            answers = self._workers.gather(calls)
        if any(answer is None for answer in answers):
            return False
        self._written.files = [file for files in answers for file in files]
        return True

    def finish(self) -> float:
        """Wait until all is written, and put the checkpoint in its place; return its seconds. Raises: WorkerFailed."""
        from jobs.engine.roles.parts import to_json

        if self._written.files is None:
            self._take_files(waits=True)
        with or_nothing(self._draft):
            index = asdict(self.state) | {"version": VERSION, "ranks": len(self._workers.policies)}
            index |= {**self._written.about, "files": to_json(self._written.files or [])}
            (self._draft / INDEX).write_text(json.dumps(index | dict(self._about), indent=1) + "\n", encoding="utf-8")
            put_in_place(self._draft, self.folder)
        return time.perf_counter() - self._begin

    def give_up(self) -> None:
        """Leave nothing of it. The ranks must have ended, or they would go on writing."""
        shutil.rmtree(self._draft, ignore_errors=True)


class Checkpoints:
    """The checkpoints of a run, in `folder`."""

    def __init__(self, folder: Path, *, keep: int, keep_best: int = 1) -> None:
        self._folder, self._keep, self._keep_best = folder, keep, keep_best
        self._held: int | None = None  # from before what may become a divergence

    def save(self, workers: WorkerGroup, state: LoopState, *, about: Mapping[str, Any]) -> SavedCheckpoint:
        """Write `step-<n>`, then delete all but the newest `keep`, the best `keep_best` and the pinned.

        `about` is added to `checkpoint.json`: the spec, and what the data were. Raises: DiskTooSmall.
        """
        return self.finish(self.begin(workers, state, about=about, is_beside=False))

    def begin(
        self, workers: WorkerGroup, state: LoopState, *, about: Mapping[str, Any], is_beside: bool = True
    ) -> SaveUnderWay:
        """Begin to write `step-<n>`. Where it `is_beside`, ranks that have the driver's disk copy their state and write
        it while they go on; the others hand theirs over meanwhile. Raises: DiskTooSmall.
        """
        final = self._folder / f"step-{state.step}"
        return SaveUnderWay(workers, final, state=state, about=about, is_beside=is_beside)

    def finish(self, saving: SaveUnderWay) -> SavedCheckpoint:
        """Wait for it, then delete all but the newest `keep`, the best and the pinned: the new one is whole by then."""
        seconds = saving.finish()
        steps = self.steps()
        old_steps = expendable(
            {step: score_of(self._folder_of(step)) for step in steps},
            keep_last=self._keep,
            keep_best=self._keep_best,
            pinned=[step for step in steps if step == self._held or (self._folder_of(step) / PINNED).exists()],
            best_step=saving.state.best_step,
        )
        removed = [old for old in old_steps if self._remove(old)]
        return SavedCheckpoint(folder=saving.folder, seconds=seconds, removed=tuple(removed))

    def _remove(self, step: int) -> bool:
        """Delete a checkpoint and return whether nothing of it is left."""
        folder = self._folder_of(step)
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    def pin(self, step: int, *, is_pinned: bool) -> bool:
        """Keep a checkpoint whatever comes, or no longer; return whether it is there."""
        mark = self._folder_of(step) / PINNED
        if not mark.parent.is_dir():
            return False
        if is_pinned:
            mark.touch()
        else:
            mark.unlink(missing_ok=True)
        return True

    def hold_before(self, since: int) -> int | None:
        """Keep the newest checkpoint from before the step `since` until it is called with 0; return its step."""
        if not since:
            self._held = None
        elif self._held is None or self._held >= since:
            self._held = max((step for step in self.steps() if step < since), default=None)
        return self._held

    def _folder_of(self, step: int) -> Path:
        return self._folder / f"step-{step}"

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that are there, oldest first."""
        matches = [_STEP.fullmatch(p.name) for p in self._folder.glob("step-*")]
        return sorted(int(match.group(1)) for match in matches if match)


@dataclass(slots=True, kw_only=True)
class WrittenState:
    """What is written of a checkpoint: what `checkpoint.json` says `about` it; its `files`, None while `ranks` are
    still writing theirs.
    """

    about: Mapping[str, object]
    files: list[Any] | None
    ranks: Sequence[Worker]


def begin_state(workers: WorkerGroup, partial: Path, state: LoopState, *, is_beside: bool) -> WrittenState:
    """Have every rank's training state written into `partial`, beside training where that was asked for and all ranks
    see the folder. Raises: DiskTooSmall.
    """
    from jobs.engine.roles.parts import PartFile, part_name, write_part

    token = secrets.token_hex(16)
    (partial / TOKEN).write_text(token, encoding="utf-8")
    near, far = who_sees(workers, partial, token)
    telling = workers.policies[0]
    (metadata, optimizer_step) = workers.gather([telling.call("state_metadata"), telling.call("optimizer_step")])
    about: dict[str, object] = {
        "optimizer_step": optimizer_step,
        "parameters": dict(zip(metadata["names"], metadata["shapes"], strict=True)),
    }
    _check_disk(partial, sum(workers.gather([p.call("state_bytes") for p in workers.policies])), step=state.step)
    if is_beside and not far:
        workers.gather(
            [p.call("begin_save", str(partial), PART_BYTES, step=state.step, phase="checkpoint") for p in near]
        )
        return WrittenState(about=about, files=None, ranks=near)
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
    return WrittenState(about=about, files=files, ranks=())


def _check_disk(folder: Path, num_bytes: int, *, step: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise DiskTooSmall(
            f"Checkpoint {step} takes {_gigabytes(num_bytes)}, and the disk of {folder.parent} has {_gigabytes(free)} "
            "left. Nothing was written of it. Free space, or lower checkpoint.keep, and launch again."
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.3g} GB"


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
        """Raise RunProblem naming the parameter if the model (`Policy.state_metadata`) is not the one that was
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

        (metadata,) = workers.gather([workers.policies[0].call("state_metadata")])
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
        state = LoopState(
            **{field: index[field] for field in LoopState.__dataclass_fields__ if _is_there(index, field)}
        )
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


def _is_there(index: Mapping[str, Any], field: str) -> bool:
    """Return whether to read a field of the state; checkpoints of before have no `_LATER_FIELDS`."""
    return field not in _LATER_FIELDS or field in index


def read_state(folder: Path) -> LoopState:
    """Return the loop state of a checkpoint folder. Raises: RunProblem."""
    return open_checkpoint(folder, name=f"Checkpoint {folder.name}").state
