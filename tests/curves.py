"""Curves of several seeds as a picture: of each line its mean, and a band from the least to the most; SVG, as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 250, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 26, 22
LEGEND = 26
COLORS = ("#2166c4", "#d1660f", "#6b7280", "#2e8b57")
_STYLE = "font-family='system-ui,sans-serif' font-size='11' fill='#1f2937'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a panel: of each step the values of all seeds. Lines of the same name look the same; all but the
    first are dashed, so that one that lies on another hides nothing.
    """

    name: str
    seeds: Mapping[int, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot; its vertical axis holds all values, and `bounds` besides."""

    title: str
    lines: Sequence[Line]
    bounds: tuple[float, ...] = ()


def picture(panels: Sequence[Panel], *, columns: int = 4) -> str:
    """Return an SVG with the panels in rows, below a legend of the lines' names."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    columns = min(columns, len(panels))
    width, height = columns * WIDTH, LEGEND + -(-len(panels) // columns) * HEIGHT
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' "
        f"{_STYLE}>",
        f"<rect width='{width}' height='{height}' fill='#ffffff'/>",
    ]
    for number, name in enumerate(names):
        x = LEFT + number * 190
        parts.append(f"<path d='M{x},12h15' {_stroke(names, name)}/>")
        parts.append(f"<text x='{x + 20}' y='16'>{escape(name)}</text>")
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        parts.append(f"<g transform='translate({column * WIDTH},{LEGEND + row * HEIGHT})'>")
        parts += _drawn(panel, names)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(panel: Panel, names: Sequence[str]) -> list[str]:
    steps = [step for line in panel.lines for step in line.seeds]
    values = [value for line in panel.lines for of_step in line.seeds.values() for value in of_step]
    first, last = min(steps), max(steps)
    low, high = min(*values, *panel.bounds), max(*values, *panel.bounds)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def at(step: int, value: float) -> str:
        x = LEFT + (step - first) / max(last - first, 1) * (right - LEFT)
        y = bottom - (value - low) / ((high - low) or 1.0) * (bottom - TOP)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f"<text x='{LEFT}' y='16' font-weight='600'>{escape(panel.title)}</text>",
        f"<path d='M{LEFT},{TOP}V{bottom}H{right}' fill='none' stroke='#9ca3af'/>",
        f"<text x='{LEFT - 5}' y='{TOP + 8}' text-anchor='end'>{high:.3g}</text>",
        f"<text x='{LEFT - 5}' y='{bottom}' text-anchor='end'>{low:.3g}</text>",
        f"<text x='{LEFT}' y='{bottom + 15}'>{first}</text>",
        f"<text x='{right}' y='{bottom + 15}' text-anchor='end'>step {last}</text>",
    ]
    for line in panel.lines:
        ordered = sorted(line.seeds.items())
        edge = [at(step, max(of)) for step, of in ordered] + [at(step, min(of)) for step, of in reversed(ordered)]
        middle = [at(step, sum(of) / len(of)) for step, of in ordered]
        parts.append(f"<polygon points='{' '.join(edge)}' fill='{_color(names, line.name)}' fill-opacity='0.2'/>")
        parts.append(f"<polyline points='{' '.join(middle)}' {_stroke(names, line.name)}/>")
    return parts


def _stroke(names: Sequence[str], name: str) -> str:
    dashes = " stroke-dasharray='4 3'" if names.index(name) else ""
    return f"fill='none' stroke='{_color(names, name)}' stroke-width='1.8'{dashes}"


def _color(names: Sequence[str], name: str) -> str:
    return COLORS[names.index(name) % len(COLORS)]
