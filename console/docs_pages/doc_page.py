"""Tables of the catalogue in pages of docs/, between two marks: what stands outside of these is written by people."""

from collections.abc import Sequence
from pathlib import Path


def put_between(page: Path, begin: str, end: str, text: str) -> None:
    """Put the text between the marks of the page, in place of what stands there.

    Raises: ValueError if a mark is missing.
    """
    whole = page.read_text(encoding="utf-8")
    if begin not in whole or end not in whole:
        raise ValueError(f"{page} lacks {begin!r} or {end!r}.")
    before, after = whole.partition(begin)[0], whole.partition(end)[2]
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def table_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
