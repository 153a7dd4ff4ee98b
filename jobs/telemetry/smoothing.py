"""Smoothing of series: exponential, Gaussian, or the mean of the newest points. Pure arithmetic on NumPy arrays.

It counts points, whatever their distance in x, and is always given every point: a smoothed value is then the same at
every zoom. What is not finite is passed over.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from jobs.telemetry.chunks import Floats, PointRows

Kind = Literal["ema", "gaussian", "mean"]
MAX_WIDTH = 10_000
"""Points that a Gaussian's standard deviation, or a running mean, may be wide."""

_FORGOTTEN = 1e-9  # what points further away weigh in a smoothed value, at most
_ONE = -40.0  # exp of this is nothing beside 1
_BLOCK = 32
_ROWS = 256  # of one product: OpenBLAS shares larger ones among threads of its own, which spin while they wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """How a series is smoothed.

    ema: `amount` in [0, 1) is the weight of what came before; debiased, as TensorBoard draws it. gaussian: `amount` is
    the standard deviation in points, to both sides. mean: of the newest `amount` points.
    """

    kind: Kind
    amount: float

    def __post_init__(self) -> None:
        if self.kind == "ema" and not 0 <= self.amount < 1:
            raise ValueError(f"smooth: {self.amount:g} is not in 0 (off) to below 1.")
        if self.kind != "ema" and not 0 < self.amount <= MAX_WIDTH:
            raise ValueError(f"smooth: {self.kind}:{self.amount:g} is not above 0 and up to {MAX_WIDTH} points.")

    @property
    def is_none(self) -> bool:
        """Whether it leaves values as they are."""
        return self.kind == "ema" and self.amount == 0

    @property
    def reach(self) -> tuple[int, int]:
        """How many points before and after one weigh in its smoothed value."""
        if self.kind == "gaussian":
            side = _half_width(self.amount)
            return side, side
        if self.kind == "mean":
            return math.ceil(self.amount) - 1, 0
        return (math.ceil(math.log(_FORGOTTEN) / math.log(self.amount)) if self.amount else 0), 0


def parse_smoothing(text: str) -> Smoothing | None:
    """Return what `0.6` or `ema:0.6`, `gaussian:20` and `mean:50` name; None for an empty text.

    Raises: ValueError with a sentence otherwise.
    """
    if not text:
        return None
    kind, _, amount = text.rpartition(":")
    try:
        number = float(amount)
    except ValueError:
        number = math.nan
    if kind not in ("", "ema", "gaussian", "mean") or not math.isfinite(number):
        raise ValueError(f"smooth: {text[:40]!r} is not a weight like 0.6, ema:0.6, gaussian:20 or mean:50.")
    return Smoothing(kind=kind or "ema", amount=number)  # type: ignore[arg-type]  # one of the three


def smooth(rows: PointRows, smoothing: Smoothing) -> Floats:
    """Return the smoothed means of the rows. [n]

    Rows without a finite number neither change nor count; they, and those before the first one, are given the newest
    value before them, NaN without one.
    """
    is_number = rows.finite > 0
    if is_number.all():
        return smooth_values(rows.mean, smoothing)
    averaged = smooth_values(rows.mean[is_number], smoothing)
    out = np.full(len(rows), np.nan)
    newest = np.cumsum(is_number) - 1
    out[newest >= 0] = averaged[newest[newest >= 0]]
    return out


def smooth_values(y: Floats, smoothing: Smoothing) -> Floats:
    """Return the smoothed values of finite ones. [n]"""
    if not len(y) or smoothing.is_none:
        return y
    if smoothing.kind == "gaussian":
        return _gaussian(y, smoothing.amount)
    if smoothing.kind == "mean":
        return _running_mean(y, max(1, math.ceil(smoothing.amount)))
    return _exponential(y, smoothing.amount)


def _exponential(y: Floats, weight: float) -> Floats:
    """Return s_i = weight * s_(i-1) + (1 - weight) * y_i from s = 0, divided by 1 - weight^i (i counts from 1)."""
    averaged = _decayed(y, weight, gain=1 - weight)
    num = min(len(y), math.ceil(_ONE / math.log(weight)))  # later ones divide by 1, to the last bit
    averaged[:num] /= -np.expm1(np.arange(1, num + 1) * math.log(weight))
    return averaged


def _decayed(y: Floats, weight: float, *, gain: float = 1.0) -> Floats:
    """Return s_i = weight * s_(i-1) + gain * y_i from s = 0.

    Many blocks at once, as a product with a triangle of powers, which leaves the interpreter to other threads; what
    flows from one block into the next is such a sum again.
    """
    num = -(-len(y) // _BLOCK)
    rows = min(num, _ROWS)
    padded = np.zeros(-(-num // rows) * rows * _BLOCK)
    padded[: len(y)] = y
    triangle = _triangle(weight)
    sums = (padded.reshape(-1, rows, _BLOCK) @ (gain * triangle)).reshape(-1, _BLOCK)[:num]
    if num > 1:
        ends = _decayed(sums[:, -1], weight**_BLOCK)
        flows = padded.reshape(-1, _BLOCK)[1:num]  # new memory costs as much as the arithmetic
        np.multiply(ends[:-1, None], weight * triangle[0], out=flows)
        sums[1:] += flows
    return sums.reshape(-1)[: len(y)]


@lru_cache(maxsize=64)
def _triangle(weight: float) -> Floats:
    """Return weight^(j - i) in row i and column j, 0 where j < i. [_BLOCK, _BLOCK]"""
    ahead = np.arange(_BLOCK) - np.arange(_BLOCK)[:, None]
    powers = np.where(ahead >= 0, weight ** np.maximum(ahead, 0), 0.0)
    powers.flags.writeable = False
    return powers


def _half_width(sigma: float) -> int:
    """Return where a Gaussian's weights are below what counts."""
    return math.ceil(sigma * math.sqrt(-2 * math.log(_FORGOTTEN)))


def _gaussian(y: Floats, sigma: float) -> Floats:
    """Return the mean weighted by exp(-d^2 / (2 sigma^2)), d points away; at the ends of those there are."""
    side = min(_half_width(sigma), len(y) - 1)
    kernel = np.exp(-0.5 * (np.arange(-side, side + 1) / sigma) ** 2)
    before = np.cumsum(kernel)  # weight of the first so many of the kernel
    places = np.arange(len(y))
    first, last = np.maximum(side - places, 0), np.minimum(2 * side, side + len(y) - 1 - places)
    weights = before[last] - np.where(first > 0, before[first - 1], 0.0)
    return _convolved(y, kernel, side) / weights


def _convolved(y: Floats, kernel: Floats, side: int) -> Floats:
    """Return the sums of `kernel` around each value, in blocks, so that a huge one rounds off its neighbours alone."""
    size = 1 << max(10, (8 * len(kernel) - 1).bit_length())
    step = size - 2 * side
    num = -(-len(y) // step)
    padded = np.zeros(num * step + 2 * side)
    padded[side : side + len(y)] = y
    blocks = np.lib.stride_tricks.sliding_window_view(padded, size)[::step]
    scale = np.fft.rfft(kernel, size)
    sums = np.fft.irfft(np.fft.rfft(blocks, axis=1) * scale, size, axis=1)[:, 2 * side : 2 * side + step]
    return np.ascontiguousarray(sums).reshape(-1)[: len(y)]


def _running_mean(y: Floats, width: int) -> Floats:
    """Return the mean of the newest `width` values: of the end of one block, and the beginning of the next."""
    num = -(-len(y) // width)
    padded = np.zeros((num + 1) * width)
    padded[width : width + len(y)] = y
    blocks = padded.reshape(num + 1, width)
    heads = np.cumsum(blocks, axis=1)
    tails = np.cumsum(blocks[:, ::-1], axis=1)[:, ::-1]
    sums = heads[1:].copy()
    sums[:, :-1] += tails[:-1, 1:]
    return sums.reshape(-1)[: len(y)] / np.minimum(np.arange(1, len(y) + 1), width)
