"""The knob tables of docs/launch.md, made from the catalogue: `python -m console.forms.new_run_docs docs/launch.md`."""

import sys
from itertools import groupby
from pathlib import Path

from jobs.catalog.knob import Knob, knobs
from jobs.catalog.value import Value

BEGIN = "<!-- knobs: made from jobs/catalog/knobs, do not edit -->"
END = "<!-- end of knobs -->"


def knob_tables() -> str:
    """Return one Markdown table per group: knob, default, range and meaning."""
    parts = []
    for group, members in groupby(knobs().values(), key=lambda knob: knob.group):
        rows = [_row(knob) for knob in members]
        parts.append(
            "\n".join([f"### `{group}`", "", "| knob | default | takes | what it does |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(parts)


def write(page: Path) -> None:
    """Put the tables into the page between their marks. Raises: ValueError if a mark is missing."""
    text = page.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{page} lacks {BEGIN!r} or {END!r}.")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{knob_tables()}\n\n{END}{after}", encoding="utf-8")


def _row(knob: Knob) -> str:
    unit = f" {knob.unit}" if knob.unit else ""
    only = f" {knob.algorithms[0].upper()} only." if len(knob.algorithms) == 1 else ""
    mark = " **essential**" if knob.is_essential else ""
    cells = [f"`{knob.id}`{mark}<br>{knob.label}", f"{_defaults(knob)}{unit}", knob.allowed(), f"{knob.help}{only}"]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _defaults(knob: Knob) -> str:
    found = {a: _spell(knob.default_for(a)) for a in knob.algorithms}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return ", ".join(f"{value} ({algorithm.upper()})" for algorithm, value in found.items())


def _spell(value: Value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
