"""What the steps of a recording do not hold: work launched before it began, and the device's time between and after."""

from dataclasses import dataclass

from profiling.analysis.intervals import Intervals, clipped, intersection, total
from profiling.analysis.steps import WorkerSteps
from profiling.analysis.work import WorkerEvents


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Beside the steps of one worker. Times in ns.

    busy, outside   how long its device (its CPU, where no device was recorded) did anything in the window, and how much
                    of that lies in no step
    before          operations of the device that were launched before the first step was marked, or by a call that was
                    not recorded, and their time together (`before_ns`), over all of the recording
    host_step, own_step  the mean step of the CPU alone, and of this worker; None where the trace marks none
    dropped         marked steps at the end whose device work the recording does not hold: they count in nothing
    """

    busy: int
    outside: int
    before: int
    before_ns: int
    host_step: float | None
    own_step: float | None
    dropped: tuple[int, ...]

    @property
    def share(self) -> float:
        """The share of the device's time that lies outside all steps."""
        return self.outside / self.busy if self.busy else 0.0


def outside_of(work: WorkerEvents, marked: WorkerSteps | None, whole: Intervals, begin: int, end: int) -> Outside:
    """Return what lies beside some steps of a worker, whose moments are `whole`, in [begin, end) in Unix ns."""
    busy = clipped(work.busy, begin, end)
    steps = marked or WorkerSteps()
    return Outside(
        busy=total(busy),
        outside=total(busy) - total(intersection(busy, whole)),
        before=steps.before,
        before_ns=steps.before_ns,
        host_step=_mean([step.end - step.begin for step in steps.host]),
        own_step=_mean([step.end - step.begin for step in steps.steps]),
        dropped=steps.dropped,
    )


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) if values else None
