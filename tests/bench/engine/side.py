"""What the two sides share: from steps and a meter to a run, and why a side could not run."""

from collections.abc import Mapping, Sequence

from tests.bench.engine.comparison import WARM_UP, SideRun, StepRecord
from tests.bench.engine.meter import ProcessMeter

SHOWN_LINES = 15


class SideFailed(Exception):
    """A side did not get to its last step; the text ends with what it printed last."""

    def __init__(self, output: str) -> None:
        lines = [line for line in output.splitlines() if line.strip()]
        super().__init__("\n".join(lines[-SHOWN_LINES:]) or "It printed nothing.")

    @property
    def last_line(self) -> str:
        """What it printed last, which in Python is the error."""
        return str(self).splitlines()[-1]


def check_steps(steps: Sequence[StepRecord]) -> None:
    """Raises: SideFailed if none of the steps counts."""
    if len(steps) <= WARM_UP:
        raise SideFailed(f"It made {len(steps)} steps; the first {WARM_UP} do not count.")


def side_run(
    side: str,
    steps: Sequence[StepRecord],
    meter: ProcessMeter,
    *,
    cores: int,
    ready_seconds: float,
    phases: Mapping[str, Sequence[float]] | None = None,
    waiting: Mapping[str, float] | None = None,
    reporting: Sequence[float] = (),
) -> SideRun:
    """Return the run of a side. Raises: SideFailed if it has no steps that count."""
    check_steps(steps)
    begin, end = steps[WARM_UP - 1].end, steps[-1].end
    own = meter.own_between(begin, end)
    return SideRun(
        side=side,
        steps=steps,
        cpu_seconds=own,
        others_cpu_seconds=max(0.0, meter.machine_between(begin, end) - own),
        cores=cores,
        memory_bytes=meter.most_resident_bytes,
        shared_once_bytes=meter.most_shared_once_bytes,
        ready_seconds=ready_seconds,
        phases=phases or {},
        waiting=waiting or {},
        reporting=reporting,
    )
