"""Checkpoints: written by all ranks, there whole or not at all, loaded by any number of ranks at any ZeRO stage.

A folder holds the training state as part files (parts.py), those of each trained role in a folder of its own, and
`checkpoint.json`: the step, the data position, the scores, what the parts are and their checksums. There is no random
state to save: every draw is a function of the seed and the position. Nodes need share no file system: a rank that does
not see the driver's folder hands its parts over through Ray's object store, and is handed what it needs when it loads.
"""

import json
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from jobs.engine.atomic_folder import new_draft, or_nothing, put_in_place
from jobs.engine.checkpoints.retention import PINNED, expendable, score_of
from jobs.engine.problem import CheckpointLost, DiskTooSmall, RunProblem
from jobs.engine.workers.worker import Worker
from jobs.engine.workers.worker_group import WorkerGroup

INDEX, TOKEN = "checkpoint.json", "token"
VERSION = 2
_OF_POLICY_ALONE = 1
"""The format of before there were other trained roles: the policy's parts stand in the checkpoint's own folder."""
PART_BYTES = 256 << 20
HANDED_BYTES = 64 << 20
"""The largest part of a rank's state in one file, and in one message where it goes through the object store."""
RoleRank = tuple[str, Worker]
"""A rank of a trained role, with the name of the role."""
_STEP = re.compile(r"step-(\d+)$")
_LATER_FIELDS = frozenset({"kl_coefficient", "sources", "reward_moments"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Where a run stands after `step`: what a resumed attempt starts from.

    `evaluated_step` is the last step whose policy was evaluated on held-out data, -1 if none was. `kl_coefficient` is
    that of the next step where a controller moves it, else None. `sources` says where each source of the data stands,
    by name; None where `num_consumed` says it all, and in checkpoints of before. `reward_moments` are those of all
    rewards so far (rollouts/reward_moments.py) where the run normalizes them.
    """

    step: int
    num_consumed: int
    best_score: float | None = None
    best_step: int = -1
    evaluated_step: int = -1
    kl_coefficient: float | None = None
    sources: Mapping[str, Mapping[str, int]] | None = None
    reward_moments: Mapping[str, float] | None = None


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
            calls = [p.call("saved_parts", waits=waits, step=self.state.step) for _, p in self._written.ranks]
            answers = self._workers.gather(calls)
        if any(answer is None for answer in answers):
            return False
        self._written.files = _in_folders(self._written.ranks, answers)
        return True

    def finish(self) -> float:
        """Wait until all is written, and put the checkpoint in its place; return its seconds. Raises: WorkerFailed."""
        from jobs.engine.roles.parts import to_json

        if self._written.files is None:
            self._take_files(waits=True)
        with or_nothing(self._draft):
            index = asdict(self.state) | {"version": VERSION, "ranks": len(self._workers.policies)}
            index |= {"roles": self._written.about, "files": to_json(self._written.files or [])}
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
    """What is written of a checkpoint: what `checkpoint.json` says `about` each role; its `files`, None while `ranks`
    are still writing theirs.
    """

    about: Mapping[str, object]
    files: list[Any] | None
    ranks: Sequence[RoleRank]


def begin_state(workers: WorkerGroup, partial: Path, state: LoopState, *, is_beside: bool) -> WrittenState:
    """Have every rank's training state written into `partial`, beside training where that was asked for and all ranks
    see the folder. Raises: DiskTooSmall.
    """
    token = secrets.token_hex(16)
    (partial / TOKEN).write_text(token, encoding="utf-8")
    about = {role: _about(workers, role) for role in workers.trained}
    for role in about:
        (partial / role).mkdir()
    near, far = who_sees(workers, everyone(workers), partial, token)
    _check_disk(partial, sum(workers.gather([p.call("state_bytes") for _, p in near + far])), step=state.step)

    def saving(method: str) -> list[Any]:
        calls = [
            p.call(method, str(partial / role), PART_BYTES, step=state.step, phase="checkpoint") for role, p in near
        ]
        return workers.gather(calls)

    if is_beside and not far:
        saving("begin_save")
        return WrittenState(about=about, files=None, ranks=near)
    files = _in_folders(near, saving("save_parts"))
    return WrittenState(about=about, files=[*files, *_handed_over(workers, far, partial, state)], ranks=())


def _about(workers: WorkerGroup, role: str) -> dict[str, object]:
    """Return what `checkpoint.json` says of a role: the folder of its parts, its parameters, its optimizer's step."""
    telling = workers.trained[role][0]
    (metadata, optimizer_step) = workers.gather([telling.call("state_metadata"), telling.call("optimizer_step")])
    parameters = dict(zip(metadata["names"], metadata["shapes"], strict=True))
    return {"folder": role, "optimizer_step": optimizer_step, "parameters": parameters}


def _in_folders(ranks: Sequence[RoleRank], written: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the files that each rank has written into the folder of its role, named from the checkpoint's."""
    return [
        replace(file, name=f"{role}/{file.name}")
        for (role, _), files in zip(ranks, written, strict=True)
        for file in files
    ]


def _handed_over(workers: WorkerGroup, far: Sequence[RoleRank], partial: Path, state: LoopState) -> list[Any]:
    """Write what ranks that do not see the folder hand over, part by part; return the files."""
    from jobs.engine.roles.parts import part_name, write_part

    files: list[Any] = []
    index = 0
    while far:
        calls = [p.call("state_part", index, HANDED_BYTES, step=state.step, phase="checkpoint") for _, p in far]
        handed = [(each, data) for each, data in zip(far, workers.gather(calls), strict=True) if data is not None]
        far = [each for each, _ in handed]
        for (role, rank), data in handed:
            file = write_part(partial / role / part_name(rank.rank, index), data)
            files += _in_folders([(role, rank)], [[file]])
        index += 1
    return files


def _check_disk(folder: Path, num_bytes: int, *, step: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise DiskTooSmall(
            f"Checkpoint {step} takes {_gigabytes(num_bytes)}, and the disk of {folder.parent} has {_gigabytes(free)} "
            "left. Nothing was written of it. Free space, or lower checkpoint.keep, and launch again."
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.3g} GB"


def everyone(workers: WorkerGroup) -> list[RoleRank]:
    """Return all ranks of all trained roles."""
    return [(role, rank) for role, ranks in workers.trained.items() for rank in ranks]


def who_sees(
    workers: WorkerGroup, ranks: Sequence[RoleRank], folder: Path, token: str
) -> tuple[list[RoleRank], list[RoleRank]]:
    """Return the ranks whose node has the driver's `folder`, and those whose node has not."""
    answers = workers.gather([p.call("sees", str(folder), token) for _, p in ranks])
    near, far = ([each for each, sees in zip(ranks, answers, strict=True) if sees is there] for there in (True, False))
    return near, far


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

    def check_model(self, metadata: Mapping[str, list[Any]], role: str = "policy") -> None:
        """Raise RunProblem naming the parameter if a role's model (`TrainedModel.state_metadata`) is not the one that
        was saved.
        """
        then = {name: list(shape) for name, shape in self._of(role)["parameters"].items()}
        now = {name: list(shape) for name, shape in zip(metadata["names"], metadata["shapes"], strict=True)}
        for name in sorted(then | now):
            if then.get(name) != now.get(name):
                raise RunProblem(
                    "resume",
                    f"{self.name} is of another model: {name} {_shape(then.get(name))} there and "
                    f"{_shape(now.get(name))} in this run's {role}. Resume with the model it was trained from.",
                )

    def _of(self, role: str) -> Mapping[str, Any]:
        """Return what the checkpoint says of a role. Raises: RunProblem if it has none of it."""
        about: Mapping[str, Any] | None = self.index["roles"].get(role)
        if about is None:
            raise RunProblem("resume", f"{self.name} holds no {role}. Resume from a checkpoint of a run that had one.")
        return about

    def restore(self, workers: WorkerGroup) -> None:
        """Bring the checkpoint's training state into every rank. Raises: RunProblem, WorkerFailed."""
        for role, ranks in workers.trained.items():
            (metadata,) = workers.gather([ranks[0].call("state_metadata")])
            self.check_model(metadata, role)
        for role, ranks in workers.trained.items():
            self._restore_role(workers, role, ranks)

    def _restore_role(self, workers: WorkerGroup, role: str, ranks: Sequence[Worker]) -> None:
        from jobs.engine.roles.parts import WEIGHTS, Parts

        about = self._of(role)
        folder = self.folder / about["folder"]
        parts = Parts(folder)
        states = [WEIGHTS, *sorted(parts.states - {WEIGHTS})]
        workers.gather([p.call("begin_load", step=0, phase="load") for p in ranks])
        token = (self.folder / TOKEN).read_text(encoding="utf-8")
        near, far = who_sees(workers, [(role, p) for p in ranks], self.folder, token)
        loading = [p.call("load_parts", str(folder), states, PART_BYTES, step=0, phase="load") for _, p in near]
        wanted = workers.gather([p.call("wanted", states, HANDED_BYTES) for _, p in far])
        for (_, rank), batches in zip(far, wanted, strict=True):
            for pieces in batches:
                values = [parts.read(piece) for piece in pieces]
                workers.gather([rank.call("take", pieces, values, step=0, phase="load")])
        workers.gather(loading)
        workers.gather([p.call("finish_load", about["optimizer_step"], step=0, phase="load") for p in ranks])


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
        if version == _OF_POLICY_ALONE:
            index["roles"] = {"policy": {"folder": "", **{key: index[key] for key in ("parameters", "optimizer_step")}}}
        for needed in ("files", "roles", "ranks") if version in (_OF_POLICY_ALONE, VERSION) else ():
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
    if version not in (_OF_POLICY_ALONE, VERSION):
        raise RunProblem(
            "resume", f"{name} is of format {version}; this trainer reads formats {_OF_POLICY_ALONE} and {VERSION}."
        )
    return CheckpointSource(folder=folder, name=name, state=state, index=index)


def _is_there(index: Mapping[str, Any], field: str) -> bool:
    """Return whether to read a field of the state; checkpoints of before have no `_LATER_FIELDS`."""
    return field not in _LATER_FIELDS or field in index


def read_state(folder: Path) -> LoopState:
    """Return the loop state of a checkpoint folder. Raises: RunProblem."""
    return open_checkpoint(folder, name=f"Checkpoint {folder.name}").state
