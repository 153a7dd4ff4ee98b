"""Chunks: the sealed columns of one series, and the roll-ups made of them. Pure arithmetic on NumPy arrays and bytes.

Level 0 holds points (x, t, y). Levels 1 and 2 hold rows that stand for 100 and 10,000 points each: first, last,
smallest and largest point with their places, mean, and where the first NaN is: what is drawn from them are real points.
Little-endian throughout; a chunk begins with its kind, so that a later format can stand beside this one.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CHUNK_POINTS = 1000
POINTS_PER_ROW = {0: 1, 1: 100, 2: 10_000}  # points that one row of a level stands for
CHUNK_ROWS = 100  # rows in a sealed chunk of level 1 or 2

_POINTS, _ROWS, _SPANS = 1, 2, 3
_HEAD = struct.Struct("<BBIqq")  # kind, flags, n, first x, stride of x
_IS_EVEN, _IS_FLOAT32 = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Points of a series in the order they came: x (step, or Unix ns), t (Unix ns), y. All [n]."""

    x: Ints
    t: Ints
    y: Floats

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, part: slice) -> "Points":
        return Points(x=self.x[part], t=self.t[part], y=self.y[part])


def points(x: object, t: object, y: object) -> Points:
    """Return the three columns as Points."""
    return Points(x=np.asarray(x, np.int64), t=np.asarray(t, np.int64), y=np.asarray(y, np.float64))


def join(parts: list[Points]) -> Points:
    """Return the parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return points([], [], [])
    return Points(
        x=np.concatenate([p.x for p in parts]),
        t=np.concatenate([p.t for p in parts]),
        y=np.concatenate([p.y for p in parts]),
    )


def encode_points(data: Points) -> bytes:
    """Return a level-0 chunk. Lossless: y is float32 only where that is the same number, x a stride only if even.

    t stands last and compressed, because pictures over steps do not read it.
    """
    n = len(data)
    stride = int(data.x[1] - data.x[0]) if n > 1 else 1
    is_even = n > 0 and bool((np.diff(data.x) == stride).all())
    with np.errstate(over="ignore", invalid="ignore"):
        small = data.y.astype("<f4")
        is_float32 = bool(((small.astype("<f8") == data.y) | np.isnan(data.y)).all())
    flags = _IS_EVEN * is_even | _IS_FLOAT32 * is_float32
    head = _HEAD.pack(_POINTS, flags, n, int(data.x[0]) if n else 0, stride)
    y = (small if is_float32 else data.y.astype("<f8")).tobytes()
    x = b"" if is_even else data.x.astype("<i8").tobytes()
    t = zlib.compress(np.diff(data.t, prepend=np.int64(0)).astype("<i8").tobytes(), 1)
    return head + y + x + t


def decode_points(blob: bytes | memoryview, *, with_t: bool = True) -> Points:
    """Return what `encode_points` encoded; without `with_t`, t is all zeros and not even unpacked."""
    kind, flags, n, x0, stride = _HEAD.unpack_from(blob)
    assert kind == _POINTS, kind
    dtype = "<f4" if flags & _IS_FLOAT32 else "<f8"
    y = np.frombuffer(blob, dtype, n, _HEAD.size)
    at = _HEAD.size + y.nbytes
    if flags & _IS_EVEN:
        x = x0 + stride * np.arange(n, dtype=np.int64)
    else:
        x = np.frombuffer(blob, "<i8", n, at)
        at += x.nbytes
    t = np.cumsum(np.frombuffer(zlib.decompress(memoryview(blob)[at:]), "<i8")) if with_t else np.zeros(n, np.int64)
    return Points(x=x, t=t, y=y.astype(np.float64, copy=False))


def decode_all(blobs: Sequence[bytes | memoryview]) -> Points:
    """Return the points of many chunks, one after the other, without their t (all zeros)."""
    heads = [_HEAD.unpack_from(blob) for blob in blobs]
    total = sum(head[2] for head in heads)
    x = _even_x(heads, total)
    is_even = x is not None
    if x is not None and len({head[1] for head in heads}) == 1:  # as long series mostly are: one copy
        same, size = ("<f4", 4) if heads[0][1] & _IS_FLOAT32 else ("<f8", 8)
        ends = (_HEAD.size + head[2] * size for head in heads)
        joined = b"".join([memoryview(blob)[_HEAD.size : end] for blob, end in zip(blobs, ends, strict=True)])
        assert all(head[0] == _POINTS for head in heads)
        y = np.frombuffer(joined, same).astype(np.float64, copy=False)
        return Points(x=x, t=np.broadcast_to(np.int64(0), total), y=y)
    y = np.empty(total, np.float64)
    x = np.empty(total, np.int64) if x is None else x
    at = 0
    for blob, (kind, flags, n, x0, stride) in zip(blobs, heads, strict=True):
        assert kind == _POINTS, kind
        dtype = "<f4" if flags & _IS_FLOAT32 else "<f8"
        y[at : at + n] = np.frombuffer(blob, dtype, n, _HEAD.size)
        if is_even:
            pass
        elif flags & _IS_EVEN:
            x[at : at + n] = np.arange(x0, x0 + stride * n, stride) if stride else x0
        else:
            x[at : at + n] = np.frombuffer(blob, "<i8", n, _HEAD.size + n * (4 if flags & _IS_FLOAT32 else 8))
        at += n
    return Points(x=x, t=np.broadcast_to(np.int64(0), total), y=y)


def _even_x(heads: Sequence[tuple[int, ...]], total: int) -> Ints | None:
    """Return x of all chunks if they are one even row, as the steps of a run mostly are; None if not."""
    if not heads:
        return None
    stride, expected = heads[0][4], heads[0][3]
    for _, flags, n, x0, own_stride in heads:
        if not flags & _IS_EVEN or x0 != expected or (own_stride != stride and n > 1):
            return None
        expected += stride * n
    return heads[0][3] + stride * np.arange(total, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointRows:
    """Rows that stand for points. All columns [n]; for single points most columns are one and the same array."""

    x0: Ints  # first point
    y0: Floats
    x1: Ints  # last point
    y1: Floats
    xmin: Ints  # smallest; NaN if every point is NaN
    ymin: Floats
    xmax: Ints  # largest
    ymax: Floats
    mean: Floats  # of the finite points
    n: Ints  # points
    finite: Ints  # how many of them are finite
    nan: Ints  # how many of them are NaN
    xnan: Ints  # place of the first NaN, x0 without one
    t0: Ints  # Unix ns of the first point

    def __len__(self) -> int:
        return len(self.x0)

    def take(self, which: Any) -> "PointRows":
        """Return the rows at `which` (a slice, or an array of places or booleans)."""
        return PointRows(**{c: getattr(self, c)[which] for c in _ROW_COLUMNS})


_ROW_COLUMNS = tuple(PointRows.__dataclass_fields__)
_ROW_FLOATS = frozenset({"y0", "y1", "ymin", "ymax", "mean"})


def join_rows(parts: list[PointRows]) -> PointRows:
    """Return the parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return rows_of_points(points([], [], []))
    return PointRows(**{c: np.concatenate([getattr(p, c) for p in parts]) for c in _ROW_COLUMNS})


def encode_rows(rows: PointRows) -> bytes:
    """Return a chunk of level 1 or 2."""
    columns = (getattr(rows, c).astype("<f8" if c in _ROW_FLOATS else "<i8").tobytes() for c in _ROW_COLUMNS)
    return _HEAD.pack(_ROWS, 0, len(rows), 0, 0) + zlib.compress(b"".join(columns), 1)


def decode_rows(blob: bytes | memoryview) -> PointRows:
    """Return what `encode_rows` encoded."""
    kind, _, n, _, _ = _HEAD.unpack_from(blob)
    assert kind == _ROWS, kind
    raw = zlib.decompress(memoryview(blob)[_HEAD.size :])
    columns = {
        c: np.frombuffer(raw, "<f8" if c in _ROW_FLOATS else "<i8", n, 8 * n * i) for i, c in enumerate(_ROW_COLUMNS)
    }
    return PointRows(**columns)


def rows_of_points(data: Points) -> PointRows:
    """Return each point as a row of its own."""
    x, y = data.x, data.y
    is_finite = np.isfinite(y)
    ones = np.broadcast_to(np.int64(1), len(x))
    if is_finite.all():  # as nearly all series are: no columns of their own for it
        mean, finite, nan = y, ones, np.broadcast_to(np.int64(0), len(x))
    else:
        mean = np.where(is_finite, y, np.nan)
        finite, nan = is_finite.astype(np.int64), np.isnan(y).astype(np.int64)
    return PointRows(
        x0=x, x1=x, xmin=x, xmax=x, xnan=x, y0=y, y1=y, ymin=y, ymax=y, t0=data.t,
        mean=mean, n=ones, finite=finite, nan=nan,
    )  # fmt: skip


def roll_up(rows: PointRows, *, width: int) -> PointRows:
    """Return rows that each stand for `width` of the given ones; the last may stand for fewer."""
    if not len(rows):
        return rows
    starts = np.arange(0, len(rows), width, dtype=np.int64)
    ends = np.append(starts[1:], len(rows)) - 1
    lowest, highest = extremes(rows, width=width)
    finite, nan = np.add.reduceat(rows.finite, starts), np.add.reduceat(rows.nan, starts)
    sums = np.add.reduceat(np.where(rows.finite > 0, rows.mean, 0.0) * rows.finite, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite > 0, sums / finite, np.nan)
    xnan = rows.x0[starts].copy()
    xnan[nan > 0] = rows.xnan[first_nans(rows, starts=starts)]
    return PointRows(
        x0=rows.x0[starts], y0=rows.y0[starts], x1=rows.x1[ends], y1=rows.y1[ends], t0=rows.t0[starts],
        xmin=rows.xmin[lowest], ymin=rows.ymin[lowest], xmax=rows.xmax[highest], ymax=rows.ymax[highest],
        mean=mean, n=np.add.reduceat(rows.n, starts), finite=finite, nan=nan, xnan=xnan,
    )  # fmt: skip


def first_nans(rows: PointRows, *, starts: Ints) -> Ints:
    """Return, for each bin with a NaN, the place of the first row that has one."""
    places = np.flatnonzero(rows.nan)
    _, first = np.unique(np.searchsorted(starts, places, side="right"), return_index=True)
    return places[first]


def extremes(rows: PointRows, *, width: int) -> tuple[Ints, Ints]:
    """Return where each bin of `width` rows has its smallest and its largest number, passing over NaNs.

    A bin of NaNs only answers with its first row.
    """
    low, high = rows.ymin, rows.ymax
    is_nan = np.isnan(low) if rows.nan.any() else None
    if is_nan is not None:
        low, high = np.where(is_nan, np.inf, low), np.where(is_nan, -np.inf, high)
    lowest, highest = _per_bin(low, width, np.argmin), _per_bin(high, width, np.argmax)
    if is_nan is not None:  # where an infinity is the extreme, the NaN's stand-in may have been found before it
        for i in np.flatnonzero(is_nan[lowest] | is_nan[highest]):
            numbers = np.flatnonzero(~is_nan[i * width : (i + 1) * width]) + i * width
            if len(numbers):
                lowest[i] = numbers[rows.ymin[numbers].argmin()]
                highest[i] = numbers[rows.ymax[numbers].argmax()]
            else:
                lowest[i] = highest[i] = i * width
    return lowest, highest


def _per_bin(values: Floats, width: int, find: Any) -> Ints:
    whole = len(values) // width
    indices = find(values[: whole * width].reshape(whole, width), axis=1) + np.arange(0, whole * width, width)
    if whole * width < len(values):
        indices = np.append(indices, whole * width + find(values[whole * width :]))
    return indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Spans of one lane in the order they came. `phase` and `name` index their tables. All columns [n]."""

    start: Ints  # Unix ns
    duration: Ints  # ns
    step: Ints
    depth: Ints
    phase: Ints
    name: Ints
    phases: list[str]
    names: list[str]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, which: Any) -> "Spans":
        """Return the spans at `which` (a slice, or an array of places or booleans); the tables stay."""
        columns = {c: getattr(self, c)[which] for c in _COLUMNS}
        return Spans(**columns, phases=self.phases, names=self.names)


_COLUMNS = ("start", "duration", "step", "depth", "phase", "name")


def spans_of(columns: dict[str, list[Any]]) -> Spans:
    """Return the columns of a frame (or several, joined) as Spans."""
    phases, phase = _table(columns["phase"])
    names, name = _table(columns["name"])
    return Spans(
        start=np.array([int(s) for s in columns["start"]], np.int64),
        duration=np.array(columns["duration"], np.int64),
        step=np.array(columns["step"], np.int64),
        depth=np.array(columns["depth"], np.int64),
        phase=phase,
        name=name,
        phases=phases,
        names=names,
    )


def _table(texts: list[str]) -> tuple[list[str], Ints]:
    table = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return list(table), np.array([table[text] for text in texts], np.int64)


def join_spans(parts: list[Spans]) -> Spans:
    """Return the spans of all parts, one after the other, with common tables."""
    phases = list(dict.fromkeys(p for part in parts for p in part.phases))
    names = list(dict.fromkeys(n for part in parts for n in part.names))
    columns: dict[str, list[Ints]] = {c: [np.empty(0, np.int64)] for c in _COLUMNS}
    for part in parts:
        to_phase = np.array([phases.index(p) for p in part.phases] or [0], np.int64)
        where = {n: i for i, n in enumerate(names)}
        to_name = np.array([where[n] for n in part.names] or [0], np.int64)
        for c in _COLUMNS:
            column = getattr(part, c)
            columns[c].append(to_phase[column] if c == "phase" else to_name[column] if c == "name" else column)
    return Spans(**{c: np.concatenate(v) for c, v in columns.items()}, phases=phases, names=names)


def encode_spans(data: Spans) -> bytes:
    """Return a chunk of spans."""
    tables = orjson.dumps([data.phases, data.names])
    columns = b"".join(getattr(data, c).astype("<i8").tobytes() for c in _COLUMNS)
    return _HEAD.pack(_SPANS, 0, len(data), len(tables), 0) + zlib.compress(tables + columns, 1)


def decode_spans(blob: bytes | memoryview) -> Spans:
    """Return what `encode_spans` encoded."""
    kind, _, n, size, _ = _HEAD.unpack_from(blob)
    assert kind == _SPANS, kind
    raw = zlib.decompress(memoryview(blob)[_HEAD.size :])
    phases, names = orjson.loads(raw[:size])
    columns = np.frombuffer(raw, "<i8", n * len(_COLUMNS), size).reshape(len(_COLUMNS), n)
    return Spans(**dict(zip(_COLUMNS, columns, strict=True)), phases=phases, names=names)
