"""The values by which symptoms judge a run, as many as are needed, however long it is.

These are the newest of each metric, and its first ones, by which is known where it began. Held-out metrics, and all of
a trainer that reports every tenth step, have few values in many steps: of these the whole run counts.
"""

from collections.abc import Collection

from jobs.telemetry.clean_series import read_clean
from jobs.telemetry.series import MAX_POINTS, SeriesWindow

HORIZON = 1500  # newest steps that are read: a flat reward of single samples takes 1,300 to be told from a slow rise
FIRST = 20  # steps at whose values a metric began

Line = tuple[list[int], list[float]]  # steps, values


def read_lines(run_id: str, names: Collection[str], *, step: int) -> dict[str, Line]:
    """Return the values of the driver's metrics by name: from `HORIZON` steps before a step on, and the first ones.

    A metric with a value in less than half of these steps is returned whole. One without any there has ended, unless it
    is a held-out one, as evaluations can lie further apart.
    """
    low = max(0, step - HORIZON)
    newest = _read(run_id, names, SeriesWindow(low=low))
    if low <= FIRST:
        return newest
    sparse = {name for name, (xs, _ys) in newest.items() if len(xs) < HORIZON // 2}
    rare = {name for name in names if name.startswith("eval/") and name not in newest}
    whole = _read(run_id, sparse | rare, SeriesWindow())
    first = _read(run_id, set(newest) - sparse, SeriesWindow(high=FIRST))
    return {name: whole.get(name) or _joined(first.get(name), newest[name], low) for name in {**newest, **whole}}


def _joined(first: Line | None, newest: Line, low: int) -> Line:
    count = sum(x <= min(FIRST, low - 1) for x in first[0]) if first else 0
    begin = next((i for i, x in enumerate(newest[0]) if x >= low), len(newest[0]))
    xs, ys = first or ([], [])
    return xs[:count] + newest[0][begin:], ys[:count] + newest[1][begin:]


def _read(run_id: str, names: Collection[str], window: SeriesWindow) -> dict[str, Line]:
    if not names:
        return {}
    answer = read_clean(run_id=run_id, names=sorted(names), num_points=MAX_POINTS, window=window)
    return {
        series.name: ([int(x) for x in series.x], [float(y) for y in series.y])
        for series in answer.series
        if series.kind == "metric" and series.role == "driver"
    }
