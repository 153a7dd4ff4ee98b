"""Metrics from the TensorBoard files of a run directory, as they grow."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jobs.adapters.logs.gathering import Steps
from jobs.adapters.logs.tfevents import EventFile, Scalar
from profiling.events import Event

FOLDER = "tb"
PATTERN = "events.out.tfevents.*"
_NS = 1e9


def nothing_further(step: int, values: Mapping[str, float]) -> Mapping[str, float]:  # noqa: ARG001
    """Return {}: of trainers that tell everything in these files."""
    return {}


@dataclass(slots=True, kw_only=True)
class TensorBoardReader:
    """Reads every event file below `folder`; `is_wanted(tag)` says which tags.

    With `times_steps` the time between two steps' values becomes the step's time: of trainers that report none.
    `steps_of_one` steps of the files are one of the run, whose values are those of the last. `further(step, values)`
    gives values that the trainer tells elsewhere, of a step whose values are told here.
    """

    folder: Path
    trainer: str
    algorithm: str
    times_steps: bool = False
    steps_of_one: int = 1
    has_timers: bool = False
    further: Callable[[int, Mapping[str, float]], Mapping[str, float]] = nothing_further
    is_wanted: Callable[[str], bool] = lambda tag: True  # noqa: ARG005
    _files: dict[Path, EventFile] = field(default_factory=dict)
    _steps: Steps = field(init=False)
    _last: tuple[int, float] | None = None

    def __post_init__(self) -> None:
        self._steps = Steps(trainer=self.trainer, algorithm=self.algorithm, has_timers=self.has_timers)

    @property
    def has_files(self) -> bool:
        """Return True once there are files here: the trainer may write them on another node."""
        return any(self.folder.rglob(PATTERN))

    def poll(self, *, now_ns: int) -> Sequence[Event]:  # noqa: ARG002
        """Return the events of what was written since the last call."""
        training: dict[int, dict[str, float]] = {}
        for scalar in self._new():
            if self.is_wanted(scalar.tag):
                scalar = replace(scalar, step=-(-scalar.step // self.steps_of_one))
                self._steps.add(scalar.step, {scalar.tag: scalar.value}, t=int(scalar.at * _NS))
                if scalar.tag.startswith("train/"):
                    training.setdefault(scalar.step, {})[scalar.tag] = scalar.value
                    if self.times_steps:
                        self._time(scalar)
        for step, values in training.items():
            self._steps.join(step, self.further(step, values))
        return list(self._steps.events())

    def _new(self) -> Iterator[Scalar]:
        for path in sorted(self.folder.rglob(PATTERN)):
            file = self._files.setdefault(path, EventFile(path=path))
            with contextlib.suppress(OSError):
                yield from file.read()

    def _time(self, scalar: Scalar) -> None:
        """The first value of a step that follows another one gives the seconds since that one, a step."""
        if self._last is not None and scalar.step > self._last[0]:
            step, at = self._last
            seconds = (scalar.at - at) / (scalar.step - step)
            self._steps.add(scalar.step, {"time/step_seconds": seconds}, t=int(scalar.at * _NS))
        if self._last is None or scalar.step > self._last[0]:
            self._last = (scalar.step, scalar.at)
