"""`make proof-exactness`: what ranks, ZeRO stages, layouts, packing and precision may not change of what is learned.

Whole runs of the built-in trainer on CPU, three steps each, and before them the tests of ranks in every variant.
Arguments: names of algorithms; nothing for all. What was measured stays in build/proofs/exactness.json, and is not
measured again there; writes docs/proofs/exactness.md.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.catalog.algorithm import algorithms, is_in
from tests.jobs.engine.conftest import EndedRun, Running
from tests.jobs.engine.rank_variants import EVERY_VARIANT
from tests.jobs.engine.student import TEACHER, make_student
from tests.ray_head import HOUSE, RayHead, running_head

REPORT = HOUSE / "docs" / "proofs" / "exactness.md"
RESULTS = HOUSE / "build" / "proofs" / "exactness.json"
ENGINE = ("jobs.engine", "--device=cpu")
OF_RANKS = ("test_ranks", "test_adapter_ranks", "test_critic_ranks")
NAMES = ("dpo", "kto", "distill", "distill_on_policy", "ppo")
COMPARED = ("loss/", "pairs/", "labels/", "teacher/", "value/", "kl/reference", "policy/", "reward/mean")
LEFT_OUT = ("accuracy", "overlap", "learning_rate", "skipped_steps")
"""Counts of what is greater jump where two numbers are equal up to rounding, as those of a policy and itself are."""
BOUNDS: Mapping[str, tuple[float, float, float]] = {"float32": (1e-5, 1e-5, 1e-4), "bfloat16": (2e-3, 5e-2, 1e-1)}
"""By precision, what a loss, any other metric and a gradient's norm may be off by (`distances`).

A response's log-probability is a sum over its tokens, so that it adds up what bfloat16 rounds in each; a reference
point is the difference of two such sums.
"""
NUM_STEPS = 3
PACKED: Mapping[str, Any] = {"train.packing": True, "train.dynamic_batch": True, "train.max_tokens_per_gpu": 180}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to run an algorithm, and the name of the one that it must learn the same as; "" for such a one.

    `steps`: how many are compared. Samples of later ones may differ where weights differ by more than rounding.
    """

    name: str
    base: str = "one rank"
    layout: str = "shared"
    ranks: int = 2
    stage: str = "0"
    precision: str = "float32"
    steps: int = NUM_STEPS
    knobs: Mapping[str, Any] = field(default_factory=dict)


GIVEN = (
    Variant(name="one rank", base="", ranks=1),
    Variant(name="one rank, ZeRO-2", ranks=1, stage="2"),
    Variant(name="two ranks"),
    Variant(name="two ranks, ZeRO-1", stage="1"),
    Variant(name="two ranks, ZeRO-2", stage="2"),
    Variant(name="two ranks, ZeRO-3", stage="3"),
    Variant(name="two ranks, ZeRO-2, packed", stage="2", knobs=PACKED),
    Variant(name="colocated, ZeRO-2", layout="colocated", stage="2"),
    Variant(name="split", layout="split", ranks=1),
    Variant(name="split, two ranks, ZeRO-3", layout="split", stage="3"),
    Variant(name="bfloat16, one rank", ranks=1, precision="bfloat16"),
    Variant(name="bfloat16, two ranks, ZeRO-3", stage="3", precision="bfloat16"),
    Variant(name="bfloat16, split", layout="split", ranks=1, precision="bfloat16"),
)
"""Of what learns from given responses."""

DRAWN = (
    Variant(name="one rank", base="", layout="colocated", ranks=1),
    Variant(name="two ranks", layout="colocated"),
    Variant(name="two ranks, ZeRO-2", layout="colocated", stage="2"),
    Variant(name="two ranks, ZeRO-1", layout="colocated", stage="1"),
    Variant(name="two ranks, ZeRO-2, packed", layout="colocated", stage="2", knobs=PACKED),
    Variant(name="shared, vLLM", base="", ranks=1),
    Variant(name="shared, vLLM, two ranks, ZeRO-2", base="shared, vLLM", stage="2"),
    Variant(name="split, vLLM", base="shared, vLLM", layout="split", ranks=1),
    Variant(name="split, vLLM, two ranks, ZeRO-3", base="shared, vLLM", layout="split", stage="3"),
    Variant(name="bfloat16, one rank", base="", layout="colocated", ranks=1, precision="bfloat16"),
    Variant(
        name="bfloat16, two ranks",
        base="bfloat16, one rank",
        layout="colocated",
        stage="2",
        precision="bfloat16",
        steps=1,
    ),
)
"""Of what learns from its own samples, which the ranks draw, or vLLM; the two draw others."""


def variants_of(algorithm: str) -> tuple[Variant, ...]:
    """Return how an algorithm is run."""
    return DRAWN if is_in(algorithm, "rl") else GIVEN


def spec_of(algorithm: str, variant: Variant, student: Path) -> dict[str, Any]:
    """Return the spec of a run."""
    knobs: dict[str, Any] = {
        "train.num_steps": NUM_STEPS,
        "train.micro_batch_size": 4,
        "train.packing": False,
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 0,
        "memory.zero_stage": variant.stage,
        "memory.precision": variant.precision,
        "optimizer.learning_rate": 1e-3,
        "optimizer.warmup_steps": 0,
    }
    if is_in(algorithm, "rl"):
        knobs |= {"rollout.prompts_per_step": 16, "rollout.samples_per_prompt": 1}
    else:
        knobs |= {"train.batch_size": 16}
    if is_in(algorithm, "labeled"):  # responses gain under any prompt then, so that the reference point leaves 0
        knobs |= {"pairs.desirable_weight": 4.0, "pairs.undesirable_weight": 0.1}
    if is_in(algorithm, "critic"):
        knobs |= {"algorithm.critic_warmup_steps": 0, "train.updates_per_rollout": 2}
    spec: dict[str, Any] = {
        "algorithm": algorithm,
        "hardware": {"layout": variant.layout, "policy_ranks": variant.ranks},
        "profile": {"nsys_ready": "off"},
    }
    if is_in(algorithm, "distillation"):
        knobs |= {"models.teacher_path": TEACHER, "algorithm.distillation_top_k": 16}
        spec["model"] = {"kind": "path", "id": str(student)}
    return spec | {"knobs": knobs | dict(variant.knobs)}


def told_by(ended: EndedRun) -> dict[str, dict[str, float]]:
    """Return what a run told of the metrics that are compared, by metric and step."""
    names = {name for event in ended.of("metric") for name in event["values"]}
    kept = (n for n in sorted(names) if n.startswith(COMPARED) and not n.endswith(LEFT_OUT))
    return {name: {str(step): value for step, value in ended.series(name).items()} for name in kept}


def distances(
    found: Mapping[str, Mapping[str, float]], base: Mapping[str, Mapping[str, float]], steps: int
) -> Iterator[tuple[str, float]]:
    """Yield each metric of the base with the largest difference from it in the first steps: as a fraction of itself
    where it is above 1, or is the norm of a gradient. One that is not told is infinitely far.
    """
    for name, values in base.items():
        least = 1e-12 if name.endswith("grad_norm") else 1.0
        told = found.get(name, {})
        pairs = [(told.get(step, float("inf")), value) for step, value in values.items() if 0 < int(step) <= steps]
        if pairs:
            yield name, max(abs(one - other) / max(abs(other), least) for one, other in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How far a variant is from its base: the largest difference of a loss, of another metric, and of a gradient."""

    variant: Variant
    loss: float
    metric: str
    difference: float
    gradient: float

    @property
    def is_exact(self) -> bool:
        """Whether all are within the bounds."""
        found = (self.loss, self.difference, self.gradient)
        return all(one <= most for one, most in zip(found, BOUNDS[self.variant.precision], strict=True))


def rows_of(algorithm: str, measured: Mapping[str, Any]) -> list[Row]:
    """Return the rows of an algorithm's table."""
    rows = []
    for variant in variants_of(algorithm):
        if variant.base:
            far = dict(distances(measured[variant.name], measured[variant.base], variant.steps))
            norms = [far.pop(name) for name in list(far) if name.endswith("grad_norm")]
            losses = [far.pop(name) for name in list(far) if name.startswith("loss/")]
            metric = max(far, key=lambda name: far[name])
            rows.append(
                Row(
                    variant=variant,
                    loss=max(losses),
                    metric=metric,
                    difference=far[metric],
                    gradient=max(norms),
                )
            )
    return rows


def measure(algorithm: str, variant: Variant, head: RayHead, folder: Path, student: Path) -> dict[str, Any]:
    """Return what a run told. Raises: AssertionError with its output if it failed."""
    name = variant.name.replace(", ", "-").replace(" ", "-")
    spec = spec_of(algorithm, variant, student)
    ended = Running(folder / f"{algorithm}-{name}", spec, head, ENGINE, is_warm=True).wait()
    assert ended.code == 0, ended.output
    return told_by(ended)


def report(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page."""
    lines = [
        "# Exactness, measured",
        "",
        "Written by `make proof-exactness`: whole runs of the built-in trainer on CPU with the demo's model (657,024",
        f"parameters), {NUM_STEPS} optimizer steps at a rate of 1e-3 on 16 samples each. A row says how far a run is",
        "from that of its second column: the largest difference of a loss in any step, of any other metric of what is",
        "learned (rewards, margins, likelihoods, entropy, values, gap to the teacher), both as a fraction of it where",
        "it is above 1, and of a gradient's norm, as a fraction of it. Allowed are "
        + "; ".join(
            f"{loss:g}, {metric:g} and {norm:g} in {precision}" for precision, (loss, metric, norm) in BOUNDS.items()
        )
        + ".",
        "Shares of pairs in order and of overlaps are left out: they jump where numbers are equal up to rounding.",
        "",
    ]
    for algorithm in NAMES:
        lines += [f"## {algorithms()[algorithm].label}", ""]
        lines += ["| run | as | loss | metric | difference | gradient | holds |", "|---|---|---|---|---|---|---|"]
        for row in rows_of(algorithm, measured[algorithm]):
            verdict = "yes" if row.is_exact else "**no**"
            numbers = f"{row.loss:.1e} | `{row.metric}` | {row.difference:.1e} | {row.gradient:.1e}"
            lines.append(f"| {row.variant.name} | {row.variant.base} | {numbers} | {verdict} |")
        lines.append("")
    lines += [
        "Before them `tests/jobs/engine/test_ranks.py` passed in every variant: offload, half masters, recomputation,",
        "states that left the device and came back, micro-batches by count and by tokens. So did",
        "`test_critic_ranks.py` and `test_adapter_ranks.py`, with adapters of each kind.",
        "",
        "Two ranks that draw (the first part of on-policy distillation and PPO) draw what one draws; vLLM draws other",
        "samples, so that its runs are compared with each other. In bfloat16 samples are the same in the first step",
        "only, and that one is compared.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure what is not measured yet, write the page, and exit with 1 if a run is too far from its base."""
    which = sys.argv[1:] or list(NAMES)
    ranks = [sys.executable, "-m", "pytest", "-q", *(f"tests/jobs/engine/{name}.py" for name in OF_RANKS)]
    if subprocess.run(ranks, cwd=HOUSE, env=os.environ | {EVERY_VARIANT: "1"}, check=False).returncode:
        sys.exit("The ranks do not learn the same in every variant: no report.")
    measured: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pw-proof-") as folder, running_head() as head:
        student = make_student(Path(folder) / "student")
        for algorithm in which:
            for variant in variants_of(algorithm):
                if variant.name not in measured.setdefault(algorithm, {}):
                    measured[algorithm][variant.name] = measure(algorithm, variant, head, Path(folder), student)
                    RESULTS.write_text(json.dumps(measured))
                    print(algorithm, variant.name, flush=True)
    if any(variant.name not in measured.get(name, {}) for name in NAMES for variant in variants_of(name)):
        sys.exit("Not all is measured yet: no report.")
    REPORT.write_text(report(measured), encoding="utf-8")
    print(REPORT.read_text())
    far = [f"{name}: {row.variant.name}" for name in NAMES for row in rows_of(name, measured[name]) if not row.is_exact]
    if far:
        sys.exit(f"Further apart than allowed: {', '.join(far)}")


if __name__ == "__main__":
    main()
