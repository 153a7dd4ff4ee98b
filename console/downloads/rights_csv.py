"""Who can do what, as CSV."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from datetime import datetime

from jobs.accounts.who_can import Right
from jobs.telemetry.csv_text import csv_cell, csv_line


def rights_csv(rights: Sequence[Right]) -> Iterator[str]:
    """Yield the rights as CSV lines; text that a spreadsheet would run as a formula begins with an apostrophe."""
    yield csv_line([column.name for column in fields(Right)])
    for right in rights:
        cells = (cell.isoformat() if isinstance(cell, datetime) else cell for cell in astuple(right))
        yield csv_line([csv_cell(cell) for cell in cells])
