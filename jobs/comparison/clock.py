"""Training time as an x axis: how many seconds a run's steps had taken when each of them ended."""

from collections.abc import Callable

import numpy as np

from jobs.comparison.phases import STEP_METRIC
from jobs.comparison.read import one_lane
from jobs.models import Run
from jobs.telemetry.chunks import Floats, Ints
from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_POINTS, SeriesWindow

Clock = Callable[[Ints], Floats]


def training_clock(*, run: Run) -> Clock:
    """Return the function from steps [n] to seconds [n]: the sum of the step times up to and with each step.

    Loading, waiting in a queue and pauses between attempts do not count. A step without a measured time takes none; a
    run without any has NaN everywhere. Read in windows, so that no step is thinned out.
    """
    steps: list[Ints] = []
    seconds: list[Floats] = []
    for low in range(0, max(run.step, 1) + 1, MAX_POINTS):
        window = SeriesWindow(low=low, high=low + MAX_POINTS - 1)
        answer = read_clean(run_id=run.pk, names=[STEP_METRIC], num_points=MAX_POINTS, window=window)
        for series in one_lane(answer.series).values():
            steps.append(series.x)
            seconds.append(np.where(np.isfinite(series.y), series.y, 0.0))
    if not steps:
        return lambda x: np.full(len(x), np.nan)
    ends, totals = np.concatenate(steps), np.cumsum(np.concatenate(seconds))
    return lambda x: np.interp(x, ends, totals, left=0.0)
