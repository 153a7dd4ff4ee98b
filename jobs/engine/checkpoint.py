"""Write checkpoints and Hugging Face folders so that each is there whole or not at all.

A folder is written beside its place, synced to disk, and renamed. A checkpoint holds DeepSpeed's state and `loop.json`:
the step, the data position and the scores. There is no random state to save: every draw is a function of the seed and
the position.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.engine.crew import Crew

_STEP = re.compile(r"step-(\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopState:
    """Where a run stands after `step`: what a resumed attempt starts from."""

    step: int
    num_consumed: int
    best_score: float | None = None
    best_step: int = -1


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """Give a new folder to fill; at the end it is synced and takes the place `final`, replacing what stood there.

    If the body raises, nothing of it is left.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = final.with_name(f".{final.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        yield draft
        _sync_tree(draft)
        old = final.with_name(f".{final.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if final.exists():
            final.rename(old)
        draft.rename(final)
        _sync(final.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint that was written to `folder` in `seconds`; the steps whose checkpoints were `removed` for it."""

    folder: Path
    seconds: float
    removed: tuple[int, ...]


class Checkpoints:
    """The checkpoints of a run, in `folder`."""

    def __init__(self, folder: Path, *, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def save(self, crew: Crew, state: LoopState, *, spec: Mapping[str, Any]) -> Saved:
        """Write `step-<n>`, then delete all but the newest `keep` and the best."""
        begin = time.perf_counter()
        final = self._folder / f"step-{state.step}"
        with whole_folder(final) as draft:
            crew.gather([p.call("save", str(draft), step=state.step, phase="checkpoint") for p in crew.policies])
            (draft / "loop.json").write_text(
                json.dumps(asdict(state) | {"ranks": len(crew.policies), "spec": spec}, indent=1) + "\n"
            )
        seconds = time.perf_counter() - begin
        removed = [old for old in self.steps()[: -self._keep] if old != state.best_step and self._remove(old)]
        return Saved(folder=final, seconds=seconds, removed=tuple(removed))

    def _remove(self, step: int) -> bool:
        """Delete a checkpoint and return whether nothing of it is left."""
        folder = self._folder / f"step-{step}"
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints that are there, oldest first."""
        found = [_STEP.fullmatch(p.name) for p in self._folder.glob("step-*")]
        return sorted(int(match.group(1)) for match in found if match)


def read_state(folder: Path) -> LoopState:
    """Return the loop state of a checkpoint folder."""
    raw = json.loads((folder / "loop.json").read_text(encoding="utf-8"))
    return LoopState(
        step=raw["step"], num_consumed=raw["num_consumed"], best_score=raw["best_score"], best_step=raw["best_step"]
    )


def export_model(crew: Crew, final: Path, *, precision: str, on_bucket: Callable[[], None] = lambda: None) -> None:
    """Write the policy as a Hugging Face folder (safetensors, tokenizer, chat template, generation config) that loads
    in `precision`.

    Weights travel bucket by bucket (1 GiB) from policy rank 0 through the object store, so no file system need be
    shared.
    """
    from safetensors.torch import save_file

    with whole_folder(final) as draft:
        (texts,) = crew.gather([crew.policies[0].call("text_files")])
        for name, data in texts.items():
            (draft / name).write_bytes(data)
        config = json.loads(texts["config.json"])
        config.pop("torch_dtype", None)
        (draft / "config.json").write_text(json.dumps(config | {"dtype": precision}, indent=2) + "\n", encoding="utf-8")
        files: list[list[str]] = []
        num_bytes = 0
        while True:
            weights = crew.gather([p.call("export_bucket", len(files)) for p in crew.policies])[0]
            if weights is None:
                break
            num_bytes += sum(w.numel() * w.element_size() for w in weights.values())
            save_file(weights, draft / f"part-{len(files) + 1}.safetensors", metadata={"format": "pt"})
            files.append(list(weights))
            on_bucket()
        _name_parts(draft, files, num_bytes)


def _name_parts(draft: Path, files: list[list[str]], num_bytes: int) -> None:
    """Give the weight files the names that transformers looks for, and an index where there are several."""
    if len(files) == 1:
        (draft / "part-1.safetensors").rename(draft / "model.safetensors")
        return
    index: dict[str, str] = {}
    for number, names in enumerate(files, start=1):
        file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        (draft / f"part-{number}.safetensors").rename(draft / file)
        index |= dict.fromkeys(names, file)
    text = json.dumps({"metadata": {"total_size": num_bytes}, "weight_map": index}, indent=2)
    (draft / "model.safetensors.index.json").write_text(text + "\n", encoding="utf-8")
