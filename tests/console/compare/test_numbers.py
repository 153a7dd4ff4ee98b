"""How Compare writes numbers, and draws the lines of an exported report."""

import re

import numpy as np
import pytest

from console.compare_numbers import difference_text, gap_text, half_text, share_text, value_text
from console.views.compare.svg import SvgLine, line_chart


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "", "—"),
        (0.8124, "", "0.812"),
        (-0.0123, "", "−0.0123"),
        (3e-5, "", "3.0e−5"),
        (15.62, "s", "15.6 s"),
        (0.0042, "s", "4.2 ms"),
        (4000.0, "s", "1 h 7 min"),
        (0.372, "share", "37.2 %"),
        (61.2 * 2**30, "bytes", "61.2 GiB"),
        (24_812.0, "tok/s", "24.8k tok/s"),
        (float("nan"), "", "NaN"),
        (float("-inf"), "s", "−∞"),
        (12_480.0, "", "12,480"),
    ],
)
def test_values_are_written_as_charts_write_them(value: float | None, unit: str, shown: str) -> None:
    assert value_text(value, unit) == shown


def test_differences_have_signs_and_no_false_digits() -> None:
    assert difference_text(0.0712, "") == "+0.0712"
    assert difference_text(-0.012, "share") == "−1.2 pt"
    assert difference_text(0.0, "s") == "±0"
    assert half_text(0.25, "share") == "± 25 pt"
    assert share_text(-0.3457) == "−34.6 %"
    assert share_text(2.01) == "+201 %"
    assert share_text(1e-9) == "±0 %"
    assert gap_text(-0.00053, 0.0223, "") == ("−0.001", "± 0.022")
    assert gap_text(-0.0217, 0.0232, "share") == ("−2.2 pt", "± 2.3 pt")
    assert gap_text(33.71, 2.951, "") == ("+33.7", "± 3.0")
    assert gap_text(0.0, 0.0, "") == ("±0", "± 0")


def test_a_chart_keeps_gaps_and_spikes() -> None:
    y = np.array([1.0, 50.0, np.nan, 2.0, 3.0])
    line = SvgLine(label="<a>", color="#000", x=np.arange(5.0), y=y)

    drawn = str(line_chart([line], label="Reward", unit=""))

    (way,) = re.findall(r'class="line" d="([^"]*)"', drawn)
    assert (way.count("M"), way.count("L")) == (2, 2)
    assert "<title>&lt;a&gt;</title>" in drawn
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", way)]
    assert min(heights) == heights[1] < 25  # the spike is at the top
    assert line_chart([SvgLine(label="a", color="#000", x=y, y=y * np.nan)], label="Reward", unit="") == ""
    tiny = str(
        line_chart(
            [SvgLine(label="a", color="#000", x=np.arange(3.0), y=np.array([1e-14, 3e-14, 2e-14]))], label="", unit=""
        )
    )
    assert len(set(re.findall(r'class="grid" d="([^"]*)"', tiny))) >= 4  # each number of the axis at its place
