"""Pages of the reference: text that people wrote, and below it tables that are made."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)[^)#]+")


def write_page(source: Path, target: Path, tables: str) -> None:
    """Write the source's text with the tables below it; links that are relative lead to the same files from there."""

    def link(match: re.Match[str]) -> str:
        return os.path.relpath(source.parent / match[0], target.parent)

    target.parent.mkdir(parents=True, exist_ok=True)
    text = _LINK.sub(link, source.read_text(encoding="utf-8"))
    target.write_text(f"{text.rstrip()}\n\n{tables}\n", encoding="utf-8")


def table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
