"""The checkpoints of another trainer, announced as they are saved and as it deletes them."""

from collections.abc import Mapping
from pathlib import Path

from jobs.adapters.adapter import adapter
from jobs.adapters.captures import files_below
from jobs.catalog.spec.runspec import RunSpec
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.translation import Translation

LOOK_SECONDS = 2.0
_TYPE = "checkpoint"


class SavedCheckpoints:
    """What is announced stands in the event log, which `progress` has read: a runner that comes later goes on there."""

    def __init__(
        self, spec: RunSpec, run_dir: Path, *, progress: TrainerProgress, translation: Translation, origin: int = 0
    ) -> None:
        """`origin` is the step that the attempt was resumed from: checkpoints up to it are those of other attempts."""
        self._spec, self._run_dir, self._origin = spec, run_dir, origin
        self._progress, self._translation = progress, translation
        self._next_look = 0.0

    def look_if_due(self, now: float) -> None:
        """Announce what is new; `now` is monotonic seconds."""
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self.look()

    def look(self) -> None:
        """Announce what has been saved, and what has been deleted."""
        self._progress.read()
        try:
            saved = self._saved()
        except OSError:  # something is being written or deleted: at the next look
            return
        announced = self._announced()
        for step, folder in saved.items():
            if announced.get(step) is not True:
                self._announce(step, folder, sum(size for _, size in files_below(folder)))
        for step, is_there in announced.items():
            if is_there and step not in saved:
                self._announce(step, self._run_dir / self._progress.artifacts[_name(step)]["path"], 0, removed=True)

    def newest(self) -> int:
        """Return the step of the newest checkpoint that this attempt has announced; 0 where there is none."""
        return max((step for step, is_there in self._announced().items() if is_there), default=0)

    def _saved(self) -> Mapping[int, Path]:
        saved = adapter(self._spec.trainer.name).checkpoints.saved(spec=self._spec, run_dir=self._run_dir)
        return {step: folder for step, folder in sorted(saved.items()) if step > self._origin}

    def _announced(self) -> dict[int, bool]:
        """Return the steps that were announced, and whether they are believed there."""
        events = [event for event in self._progress.artifacts.values() if event.get("artifact") == _TYPE]
        return {int(event["step"]): not event.get("meta", {}).get("removed") for event in events}

    def _announce(self, step: int, folder: Path, size: int, **meta: bool) -> None:
        path = str(folder.relative_to(self._run_dir))
        self._translation.artifact(_name(step), artifact=_TYPE, path=path, step=step, size=size, **meta)


def _name(step: int) -> str:
    return f"checkpoint-{step}"
