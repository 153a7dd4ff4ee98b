"""Lines of a chart as they travel: JSON for everybody, and typed columns, which take a browser no time to read.

The typed form (`Accept: application/vnd.pitwall.columns`): the length of a head as little-endian uint32, the head in
JSON, zeros up to a multiple of eight bytes, then for each series its arrays one after the other, little-endian:
`column` as int32, unless the head says from which on they follow each other (`first`); then `y`, `low` and `high`
unless each column holds a single point (`is_single`), and `smooth` if it was asked for, as float32, or as float64 where
that would not be exact enough (`is_wide`). Each array begins at a multiple of eight bytes. Not finite: NaN; the head's
`odd` says what it was.
"""

import gzip
import zlib
from collections.abc import Mapping

import numpy as np
import orjson
from django.http import HttpRequest, HttpResponse

from jobs.comparison.chart_columns import ChartLines, MetricLine
from jobs.telemetry.chunks import Floats
from profiling.events import encode_number

COLUMNS_TYPE = "application/vnd.pitwall.columns"
_PIECE, _WORTH = 1 << 15, 0.85  # bytes that are tried, and what must be left of them at most
_SMALL = 1400  # bytes: what fits into one packet is not worth compressing
_NARROW = 1e-3  # a range below this share of the values needs more digits than float32 has
_LARGEST = float(np.finfo(np.float32).max)


def lines_response(request: HttpRequest, chart: ChartLines, *, requested: Mapping[str, str], axis: str) -> HttpResponse:
    """Return the lines in the form that the caller takes; `requested` is what the request calls each metric."""
    head = {"x": axis, "low": chart.grid.low, "width": chart.grid.width, "unplaced": chart.unplaced}
    if COLUMNS_TYPE in request.headers.get("Accept", ""):
        body, kind = _typed(head, chart, requested), COLUMNS_TYPE
    else:
        series = [_about(line, requested) | _numbers(line) for line in chart.lines]
        body, kind = orjson.dumps(head | {"series": series}, option=orjson.OPT_SERIALIZE_NUMPY), "application/json"
    return compressed(request, HttpResponse(body, content_type=kind))


def compressed(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """Return the answer as gzip where the caller takes it and it is worth it.

    What it holds are numbers of runs, and nothing that the caller chose is in it: its length tells no secret.
    """
    answer["Vary"] = "Accept, Accept-Encoding"
    is_taken = "gzip" in request.headers.get("Accept-Encoding", "")
    if is_taken and len(answer.content) > _SMALL and _shrinks(answer.content):
        answer.content = gzip.compress(answer.content, compresslevel=1, mtime=0)
        answer["Content-Encoding"] = "gzip"
    return answer


def _shrinks(body: bytes) -> bool:
    """Return True if a piece from its middle says that compressing it is worth the time: noise stays as long."""
    middle = len(body) // 2
    piece = body[max(0, middle - _PIECE // 2) : middle + _PIECE // 2]
    return len(zlib.compress(piece, 1)) < _WORTH * len(piece)


def _about(line: MetricLine, requested: Mapping[str, str]) -> dict[str, object]:
    columns = line.columns
    return {
        "run": line.run_id,
        "name": requested[line.name],
        "role": line.role,
        "rank": line.rank,
        "n": len(columns.column),
        "of": columns.of,
        "odd": [[column, encode_number(value)] for column, value in columns.odd],
    }


def _numbers(line: MetricLine) -> dict[str, object]:
    own = line.columns
    return {"column": own.column, "y": own.y, "low": own.low, "high": own.high, "smooth": own.smooth}


def _typed(head: dict[str, object], chart: ChartLines, requested: Mapping[str, str]) -> bytes:
    series, parts = [], []
    for line in chart.lines:
        own = line.columns
        is_single = own.of == len(own.column)
        values = [own.y] if is_single else [own.y, own.low, own.high]
        values += [] if own.smooth is None else [own.smooth]
        is_wide = any(_needs_digits(column) for column in values)
        is_row = not len(own.column) or int(own.column[-1] - own.column[0]) == len(own.column) - 1
        about = {"is_single": is_single, "has_smooth": own.smooth is not None, "is_wide": is_wide}
        first = int(own.column[0]) if is_row and len(own.column) else None
        series.append(_about(line, requested) | about | {"first": first})
        if first is None:
            parts.append(_padded(own.column.astype("<i4").tobytes()))
        with np.errstate(over="ignore"):
            parts += [_padded(column.astype("<f8" if is_wide else "<f4").tobytes()) for column in values]
    text = orjson.dumps(head | {"series": series})
    return b"".join([_padded(len(text).to_bytes(4, "little") + text), *parts])


def _needs_digits(values: Floats) -> bool:
    """Return True if float32 would change what is seen of the values, or hold them not at all."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return False
    low, high = float(finite.min()), float(finite.max())
    size = max(abs(low), abs(high))
    return size > _LARGEST or 0 < size < 1e-30 or (0 < high - low < _NARROW * size)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
