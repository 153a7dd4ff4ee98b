"""The corpus of diagnosis in numbers: every rule on healthy recordings of many kinds, and on planted faults.

`python -m tests.proofs.diagnosis corpus` writes it into docs/proofs/diagnosis.md. No service is needed.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiling.diagnosis.finding import Finding, rules
from tests.profiling.corpus.corpus import HEALTHY, PLANTED
from tests.profiling.corpus.evidence import Bench, fires, found
from tests.profiling.corpus.public_recordings import HEALTHY_FILES, public

HEADING = "## A corpus of recordings and runs"
SEEDS = 10
MOST_FALSE, LEAST_NAMED = 0.02, 0.90


@dataclass
class Counts:
    """How often each rule said what: on how many healthy ones it had enough data, and which of the faults it named."""

    healthy: int = 0
    of_public: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)  # rules with enough data, what fires
    looked: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    watch: Counter[str] = field(default_factory=Counter)
    several: int = 0
    planted: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)

    def add_healthy(self, findings: Sequence[Finding]) -> None:
        """Count what all rules say of one healthy recording or run."""
        firing = [one for one in findings if one.state == "fires"]
        self.healthy += 1
        self.several += len(firing) > 1
        self.looked.update(one.key for one in findings if one.state != "not_enough_data")
        self.bad.update(one.key for one in firing if one.level == "bad")
        self.watch.update(one.key for one in firing if one.level == "watch")

    @property
    def false_share(self) -> float:
        """Share of the findings on what is healthy that fire."""
        return (self.bad.total() + self.watch.total()) / max(1, self.looked.total())

    @property
    def named_share(self) -> float:
        """Share of the planted faults that are named."""
        return self.named.total() / max(1, self.planted.total())

    @property
    def is_right(self) -> bool:
        """True where the gates hold."""
        is_quiet = not self.bad and not self.several and self.false_share <= MOST_FALSE
        return is_quiet and self.named_share >= LEAST_NAMED


def count(seeds: int = SEEDS) -> Counts:
    """Judge the corpus with so many seeds for each kind and fault."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for kind, make in HEALTHY.items():
            for seed in range(seeds):
                findings = found(make(random.Random(f"{kind} {seed}"), bench))
                bench.close()
                counts.add_healthy(findings)
        for name in HEALTHY_FILES:
            findings = found(public(name, bench))
            bench.close()
            counts.add_healthy(findings)
            looked = sum(one.state != "not_enough_data" for one in findings)
            counts.of_public[name] = looked, fires(findings)
        for key, makes in PLANTED.items():
            for variant, make in enumerate(makes):
                for seed in range(seeds):
                    findings = found(make(random.Random(f"{key} {variant} {seed}"), bench))
                    bench.close()
                    counts.planted[key] += 1
                    counts.named[key] += any(one.key == key and one.state == "fires" for one in findings)
    return counts


def section(counts: Counts) -> str:
    """Return it as a part of the report."""
    kinds = "; ".join(HEALTHY)
    lines = [
        HEADING,
        "",
        f"`python -m tests.proofs.diagnosis corpus`: {counts.healthy} healthy recordings and runs, {SEEDS} seeds of "
        f"each of {len(HEALTHY)} kinds ({kinds}) and {len(counts.of_public)} real ones.",
        "Those of kinds are made by a program whose launches, streams and waits obey physics "
        "(`tests/profiling/corpus/`), imported and judged by all rules.",
        f"Then faults planted into such programs and runs, {SEEDS} seeds of each variant. One seed of each is in "
        "`make test` (`tests/profiling/diagnosis/test_corpus.py`).",
        "",
        f"Findings on what is healthy: {counts.looked.total():,}, of which {counts.bad.total()} *bad* and "
        f"{counts.watch.total()} *watch*: {100 * counts.false_share:.2f} % (gate: {100 * MOST_FALSE:.0f} %, "
        f"none *bad*, never two). Planted faults: {counts.planted.total()}, of which {counts.named.total()} named: "
        f"{100 * counts.named_share:.1f} % (gate: {100 * LEAST_NAMED:.0f} %).",
        "",
        "| rule | healthy, with enough data | of these *bad* | *watch* | planted | named |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for key in rules():
        lines.append(
            f"| {key} | {counts.looked[key]} | {counts.bad[key]} | {counts.watch[key]} "
            f"| {counts.planted[key]} | {counts.named[key]} |"
        )
    lines += [
        "",
        "Real recordings that are healthy (`tests/profiling/corpus/public_recordings.py`), counted above:",
        "",
        "| recording | why it counts as healthy | rules with enough data | fires |",
        "|---|---|---:|---|",
    ]
    for name, (looked, firing) in counts.of_public.items():
        said = ", ".join(f"{key} ({level})" for key, level in firing.items()) or "-"
        lines.append(f"| {Path(name).name} | {HEALTHY_FILES[name]} | {looked} | {said} |")
    return "\n".join([*lines, ""])


def with_section(report: str, made: str) -> str:
    """Return a report with this section in place of the one it has, at its end."""
    return report.partition(HEADING)[0].rstrip() + "\n\n" + made
