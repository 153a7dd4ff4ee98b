"""Line charts as SVG, for pages that have no script: every number is in the drawing, nothing is fetched."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from console.compare_numbers import value_text
from jobs.telemetry.chunks import Floats

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 64, 10, 10, 26
TICKS = 5
DASHES = ("none", "6 3", "2 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class SvgLine:
    """One run's line: `x` and `y` [n], gaps where y is not finite. The thick one is the baseline's."""

    label: str
    color: str
    x: Floats
    y: Floats
    dash: int = 0
    is_thick: bool = False


def line_chart(lines: Sequence[SvgLine], *, label: str, unit: str) -> SafeString:
    """Return the chart as an <svg>, "" where no line has a point."""
    drawn = [line for line in lines if np.isfinite(line.y).any()]
    if not drawn:
        return SafeString("")
    finite = np.concatenate([line.y[np.isfinite(line.y)] for line in drawn])
    steps = np.concatenate([line.x for line in drawn])
    x, y = _Scale(float(steps.min()), float(steps.max())), _Scale(float(finite.min()), float(finite.max()))
    parts = [_axis_y(y, unit), _axis_x(x), *(_path(line, x, y) for line in drawn)]
    return format_html(
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
        WIDTH,
        HEIGHT,
        label,
        _joined(parts),
    )


class _Scale:
    """Numbers of an axis to shares of its length, with round ticks."""

    def __init__(self, low: float, high: float) -> None:
        room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
        self.low, self.high = low - room, high + room

    def __call__(self, values: Floats) -> Floats:
        return (values - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return round numbers inside: 1, 2 or 5 times a power of ten apart."""
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first = math.ceil(self.low / step)
        digits = 1 - math.floor(math.log10(step))
        return [round(step * i, digits) for i in range(first, math.floor(self.high / step) + 1)]


def _joined(parts: Iterable[SafeString]) -> SafeString:
    return format_html_join("", "{}", ((part,) for part in parts))


def _axis_y(scale: _Scale, unit: str) -> SafeString:
    ticks = scale.ticks()
    places = _down(scale(np.array(ticks)))
    return format_html_join(
        "",
        '<path class="grid" d="M{} {}H{}"/><text x="{}" y="{}" text-anchor="end">{}</text>',
        (
            (LEFT, f"{at:.1f}", WIDTH - RIGHT, LEFT - 6, f"{at + 4:.1f}", value_text(tick, unit))
            for tick, at in zip(ticks, places, strict=True)
        ),
    )


def _axis_x(scale: _Scale) -> SafeString:
    ticks = [tick for tick in scale.ticks() if tick >= 0]
    places = _across(scale(np.array(ticks)))
    return format_html_join(
        "",
        '<text x="{}" y="{}" text-anchor="middle">{}</text>',
        ((f"{at:.1f}", HEIGHT - 8, f"{tick:,g}") for tick, at in zip(ticks, places, strict=True)),
    )


def _path(line: SvgLine, x: _Scale, y: _Scale) -> SafeString:
    """Return a line; a point between gaps is a dot."""
    places = zip(_across(x(line.x)).tolist(), _down(y(line.y)).tolist(), strict=True)
    way, is_on = [], False
    for across, down in places:
        if math.isfinite(down):
            way.append(f"{'L' if is_on else 'M'}{across:.1f} {down:.1f}" + ("" if is_on else "h0"))
        is_on = math.isfinite(down)
    return format_html(
        '<path class="line" d="{}" stroke="{}" stroke-width="{}" stroke-dasharray="{}"><title>{}</title></path>',
        "".join(way),
        line.color,
        2.2 if line.is_thick else 1.3,
        DASHES[line.dash % len(DASHES)],
        line.label,
    )


def _across(shares: Floats) -> Floats:
    return LEFT + shares * (WIDTH - LEFT - RIGHT)


def _down(shares: Floats) -> Floats:
    return HEIGHT - BOTTOM - shares * (HEIGHT - TOP - BOTTOM)
