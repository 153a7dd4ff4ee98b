"""What the proof found, as docs/proofs/verdict.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from console.compare_numbers import times_text
from jobs.comparison.efficiency import efficiency_of
from tests.proofs.verdict.corpus import MEASURED, Sample
from tests.proofs.verdict.pairs import BLOCK, NEARBY, Told

REPORT = Path(__file__).parents[3] / "docs" / "proofs" / "verdict.md"
MOST_FALSE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that was found. `power` maps a planted share -> pairs of recorded runs; `beside` are pairs of one seed, the
    other run of which was beside a busy program."""

    demos: Sequence[Sample]
    others: Sequence[Sample]
    identical: dict[str, Sequence[Told]]
    power: dict[float, Sequence[Told]]
    beside: Sequence[tuple[Sample, Sample, Told, Told]]

    @property
    def is_kept(self) -> bool:
        """Whether few enough identical pairs are told apart, and no busy node is taken for a slow run."""
        few = all(_share(pairs, "is_claimed") <= MOST_FALSE for pairs in self.identical.values())
        return few and not any(told.is_speed_claimed for _one, _other, _before, told in self.beside)


def write(found: Found) -> str:
    """Write the report and return it."""
    text = "\n".join([*_head(found), *_identical(found), *_power(found), *_beside(found), ""])
    REPORT.write_text(text)
    return text


def _share(pairs: Sequence[Told], what: str) -> float:
    return sum(bool(getattr(told, what)) for told in pairs) / len(pairs)


def _head(found: Found) -> list[str]:
    steps = sum(sample.num_steps for sample in (*found.demos, *found.others))
    return [
        "# What Compare says of runs that are the same, and of runs that are not",
        "",
        f"Written by `make proof-verdict` from {len(found.demos)} recorded runs of the demo (`tests/data/verdict`; "
        f"{len({one.seed for one in found.demos})} seeds, on two cores, alone or shared with other work) and "
        f"{len(found.others)} "
        "healthy runs of other algorithms, trainers and machines "
        f"(`tests/data/health`): {steps:,} steps, each measured. `make proof-verdict RECORD=1` runs the demos again.",
        "",
        "A pair is made by resampling: each series keeps its trend, and what is left of it is drawn anew in blocks of "
        f"{BLOCK} consecutive steps from at most {NEARBY} steps away (`tests/proofs/verdict/pairs.py` names sources). "
        "Each pair is judged by the very functions that the page and the API call.",
    ]


def _identical(found: Found) -> list[str]:
    rows = [
        f"| {label} | {len(pairs)} | {_percent(_share(pairs, 'is_claimed'))} | "
        f"{_percent(_share(pairs, 'is_speed_claimed'))} | {_percent(_share(pairs, 'is_outcome_claimed'))} | "
        f"{_percent(1 - sum(told.verdict.is_speed_comparable for told in pairs) / len(pairs))} | "
        f"{_percent(_share(pairs, 'is_speed_apart'))} |"
        for label, pairs in found.identical.items()
    ]
    return [
        "",
        "## Pairs between which nothing differs",
        "",
        f"Asked: better or worse is said of at most {_percent(MOST_FALSE)} of them.",
        "",
        "| pairs | number | better or worse | a step time that differs | an outcome that differs | not comparable | "
        "step time, if conditions were not minded |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "*Two seeds* are real pairs first, every one of them, and then resampled ones. What other programs took of the "
        "node is part of each demo's record, so that pairs on which it differed are called not comparable. On a quiet "
        "node the median step times of seeds differed by 3.8 % (standard deviation) though each was measured to 1 %: "
        "where processes and memory lie is not seen in the steps of one run. Intervals of single runs cover that: by "
        f"what the first {MEASURED} seeds differed by, which later ones test, or by repeats in the project, which the "
        "last row tests: two seeds are judged by what all the others differed by.",
    ]


def _power(found: Found) -> list[str]:
    rows = [
        f"| {_percent(share)} | {len(pairs)} | {_percent(_share(pairs, 'is_speed_claimed'))} |"
        for share, pairs in found.power.items()
    ]
    return [
        "",
        "## Differences that were planted",
        "",
        "All times of one run of a pair made shorter by this share; pairs are of one run resampled, of all recorded "
        "runs in turn. Half were recorded on a machine shared with other work, whose steps vary by 10 to 70 %. Without "
        "repeats a difference of less than 12 % is not called one of two single runs: seeds of each say more.",
        "",
        "| steps shorter by | pairs | found |",
        "|---|---|---|",
        *rows,
    ]


def _beside(found: Found) -> list[str]:
    lines = [
        "",
        "## The same demo on a busy node",
        "",
        "Each row is one and the same spec and seed, twice: *beside-1* had one program beside it that only used the "
        "CPU, *shared* all the work of a busy machine. Both learned the same, to the last "
        "digit. What others took is what they used while less than 15 % of the CPU cores was idle.",
        "",
        "| runs | others took | median step | tokens per CPU second | said without conditions | said |",
        "|---|---|---|---|---|---|",
    ]
    for quiet, busy, before, told in found.beside:
        loads = [sample.conditions.load for sample in (quiet, busy)]
        taken = " → ".join(_percent(load.taken) if load else "?" for load in loads)
        times = before.verdict.times
        medians = f"{times[1].value:.2f} → {times[0].value:.2f} s" if times else "?"
        rates = [efficiency_of(sample.columns, sample.conditions) for sample in (quiet, busy)]
        paces = " → ".join(f"{rate.value:,.0f} ({rate.low:,.0f}–{rate.high:,.0f})" if rate else "?" for rate in rates)
        names = f"{quiet.name} → {busy.name}"
        lines.append(f"| {names} | {taken} | {medians} | {paces} | {_said(before)} | {_said(told)} |")
    return lines


def _said(told: Told) -> str:
    speed = told.verdict.speed
    if not told.verdict.is_speed_comparable:
        return "not comparable: " + ", ".join(one.kind for one in told.verdict.conditions)
    if speed is None or not speed.excludes(1):
        return "no difference shown"
    return f"{times_text(speed.value)}× slower" if speed.value > 1 else f"{times_text(1 / speed.value)}× faster"


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %".replace(".0 %", " %")
