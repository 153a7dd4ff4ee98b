"""`make bench-web`: every case in Chromium, medians and p95 in one table with targets; exit code 1 if one is missed."""

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import django.db.models  # noqa: F401  (whole, before conftest imports a part that needs the rest)
from playwright.sync_api import Browser, sync_playwright

from tests.bench.stage import ROOT
from tests.bench.web.case import Reading, Window, case_names, load_case
from tests.bench.web.console import console
from tests.bench.web.peers import look_at_peers
from tests.conftest import CHROMIUM_ARGUMENTS, find_chromium
from tests.revision import write_revision

Row = tuple[str, Reading]


def main() -> None:
    """Measure this tree, a revision beside it if one is named, and the peers that are there."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.web", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"cases: {', '.join(case_names())} (all)")
    parser.add_argument("--rounds", type=int, default=7, help="each number so many times (7)")
    parser.add_argument("--revision", help="of this repository, measured first, without gates")
    parser.add_argument("--data", type=Path, help="keep the stores in this folder, and use those that are there")
    parser.add_argument("--mlflow", help="a Python that has MLflow (PITWALL_BENCH_MLFLOW); left out without one")
    parser.add_argument("--tensorboard", help="a Python that has TensorBoard, where this one does not")
    parser.add_argument("--peers-only", action="store_true", help="measure nothing but the peers")
    given = parser.parse_args()
    if unknown := set(given.only) - set(case_names()):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(case_names())}")
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = given.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pw-bench-web-")))
        sides = [("now", ROOT)]
        if given.revision:
            code = write_revision(given.revision, Path(stack.enter_context(tempfile.TemporaryDirectory())))
            sides.insert(0, (given.revision, code))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        stack.callback(browser.close)
        for side, code in [] if given.peers_only else sides:
            for case in given.only or case_names():
                rows += [(side, one) for one in _looked_at(browser, code, case, folder / side / case, given.rounds)]
        rows += look_at_peers(browser, given, folder / "peers")
    _print(rows)
    missed = [one.what for side, one in rows if side == "now" and not one.is_met]
    if missed:
        sys.exit(f"Missed: {'; '.join(missed)}")


def _looked_at(browser: Browser, code: Path, case: str, data: Path, rounds: int) -> list[Reading]:
    with console(code=code, case=case, data=data) as seen:
        window = Window(browser=browser, url=seen.url, session=seen.session, web_pid=seen.web_pid)
        return load_case(case).look(window, seen.seeded, rounds)


def _print(rows: Sequence[Row]) -> None:
    table = [("what", "of", "median", "p95", "target", "")]
    for side, one in sorted(rows, key=lambda row: row[1].what):
        sign = "≥" if one.is_floor else "≤"
        target = "" if one.target is None else f"{sign} {_short(one.target)}"
        word = "" if one.target is None else "met" if one.is_met else "MISSED"
        table.append((one.what, side, f"{_short(one.median)} {one.unit}", _short(one.p95), target, word))
    widths = [max(len(row[i]) for row in table) for i in range(6)]
    for row in table:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip(), flush=True)


def _short(value: float) -> str:
    if math.isnan(value):
        return "—"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
