"""`make bench-engine`: the built-in trainer against TRL, both on the same work on this machine, with gates.

Sides take turns: built-in, TRL, TRL, built-in and so on, so that a slow minute meets both. TRL runs in the fastest of
its settings that runs here, which one short run of each finds out first. docs/performance.md says what is compared
and why that is fair. All numbers go to build/bench/engine.json.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.engine.builtin_side import BuiltIn, code_of, run_builtin
from tests.bench.engine.comparison import SideRun, fastest, not_quiet, off_policy
from tests.bench.engine.report import PartResult, notes_of, rows_of, to_json
from tests.bench.engine.side import SideFailed
from tests.bench.engine.trl_side import run_trl
from tests.bench.engine.workloads import WORKLOADS, Prepared, TrlSetting, Workload
from tests.bench.stage import ROOT, print_table
from tests.journeys.environments import make_environment

FOLDER = ROOT / "build" / "bench" / "engine"
RESULT = ROOT / "build" / "bench" / "engine.json"
TRIED_STEPS = 4
Side = Callable[[Path, int], SideRun]
"""Runs in a folder of its own, in the round of that number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much is run, and which variants of the built-in trainer stand beside it."""

    rounds: int
    num_steps: int
    patience: int
    setting: str
    variants: Sequence[BuiltIn]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts, print the table, and end with exit code 1 if a gate was missed or the work was not the same."""
    given = parser().parse_args(arguments)
    chosen = chosen_workloads(given.only)
    revisions = [BuiltIn(name=f"built-in of {name}", code=code_of(name, FOLDER / "code")) for name in given.revision]
    variants = [*revisions, *(variant_of(text) for text in given.variant)]
    options = Options(
        rounds=given.rounds,
        num_steps=given.steps,
        patience=given.patience,
        setting=given.setting,
        variants=variants,
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER / "runs", ignore_errors=True)
    python = make_environment("trl")
    machine = {"start": time.strftime("%F %T %Z"), "load": os.getloadavg(), "cores": os.cpu_count(), **_machine()}
    parts = []
    for workload in chosen:
        parts.append(run_part(python, workload, options))
        result = {"machine": machine, "parts": [to_json(part) for part in parts]}
        RESULT.write_text(json.dumps(result, indent=1))
    print_table([each for part in parts for each in rows_of(part)])
    if not tell(parts):
        sys.exit(1)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog=f"{Path(sys.executable).name} -m tests.bench.engine")
    parser.add_argument("--only", default="", help=f"parts, separated by commas: {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each side")
    parser.add_argument("--steps", type=int, default=0, help="steps of each run; 0 for those of the part")
    parser.add_argument("--patience", type=int, default=2, help="how often a run that met other work is made again")
    parser.add_argument("--setting", default="", help="the setting of TRL, instead of the fastest")
    parser.add_argument(
        "--revision", action="append", default=[], help="also the built-in trainer of a revision (may be repeated)"
    )
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME:KNOB=VALUE,...",
        help="also the built-in trainer with other knobs (may be repeated)",
    )
    return parser


def chosen_workloads(only: str) -> list[Workload]:
    """Return the parts that are asked for; all for "". Raises: SystemExit naming the parts there are."""
    names = [name for name in only.split(",") if name] or list(WORKLOADS)
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        sys.exit(f"There is no part {unknown[0]!r}. There are: {', '.join(WORKLOADS)}.")
    return [WORKLOADS[name] for name in names]


def variant_of(text: str) -> BuiltIn:
    """Return the variant that `NAME:KNOB=VALUE,...` says; values are JSON where they can be. Raises: SystemExit."""
    name, _, knobs = text.partition(":")
    pairs = [pair.partition("=") for pair in knobs.split(",")]
    if not name or not all(knob and equals for knob, equals, _ in pairs):
        sys.exit(f"{text!r} is no variant. Write NAME:KNOB=VALUE, further ones behind commas.")
    return BuiltIn(name=f"built-in, {name}", knobs={knob: _value(value) for knob, _, value in pairs})


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def run_part(python: str, workload: Workload, options: Options) -> PartResult:
    """Find TRL's fastest setting, then alternate. Raises: SystemExit if a side does not run."""
    print(f"=== {workload.title}", flush=True)
    num_steps = options.num_steps or workload.num_steps
    folder = FOLDER / "runs" / workload.id
    rounds = [workload.prepare(FOLDER, max(num_steps, TRIED_STEPS), seed) for seed in range(options.rounds)]
    tried = try_settings(python, workload, rounds[0], folder, options)
    names = {name: run for name, run in tried.items() if isinstance(run, SideRun)}
    if not names and not options.setting:
        raise SystemExit(f"TRL runs in none of its settings here: {tried}")
    best = options.setting or fastest(names)
    setting = next(each for each in workload.settings if each.name == best)

    def run_ours(variant: BuiltIn) -> Side:
        def run(target: Path, number: int) -> SideRun:
            knobs = {**rounds[number].spec["knobs"], "train.num_steps": num_steps}
            return run_builtin(variant, workload, {**rounds[number].spec, "knobs": knobs}, target)

        return run

    def run_theirs(target: Path, number: int) -> SideRun:
        return run_trl(python, workload, setting, rounds[number], target, num_steps=num_steps)

    ours, baseline = BuiltIn(), f"TRL, {setting.name}"
    sides = {variant.name: run_ours(variant) for variant in (ours, *options.variants)} | {baseline: run_theirs}
    runs = alternate(sides, folder, rounds=options.rounds, patience=options.patience)
    return PartResult(workload=workload, baseline=baseline, ours=ours.name, runs=runs, tried=tried)


def try_settings(
    python: str, workload: Workload, prepared: Prepared, folder: Path, options: Options
) -> dict[str, SideRun | str]:
    """Return one short run of each of TRL's settings, or why it does not run; none if the setting is given.

    Raises: SystemExit naming the settings there are.
    """
    wanted, names = options.setting, [each.name for each in workload.settings]
    if wanted and wanted not in names:
        sys.exit(f"{workload.id} has no setting {wanted!r} of TRL. There are: {', '.join(names)}.")
    tried: dict[str, SideRun | str] = {}
    for setting in () if wanted else workload.settings:

        def run(target: Path, number: int, setting: TrlSetting = setting) -> SideRun:
            return run_trl(python, workload, setting, prepared, target, num_steps=TRIED_STEPS)

        try:
            found = quietest(run, folder / f"try {setting.name}", 0, patience=options.patience)
            tried[setting.name] = off_policy(found) or found
        except SideFailed as failure:
            print(f"TRL, {setting.name}: does not run here: {failure.last_line}", flush=True)
            tried[setting.name] = failure.last_line
    return tried


def alternate(sides: Mapping[str, Side], folder: Path, *, rounds: int, patience: int) -> dict[str, list[SideRun]]:
    """Run all sides in each round, in every other round in the reverse order. Raises: SystemExit if one fails."""
    runs: dict[str, list[SideRun]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in names:
            target = folder / f"{number + 1} {name.replace('/', '_')}"
            try:
                runs[name].append(quietest(sides[name], target, number, patience=patience))
            except SideFailed as failure:
                raise SystemExit(f"{name} did not get to the end:\n{failure}") from failure
    return runs


def quietest(side: Side, folder: Path, number: int, *, patience: int) -> SideRun:
    """Return a run that other work did not disturb; after `patience` more tries the one that it disturbed least.

    Raises: SideFailed.
    """
    runs: list[SideRun] = []
    for again in range(1 + patience):
        runs.append(side(folder / str(again + 1), number))
        _tell_run(runs[-1])
        if not not_quiet(runs[-1]):
            break
    return min(runs, key=lambda run: run.others_fraction)


def _tell_run(run: SideRun) -> None:
    print(
        f"{run.side}: {run.step_median:.3g} s a step, {run.samples_per_second:.3g} samples/s, "
        f"{run.mean_length:.1f} tokens a sequence, other work took {run.others_fraction:.0%}",
        flush=True,
    )


def tell(parts: Sequence[PartResult]) -> bool:
    """Print notes and gates; return whether all gates hold, on the same work, on a quiet machine."""
    print()
    for note in (note for part in parts for note in notes_of(part)):
        print(note, flush=True)
    wrong = [sentence for part in parts for sentence in part.differences]
    for sentence in wrong:
        print(f"Not the same work: {sentence}", flush=True)
    disturbed = [sentence for part in parts for sentence in part.disturbances]
    for sentence in disturbed:
        print(f"Not a quiet machine: {sentence}", flush=True)
    gates = [gate for part in parts for gate in (part.gate, part.reporting_gate)]
    for gate in gates:
        print(gate, flush=True)
    return not wrong and not disturbed and all(gate.holds for gate in gates)


def _machine() -> dict[str, str]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {"cpu": name, "python": platform.python_version()}


if __name__ == "__main__":
    main()
