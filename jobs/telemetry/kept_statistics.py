"""Statistics of series as they are kept beside the chunks, and read for many runs at once."""

import math
from collections.abc import Collection, Iterator, Mapping

from jobs.models import SeriesStatistics
from jobs.telemetry.chunks import Points
from jobs.telemetry.statistics import PlacedValue, Statistics, merged, statistics_of

_AT_ONCE = 400
_COLUMNS = ("n", "finite", "first_x", "last_x", "last_y", "low_x", "low_y", "high_x", "high_y", "mean")
Key = tuple[int, int]  # metric id, attempt


def keep(fresh: Mapping[int, Points], *, attempt: int, through: int) -> None:
    """Add points, by metric id, to what is kept of an attempt's series. Call it in the transaction of their chunks."""
    ids = list(fresh)
    stored: dict[Key, Statistics] = {}
    for start in range(0, len(ids), _AT_ONCE):
        rows = SeriesStatistics.objects.filter(metric_id__in=ids[start : start + _AT_ONCE], attempt=attempt)
        stored |= {key: own for key, own, _through in _read(rows)}
    made = []
    for metric_id, data in fresh.items():
        own = merged(stored.get((metric_id, attempt)), statistics_of(data))
        if own is not None:
            made.append(statistics_row(metric_id, attempt, through, own))
    SeriesStatistics.objects.bulk_create(
        made,
        batch_size=_AT_ONCE,
        update_conflicts=True,
        unique_fields=["metric", "attempt"],
        update_fields=["through_seq", *_COLUMNS],
    )


def statistics_row(
    metric_id: int, attempt: int, through: int, own: Statistics, model: type[SeriesStatistics] = SeriesStatistics
) -> SeriesStatistics:
    """Return the row that keeps these statistics, unsaved; `model` is another one in a migration."""
    return model(
        metric_id=metric_id,
        attempt=attempt,
        through_seq=through,
        n=own.n,
        finite=own.finite,
        first_x=own.first_x,
        last_x=own.last.x,
        last_y=None if math.isnan(own.last.y) else own.last.y,
        low_x=own.low.x if own.low else None,
        low_y=own.low.y if own.low else None,
        high_x=own.high.x if own.high else None,
        high_y=own.high.y if own.high else None,
        mean=own.mean,
    )


def read_kept(metric_ids: Collection[int]) -> tuple[dict[Key, Statistics], dict[int, int]]:
    """Return what is kept of these series by attempt, and metric id -> the highest frame that is in it. One query."""
    by_key: dict[Key, Statistics] = {}
    through: dict[int, int] = {}
    for key, own, seq in _read(SeriesStatistics.objects.filter(metric_id__in=metric_ids)):
        by_key[key] = own
        through[key[0]] = max(through.get(key[0], 0), seq)
    return by_key, through


def _read(rows: object) -> Iterator[tuple[Key, Statistics, int]]:
    for metric_id, attempt, through, *values in rows.values_list(  # type: ignore[attr-defined]
        "metric_id", "attempt", "through_seq", *_COLUMNS
    ):
        n, finite, first_x, last_x, last_y, low_x, low_y, high_x, high_y, mean = values
        yield (
            (metric_id, attempt),
            Statistics(
                n=n,
                finite=finite,
                first_x=first_x,
                last=PlacedValue(x=last_x, y=math.nan if last_y is None else last_y),
                low=None if low_x is None else PlacedValue(x=low_x, y=low_y),
                high=None if high_x is None else PlacedValue(x=high_x, y=high_y),
                mean=mean,
            ),
            through,
        )
