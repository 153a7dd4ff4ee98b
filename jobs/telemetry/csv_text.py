"""Lines of CSV whose texts no spreadsheet takes for formulas. No database."""

import csv
import io
from collections.abc import Sequence
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # wide ones count in Japan


def csv_cell(value: Any) -> str | float:
    """Return what stands for `value`: a number as it is, nothing for None, a tuple's texts parted by spaces.

    A text that a spreadsheet would run as a formula gets an apostrophe in front (OWASP, CSV injection).
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        text = " ".join(value) if isinstance(value, tuple) else str(value)
        return f"'{text}" if text.lstrip(" ")[:1] in _FORMULA else text
    return value


def csv_line(cells: Sequence[Any]) -> str:
    """Return one line, quoted where it must be, with its line end."""
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue()
