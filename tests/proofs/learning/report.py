"""The page of the proof and its picture, of all results that are there."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.catalog.algorithm import algorithms
from tests.curves import Line, Panel, picture
from tests.proofs.learning.budgets import (
    ACCURACY,
    LABELS,
    LOSS,
    NUM_HELD_OUT,
    PAIRS,
    SEEDS,
    Budget,
    Trial,
    budget_of,
    learned_algorithms,
)
from tests.proofs.learning.criterion import NUM_SEEDS, Target, Verdict, judge
from tests.proofs.learning.runs import result_of
from tests.ray_head import HOUSE

REPORT = HOUSE / "docs" / "proofs" / "learning.md"
PICTURE = REPORT.with_suffix(".svg")
CALLED: Mapping[str, str] = {
    ACCURACY: "accuracy",
    PAIRS: "pairs in order",
    LABELS: "labels right",
    LOSS: "loss on held-out answers",
    "eval/accuracy": "accuracy",
}
LEARNS, RESTS = "learns", "learning rate 0"


def results(algorithm: str, *, learns: bool) -> list[dict[str, Any]]:
    """Return what was measured of an algorithm, a result for each seed that has run."""
    found = (result_of(Trial(algorithm=algorithm, seed=seed, learns=learns)) for seed in SEEDS)
    return [one for one in found if one is not None]


def verdict(target: Target, found: Sequence[Mapping[str, Any]]) -> Verdict:
    """Return what the results, one at least, say of a target."""
    pairs = [one["measures"][target.measure] for one in found]
    values = [after - before if target.is_rise else after for before, after in pairs]
    return judge(values, target)


def shortcomings() -> list[str]:
    """Return a sentence for all that is not shown: seeds that are missing, and of algorithms that have them all targets
    that were missed, and those that are reached without learning.
    """
    return [sentence for name in learned_algorithms() for sentence in _shortcomings(name)]


def _shortcomings(name: str) -> list[str]:
    learned, rested = results(name, learns=True), results(name, learns=False)
    if min(len(learned), len(rested)) < NUM_SEEDS:
        return [f"{name} has {len(learned)} of {NUM_SEEDS} seeds, {len(rested)} with a learning rate of 0."]
    said = []
    for target in budget_of(name).targets:
        if not verdict(target, learned).holds:
            said.append(f"{name} misses {target.measure}: {target}.")
        if verdict(target, rested).holds:
            said.append(f"{name} reaches {target.measure} with a learning rate of 0.")
    return said


def write_report() -> str:
    """Write page and picture; return the page."""
    names = [name for name in learned_algorithms() if results(name, learns=True)]
    PICTURE.write_text(picture([_panel(name) for name in names]), encoding="utf-8")
    page = "\n".join(_lines(names)) + "\n"
    REPORT.write_text(page, encoding="utf-8")
    return page


def _panel(name: str) -> Panel:
    budget = budget_of(name)
    lines = [
        Line(name=LEARNS if learns else RESTS, seeds=_by_step(found, budget.curve))
        for learns in (True, False)
        if (found := results(name, learns=learns))
    ]
    bounds = (0.0,) if budget.curve == LOSS else (0.0, 1.0)
    return Panel(title=algorithms()[name].label, lines=lines, bounds=bounds)


def _by_step(found: Sequence[Mapping[str, Any]], metric: str) -> dict[int, list[float]]:
    curves = [one["curves"][metric] for one in found]
    return {int(step): [curve[step] for curve in curves] for step in curves[0]}


def _lines(names: Sequence[str]) -> list[str]:
    every = [one for name in names for learns in (True, False) for one in results(name, learns=learns)]
    revisions = sorted({one["revision"] for one in every})
    wrong = shortcomings()
    lines = [
        "# Does it learn",
        "",
        "Written by `make proof-learning`: every algorithm of the built-in trainer, on the bundled word problems, from "
        "the bundled model (657,024 parameters), with two ranks in the layout *colocated* on CPU. "
        f"{len(every)} runs, {sum(one['seconds'] for one in every) / 60:.0f} minutes together on {os.cpu_count()} "
        f"cores of {_cpu()}, shared with other work. Code of {', '.join(revisions)}.",
        "",
        f"**Accuracy** is the share of {NUM_HELD_OUT} held-out problems to which the model's likeliest answer is "
        "right, found by Transformers on the folder `model/final`, outside of the trainer. **Pairs in order**: of "
        f"{NUM_HELD_OUT} held-out pairs, how often the right solution is worth more than the wrong one, by the "
        "trainer's own evaluation. **Labels right**: of the responses of these pairs, of how many the reward lies on "
        "the side of the reference point that the label says. The teacher of both distillations is a "
        "model of 30 steps of GRPO.",
        "",
        "What is asked was said before the runs (`tests/proofs/learning/budgets.py`), on seeds that none of them has, "
        "but for the reward model (below). "
        f"{NUM_SEEDS} seeds each; the lower end of the 95 % interval of their mean (Student's t) lies above the first "
        "number, every single seed above the second. The same runs with a learning rate of 0 have to miss it.",
        "",
        "| algorithm | budget | measured | before | after | asked | mean of the seeds, interval | least | rate 0 | "
        "seeds, with rate 0 | |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        lines += [_row(name, budget_of(name), target) for target in budget_of(name).targets]
    lines += [
        "",
        f"![Curves of each algorithm: mean and range over seeds]({PICTURE.name})",
        "",
        "Lines are means over seeds, bands reach from the least to the most. "
        + " ".join(f"{CALLED[curve].capitalize()}: {', '.join(of)}." for curve, of in _by_curve(names).items()),
        "",
        *(line for note in dict.fromkeys(budget_of(name).note for name in names) if note for line in (note, "")),
        *(["**Not shown yet:** " + " ".join(wrong)] if wrong else []),
    ]
    return lines if wrong else lines[:-1]


def _by_curve(names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(budget_of(name).curve, []).append(algorithms()[name].label)
    return found


def _row(name: str, budget: Budget, target: Target) -> str:
    learned, rested = results(name, learns=True), results(name, learns=False)
    before, after = (sum(one["measures"][target.measure][end] for one in learned) / len(learned) for end in (0, 1))
    found, idle = verdict(target, learned), verdict(target, rested) if rested else None
    kind = "rise" if target.is_rise else "after"
    learns = len(learned) == NUM_SEEDS and found.holds
    shown = "shown" if len(rested) == NUM_SEEDS else "learns; rate 0 is not run with all seeds yet"
    is_shown = learns and (idle is None or not idle.holds)
    cells = [
        algorithms()[name].label,
        budget.text,
        CALLED[target.measure],
        f"{before:.3f}",
        f"{after:.3f}",
        f"{kind} > {target.mean:g}, {target.each:g}",
        f"{found.mean:.3f}" + (f" ({found.low:.3f} to {found.high:.3f})" if found.num_seeds > 1 else ""),
        f"{found.least:.3f}",
        "–" if idle is None else f"{idle.mean:.3f}: {'**holds**' if idle.holds else 'missed'}",
        f"{len(learned)}, {len(rested)}",
        shown if is_shown else "**not shown**",
    ]
    return "| " + " | ".join(cells) + " |"


def _cpu() -> str:
    said = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    names = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Model name")]
    return names[0] if names else platform.machine()
