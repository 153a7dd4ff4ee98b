"""What the runs of a part say: the rows of the table, the gates, and the same as JSON."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.engine.comparison import (
    MOST_REPORTING,
    Gate,
    SideRun,
    differences,
    not_quiet,
    ratios,
    reward_difference,
)
from tests.bench.engine.workloads import Workload
from tests.bench.stage import Result

COMMAND = "make bench-engine"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """All runs of a part: the alternated sides by name, a run for each round, and TRL's settings that were tried first.

    `baseline` is the name of TRL's side among them, `ours` that of the built-in trainer; `tried` has a setting's run,
    or the sentence that says why it did not run.
    """

    workload: Workload
    baseline: str
    ours: str
    runs: Mapping[str, Sequence[SideRun]]
    tried: Mapping[str, SideRun | str]

    @property
    def ratios(self) -> list[float]:
        """Times TRL's samples per second, for each round."""
        return ratios(self.runs[self.baseline], self.runs[self.ours])

    @property
    def differences(self) -> list[str]:
        """In which ways the two sides did not do the same work."""
        theirs, mine = self.runs[self.baseline], self.runs[self.ours]
        wrong = [
            f"round {number}: {sentence}"
            for number, pair in enumerate(zip(theirs, mine, strict=True), start=1)
            for sentence in differences(*pair)
        ]
        apart = reward_difference(theirs, mine)
        return [
            f"{self.workload.id}, {sentence}" for sentence in (*wrong, *([f"all rounds: {apart}"] if apart else ()))
        ]

    @property
    def disturbances(self) -> list[str]:
        """The runs that met too much other work."""
        return [
            f"{self.workload.id}, round {number}: {sentence}"
            for runs in self.runs.values()
            for number, run in enumerate(runs, start=1)
            if (sentence := not_quiet(run))
        ]

    @property
    def gate(self) -> Gate:
        """The promised ratio; its median over the rounds has to reach it."""
        what = f"{self.workload.id}: samples/s, times TRL's ({self.baseline.removeprefix('TRL, ')})"
        return Gate(what=what, asked=self.workload.asked, measured=statistics.median(self.ratios))

    @property
    def reporting_gate(self) -> Gate:
        """What reporting may cost; the median over all steps has to stay below."""
        told = [fraction for run in self.runs[self.ours] for fraction in run.reporting]
        what = f"{self.workload.id}: fraction of a step that goes into reporting"
        return Gate(what=what, asked=MOST_REPORTING, measured=statistics.median(told), is_most=True)


def row(what: str, values: Iterable[float], unit: str) -> Result:
    """Return a row of the table."""
    numbers = list(values)
    spread = (min(numbers), max(numbers))
    return Result(what=what, median=statistics.median(numbers), spread=spread, unit=unit, command=COMMAND)


def rows_of(part: PartResult) -> list[Result]:
    """Return the rows of a part: the ratio, each side, the settings of TRL that were slower."""
    name = part.workload.id
    cpu = [
        theirs.cpu_per_step / mine.cpu_per_step
        for theirs, mine in zip(part.runs[part.baseline], part.runs[part.ours], strict=True)
    ]
    rows = [
        row(f"{name}: samples/s, times TRL's", part.ratios, "×"),
        row(f"{name}: samples per CPU second, times TRL's", cpu, "×"),
    ]
    for side, runs in part.runs.items():
        if side not in (part.baseline, part.ours):
            values = ratios(part.runs[part.baseline], runs)
            rows.append(row(f"{name}: {side}: samples/s, times TRL's", values, "×"))
    for side, runs in part.runs.items():
        rows += _side_rows(f"{name}: {side}", runs)
    for setting, tried in part.tried.items():
        if isinstance(tried, SideRun):
            rows.append(row(f"{name}: TRL, {setting}, one short run: step", tried.seconds, "s"))
    return rows


def _side_rows(name: str, runs: Sequence[SideRun]) -> list[Result]:
    steps = [second for run in runs for second in run.seconds]
    rewards = [run.mean_reward for run in runs if run.mean_reward is not None]
    losses = [step.loss for run in runs for step in run.counted if step.loss is not None]
    rows = [
        row(f"{name}: step", steps, "s"),
        row(f"{name}: samples", [run.samples_per_second for run in runs], "samples/s"),
        row(f"{name}: tokens", [run.tokens_per_second for run in runs], "tok/s"),
        row(f"{name}: tokens of a sequence", [run.mean_length for run in runs], "tok"),
        *([row(f"{name}: reward", rewards, "")] if rewards else []),
        *([row(f"{name}: loss", losses, "nats")] if losses else []),
        row(f"{name}: CPU of all processes", [run.cpu_per_step for run in runs], "s/step"),
        row(f"{name}: CPU time not used", [100 * run.idle_fraction for run in runs], "%"),
        row(f"{name}: CPU time taken by other work", [100 * run.others_fraction for run in runs], "%"),
        row(f"{name}: resident memory, all processes added", [run.memory_bytes / _MIB for run in runs], "MiB"),
        row(f"{name}: memory, shared pages once", [run.shared_once_bytes / _MIB for run in runs], "MiB"),
        row(f"{name}: start to training", [run.ready_seconds for run in runs], "s"),
    ]
    for phase in runs[0].phases:
        rows.append(row(f"{name}: phase {phase}", [s for run in runs for s in run.phases.get(phase, ())], "s"))
    if told := [100 * fraction for run in runs for fraction in run.reporting]:
        rows.append(row(f"{name}: of it reporting events, samples, phases", told, "% of step"))
    for role in runs[0].waiting:
        rows.append(row(f"{name}: {role} waits", [100 * run.waiting.get(role, 0.0) for run in runs], "% of step"))
    return rows


def notes_of(part: PartResult) -> list[str]:
    """Return what the table has no number for: settings that did not run, the rewards of each step on both sides."""
    notes = [
        f"{part.workload.id}: TRL with {setting} does not run here: {why}"
        for setting, why in part.tried.items()
        if isinstance(why, str)
    ]
    for side in (part.ours, part.baseline):
        curve = curve_of(part.runs[side])
        if curve:
            what = "rewards" if part.workload.algorithm == "grpo" else "losses"
            numbers = " ".join(f"{value:.3f}" for value in curve)
            notes.append(f"{part.workload.id}: {what} of each step, {side}: {numbers}")
    return notes


def curve_of(runs: Sequence[SideRun]) -> list[float]:
    """Return the reward, else the loss, of each step, averaged over the rounds."""
    by_step: dict[int, list[float]] = {}
    for step in (step for run in runs for step in run.steps):
        value = step.reward if step.reward is not None else step.loss
        if value is not None:
            by_step.setdefault(step.step, []).append(value)
    return [statistics.fmean(by_step[step]) for step in sorted(by_step)]


def to_json(part: PartResult) -> dict[str, Any]:
    """Return a part with all its runs as plain values."""
    return {
        "id": part.workload.id,
        "title": part.workload.title,
        "baseline": part.baseline,
        "ours": part.ours,
        "ratios": part.ratios,
        "gates": [{**asdict(gate), "holds": gate.holds} for gate in (part.gate, part.reporting_gate)],
        "differences": part.differences,
        "disturbances": part.disturbances,
        "runs": {side: [_run_json(run) for run in runs] for side, runs in part.runs.items()},
        "tried": {name: _run_json(each) if isinstance(each, SideRun) else each for name, each in part.tried.items()},
    }


def _run_json(run: SideRun) -> dict[str, Any]:
    found = {
        "step_median": run.step_median,
        "samples_per_second": run.samples_per_second,
        "tokens_per_second": run.tokens_per_second,
        "idle_fraction": run.idle_fraction,
        "others_fraction": run.others_fraction,
    }
    return {**asdict(run), **found}
