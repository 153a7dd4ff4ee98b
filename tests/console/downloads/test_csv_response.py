"""A CSV is written while it is sent, so that its size is no matter of memory; no cell is a formula."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest
from asgiref.sync import async_to_sync

from console.downloads.csv_response import csv_answer
from jobs.telemetry.csv_text import csv_cell
from tests.console.fake_runner import content


def test_the_first_lines_leave_before_the_last_are_made() -> None:
    made: list[int] = []

    def lines() -> Iterator[str]:
        for number in range(100_000):
            made.append(number)
            yield f"{number},{'x' * 100}\n"

    async def first() -> bytes:
        async for piece in csv_answer(lines(), name="x.csv"):
            return bytes(piece)
        return b""

    piece = async_to_sync(first)()

    assert piece.startswith(b"0,xxx")
    assert len(made) < 1000


def test_what_nobody_waits_for_ends_though_no_line_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.downloads.csv_response.PIECE_SECONDS", 0.01)

    async def read() -> None:
        async for _piece in csv_answer(itertools.repeat(""), name="x.csv"):
            pass

    async def given_up() -> None:
        await asyncio.wait_for(read(), 0.2)

    with pytest.raises(TimeoutError):
        async_to_sync(given_up)()


def test_all_lines_come_in_order_under_the_name() -> None:
    answer = csv_answer((f"{number},ü\n" for number in range(50_000)), name="a.csv")

    assert content(answer).decode() == "".join(f"{number},ü\n" for number in range(50_000))
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="a.csv"'


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "  =1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff201"]
)
def test_a_text_that_a_spreadsheet_would_run_is_defused(text: str) -> None:
    assert csv_cell(text) == f"'{text}"
