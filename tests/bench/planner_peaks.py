"""The engine's peak memory on this machine's CPU against the plan: `python -m tests.bench.planner_peaks [WORD]`.

Two ranks train the bundled model and two that are made on the spot; ranks that are alone train adapters, critics and
students. A line per role and phase of each case. WORD chooses the cases that have it in their name. The exit code is 1
if one is further from the plan than 15 %. About ten minutes on two quiet cores.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jobs.catalog.spec.parse import parse_spec
from tests.bench.stage import ROOT
from tests.jobs.engine.lone_rank import measure
from tests.jobs.engine.peak_cases import GOAL, LONE, LONG, Case, PeakRow, compare, write_cases
from tests.ray_head import running_head

_MIB = 1 << 20


def main() -> None:
    """Measure the cases and print them."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    pairs, lone = ([case for case in cases if word in case.name] for cases in (LONG, LONE))
    if not pairs and not lone:
        names = ", ".join(case.name for case in (*LONG, *LONE))
        sys.exit(f"No case has {word!r} in its name. There are: {names}.")
    with tempfile.TemporaryDirectory(prefix="pw-peaks-") as name:
        found = [*_of_pairs(pairs, Path(name) / "pairs"), *_of_lone(lone, Path(name) / "lone")]
    print_found(found)
    if missed := [each.case for each in found if abs(each.error) > GOAL]:
        sys.exit(f"Missed: {', '.join(missed)}")


def _of_pairs(cases: Sequence[Case], folder: Path) -> list[PeakRow]:
    """Measure cases of two ranks, on Ray."""
    if not cases:
        return []
    write_cases(cases, folder)
    with running_head(is_warm=False) as head:  # where what a process holds is measured, it starts cold
        env = os.environ | head.environment | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-m", "tests.jobs.engine.peaks", str(folder)]
        subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    return compare(folder)


def _of_lone(cases: Sequence[Case], folder: Path) -> list[PeakRow]:
    """Measure cases of ranks that are alone."""
    if not cases:
        return []
    write_cases(cases, folder)
    for case in cases:
        measure(folder, case.name, parse_spec(case.spec(folder)))
    return compare(folder)


def print_found(found: Sequence[PeakRow]) -> None:
    """Print a line a phase, then the figures."""
    print(f"{'case':<52} {'role':<10} {'phase':<13} {'planned':>9} {'measured':>9} {'error':>7}")
    for each in found:
        sizes = f"{each.planned / _MIB:>5.0f} MiB {each.measured / _MIB:>5.0f} MiB"
        print(f"{each.case:<52} {each.role:<10} {each.phase:<13} {sizes} {each.error:>+7.1%}")
    errors = [abs(each.error) for each in found]
    inside = sum(error <= GOAL for error in errors)
    print(f"\npeak memory on the CPU: {inside} of {len(found)} within {GOAL:.0%}; ", end="")
    print(f"median {statistics.median(errors):.1%}, most {max(errors):.1%}")


if __name__ == "__main__":
    main()
