"""The planner against measured cases. `python -m tests.bench.planner [PATH] [--fit-only] [--no-peers]`.

Prints every reading with its error, then the figures with their goals; the exit code is 1 if a gated one is missed.
PATH: a case file or a folder of them in the place of ours (docs/develop/planner-cases.md). `--fit-only`: only those by
which constants may be chosen. `--no-peers`: without DeepSpeed's and accelerate's estimators, which load torch.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jobs.planner.constant import shipped_constants
from jobs.planner.estimate import estimate
from jobs.planner.result import JobInvalid
from tests.planner_cases.device_rows import device_cases
from tests.planner_cases.held_out import BIAS, COVERAGE, WIDTH, Figure, as_shipped, held_out
from tests.planner_cases.load import HERE, Case, CaseInvalid, load
from tests.planner_cases.measure import Reading, readings
from tests.planner_cases.speed import (
    CAN_GOAL,
    ESTIMATE_GOAL,
    RANKED,
    SEARCH_GOAL,
    seconds_of_a_cold_process,
    seconds_of_can_it_run,
    seconds_of_search,
)
from tests.planner_cases.summary import HALVES, Half, Row, percentile, sizes, summarize

Peers = dict[str, tuple[float | None, float | None]]  # case: GiB by DeepSpeed, GiB by accelerate
_GIB = 2**30


def main() -> None:
    """Print the table and the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=Path, help="a case file or a folder; ours if none is given")
    parser.add_argument("--fit-only", action="store_true", help="the cases alone by which constants may be chosen")
    parser.add_argument("--no-peers", action="store_true", help="without the estimators of DeepSpeed and accelerate")
    given = parser.parse_args()
    try:
        cases = load(given.path) if given.path else (*load(HERE), *device_cases())
    except (CaseInvalid, OSError) as error:
        sys.exit(str(error))
    if given.fit_only:
        cases = tuple(case for case in cases if case.is_for_fitting)
    found = [reading for case in cases for reading in readings(case)]
    peers = {} if given.no_peers or given.fit_only else _peers(cases)
    print_readings(found, peers)
    rows = summarize(found)
    halves: tuple[Half, ...] = ("fit",) if given.fit_only else ("all",) if given.path else HALVES
    print_summary(rows, halves)
    shipped = as_shipped(found)
    left_out: tuple[Figure, ...] = ()
    if not given.fit_only and not given.path:
        left_out = held_out((*load(HERE), *load(HERE / "later")), shipped_constants())
    print_times("seconds, with the constants as they are", shipped)
    print_times("seconds, each source judged by constants and widths made without it", left_out)
    print_peers(found, peers)
    is_fast = print_speed(cases)
    judged: Half = "fit" if given.fit_only else "all"
    missed = [row.what for row in rows if row.is_gate and not row.reaches(judged)]
    missed += [f"{each.kind}: {', '.join(each.fails)}, its source left out" for each in left_out if each.fails]
    if missed or not is_fast:
        sys.exit("Missed: " + "; ".join([*missed, *([] if is_fast else ["speed"])]))


def print_times(head: str, figures: Sequence[Figure]) -> None:
    """Print bias, coverage and width of every class of seconds, and which of the goals are missed."""
    if not figures:
        return
    goal = f"{BIAS[0]:g} to {BIAS[1]:g}", f"≥ {COVERAGE:g} %", f"≤ x{WIDTH:g}"
    lines = [(head, "readings", "sources", "predicted / measured", "inside", "high / low", "four of five within", "")]
    lines += [
        (
            each.kind,
            str(each.num),
            str(each.sources),
            f"{each.bias:.2f}",
            f"{each.coverage:.1f} %",
            f"x{each.width:.2f}",
            f"x{each.residual:.2f}",
            " ".join(f"{check}: {'MISSED' if check in each.fails else 'missed (no gate)'}" for check in each.misses),
        )
        for each in figures
    ]
    print()
    _print_columns([*lines, ("goal", "", "", *goal, "", "")])


def print_readings(found: Sequence[Reading], peers: Peers) -> None:
    """Print a line a reading: case, half, quantity, truth, estimate, error, both peers where they have an answer."""
    head = ("case", "half", "q", "quantity", "measured", "estimate", "error", "DeepSpeed", "accelerate", "")
    lines = [head]
    for each in found:
        theirs = peers.get(each.case.id, (None, None)) if each.quantity == "memory" else (None, None)
        mark = "" if each.is_right is None else "right" if each.is_right else "WRONG"
        lines.append(
            (
                each.case.id,
                "fit" if each.case.is_for_fitting else "test",
                each.case.quality,
                f"{each.quantity} {each.what}".strip(),
                _short(each.truth),
                "not computed" if each.estimate is None else _short(each.estimate),
                "" if each.error is None else f"{each.error:+.1%}",
                *(_with_error(peer, each.truth) for peer in theirs),
                " ".join(filter(None, (mark, each.detail, each.why))),
            )
        )
    _print_columns(lines)


def print_summary(rows: Sequence[Row], halves: Sequence[Half]) -> None:
    """Print every figure by half beside its goal; a gate that is missed says so."""
    lines = [("figure", *(f"{half} (cases)" for half in halves), "goal", "")]
    for row in rows:
        if not any(row.num[half] for half in halves):
            continue
        values = tuple(_figure(row, half) for half in halves)
        goal = "" if row.goal is None else f"{'≥' if row.least else '≤'} {row.goal:g} {row.unit}"
        reached = [half for half in halves if row.reaches(half)]
        verdict = "" if row.goal is None else "reached" if len(reached) == len(halves) else "MISSED"
        if verdict == "MISSED" and reached:
            verdict += f" by {', '.join(half for half in halves if half not in reached)}"
        lines.append((row.what, *values, goal, verdict + (" (no gate)" if row.goal and not row.is_gate else "")))
    print()
    _print_columns(lines)


def print_peers(found: Sequence[Reading], peers: Peers) -> None:
    """Print medians of the others' estimators beside ours on the cases that they have an answer for."""
    if not any(any(pair) for pair in peers.values()):
        return
    lines = [
        (
            "training memory, cases of quality L and R with an answer of",
            "cases",
            "median",
            "90th",
            "ours: median",
            "90th",
        )
    ]
    for index, name in enumerate(("DeepSpeed's estimators", "accelerate estimate-memory")):
        for what, devices in (("", 1 << 30), (", one device", 1)):
            mine = [
                each
                for each in found
                if each.quantity == "memory"
                and each.case.quality in ("L", "R")
                and peers.get(each.case.id, (None, None))[index] is not None
                and (each.case.fleet is None or each.case.fleet.num_devices <= devices)
            ]
            if not mine:
                continue
            theirs = [abs((peers[each.case.id][index] or 0) / float(each.truth) - 1) * 100 for each in mine]
            columns = [f"{f(v):.1f} %" for v in (theirs, sizes(mine)) for f in (statistics.median, _p90)]
            lines.append((name + what, str(len(mine)), *columns))
    print()
    _print_columns(lines)


def print_speed(cases: Sequence[Case]) -> bool:
    """Print what one estimate, a search and "Can it run?" take of a CPU; True if all are as fast as they shall
    be."""
    took = []
    for case in (case for case in cases if case.job is not None):
        began = time.process_time()
        try:
            estimate(case.job)  # type: ignore[arg-type]
        except JobInvalid:
            continue
        took.append(time.process_time() - began)
    lines = [("speed", "measured", "goal")]
    slow = _p90(took) if took else math.inf
    lines.append((f"one estimate, p90 of {len(took)}", f"{slow * 1e3:.2f} ms", f"≤ {ESTIMATE_GOAL * 1e3:g} ms"))
    num, searched = seconds_of_search()
    per_thousand = searched / num * RANKED if num else math.inf
    lines.append(
        (f"{RANKED:,} layouts ranked (of {num:,} in {searched:.2f} s)", f"{per_thousand:.2f} s", f"≤ {SEARCH_GOAL:g} s")
    )
    asked, answered = seconds_of_can_it_run()
    lines.append((f"can it run: {asked}", f"{answered:.2f} s", f"≤ {CAN_GOAL:g} s"))
    command, cold = seconds_of_a_cold_process()
    lines.append((f"the same, manage.py can_it_run in a process of its own: {command}", f"{cold:.2f} s", "≤ 1 s"))
    print()
    _print_columns(lines)
    return slow <= ESTIMATE_GOAL and per_thousand <= SEARCH_GOAL and answered <= CAN_GOAL


def _peers(cases: Sequence[Case]) -> Peers:
    from tests.planner_cases.peers import accelerate_bytes, deepspeed_bytes

    asked = [case for case in cases if case.truth.peak_bytes and case.job is not None]
    return {case.id: tuple(_gib(of(case)) for of in (deepspeed_bytes, accelerate_bytes)) for case in asked}  # type: ignore[misc]


def _gib(size: float | None) -> float | None:
    return None if size is None else size / _GIB


def _figure(row: Row, half: Half) -> str:
    value = row.value[half]
    if value is None:
        return "–"
    shown = "∞" if math.isinf(value) else f"{value:.1f}" if row.unit == "%" else f"{value:g}"
    return f"{shown} {row.unit} ({row.num[half]})"


def _with_error(value: float | None, truth: float | str) -> str:
    return "–" if value is None or isinstance(truth, str) else f"{value:.1f} ({value / truth - 1:+.0%})"


def _p90(values: Sequence[float]) -> float:
    return percentile(values, 0.9)


def _short(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _print_columns(lines: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
