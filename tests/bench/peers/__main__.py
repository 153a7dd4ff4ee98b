"""`make bench-peers`: SFT, DPO and GRPO with the built-in trainer and with TRL, five seeds each, curve by curve.

Arguments: parts, separated by commas; nothing for all. What a run measured stays in build/bench/peers/. Prints a table,
draws docs/images/peers.svg of all runs that are there, and ends with exit code 1 unless both sides agree in everything.
"""

import contextlib
import statistics
import sys
from collections.abc import Sequence

from jobs.catalog.metric import metric
from tests.bench.peers.agreement import LEAST_OVERLAP, MOST_APART, Agreement, agreement
from tests.bench.peers.parts import PARTS, SEEDS, Part
from tests.bench.peers.runs import ACCURACY, Curves, kept, run_builtin, run_trl
from tests.bench.stage import ROOT
from tests.curves import Line, Panel, picture
from tests.journeys.environments import make_environment
from tests.ray_head import RayHead, running_head

PICTURE = ROOT / "docs" / "images" / "peers.svg"
SIDES = {"builtin": "built-in trainer", "trl": "TRL"}


def main(arguments: Sequence[str]) -> None:
    """Run what is missing, a seed of all parts before the next one; then say how far both sides are apart."""
    names = [name for argument in arguments for name in argument.split(",") if name] or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        sys.exit(f"There is no part {unknown[0]!r}. There are: {', '.join(PARTS)}.")
    parts = [PARTS[name] for name in names]
    with contextlib.ExitStack() as stack:
        head: RayHead | None = None
        for seed in SEEDS:
            for part in parts:
                if kept(part, "builtin", seed) is None:
                    head = head or stack.enter_context(running_head())
                    _tell(part, "builtin", seed, run_builtin(part, seed, head))
                if kept(part, "trl", seed) is None:
                    _tell(part, "trl", seed, run_trl(part, seed, make_environment("trl")))
    whole = [part for part in PARTS.values() if len(seeds_of(part)) > 1]
    PICTURE.write_text(picture([panel for part in whole for panel in panels_of(part)], columns=4), encoding="utf-8")
    apart = [sentence for part in whole for sentence in table_of(part)]
    apart += [f"{part.id} has {len(seeds_of(part))} seeds." for part in PARTS.values() if seeds_of(part) != SEEDS]
    if apart:
        sys.exit("\n".join(apart))


def seeds_of(part: Part) -> tuple[int, ...]:
    """Return the seeds that both sides have run."""
    return tuple(seed for seed in SEEDS if all(kept(part, side, seed) is not None for side in SIDES))


def curves_of(part: Part, side: str) -> dict[str, list[list[float]]]:
    """Return by metric a curve for each seed that both sides have run."""
    found = [kept(part, side, seed) or {} for seed in seeds_of(part)]
    return {name: [curves[name] for curves in found] for name in (*part.metrics, ACCURACY)}


def table_of(part: Part) -> list[str]:
    """Print a row for each metric; return a sentence for each in which the sides do not agree."""
    ours, theirs = (curves_of(part, side) for side in SIDES)
    print(f"\n{part.label}, {len(seeds_of(part))} seeds, {part.num_steps} steps")
    print("| | built-in, end | TRL, end | apart | spread of seeds | steps whose ranges meet | largest of one seed |")
    print("|---|---|---|---|---|---|---|")
    wrong = []
    for name in ours:
        found = agreement(ours[name], theirs[name])
        print(_row(name, ours[name], theirs[name], found))
        if not found.holds:
            asked = f"at most {MOST_APART:g} times the spread, {LEAST_OVERLAP:.0%} of the steps"
            wrong.append(f"{part.id}: the two do not agree in {name} ({asked}).")
    return wrong


def _row(name: str, ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], found: Agreement) -> str:
    ends = [statistics.mean(curve[-1] for curve in side) for side in (ours, theirs)]
    cells = [
        f"`{name}`",
        *(f"{end:.4g}" for end in ends),
        f"{found.apart:.2g}",
        f"{found.spread:.2g}",
        f"{found.overlap:.0%}",
        f"{found.seed_gap:.2g}",
    ]
    return f"| {' | '.join(cells)} |"


def panels_of(part: Part) -> list[Panel]:
    """Return a panel for each metric with the curves of both sides."""
    found = {side: curves_of(part, side) for side in SIDES}
    return [
        Panel(
            title=f"{part.label}: {metric(name).label}",
            lines=[_line(side, found[side][name]) for side in SIDES],
            bounds=(0.0,),
        )
        for name in part.metrics
    ]


def _line(side: str, curves: Sequence[Sequence[float]]) -> Line:
    return Line(name=SIDES[side], seeds=dict(enumerate(zip(*curves, strict=True), start=1)))


def _tell(part: Part, side: str, seed: int, curves: Curves) -> None:
    ends = "  ".join(f"{name} {curve[0]:.4f} -> {curve[-1]:.4f}" for name, curve in curves.items())
    print(f"{part.label}, seed {seed}, {SIDES[side]}: {ends}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
