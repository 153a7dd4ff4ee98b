"""The program of test_peaks: RUN_DIR holds `cases.json`; each case's ranks score and learn full-length batches, and
`found.json` gets what every role held before its model and at most in each phase.

The batches are as large as the plan assumes: every sequence as long as the longest.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import ray
import torch

from jobs.catalog.algorithm import is_in
from jobs.catalog.role import ROLES
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Counts
from jobs.engine.batch import Batch, make_batch
from jobs.engine.micro_batches import of_units, sequences_per_sample
from jobs.engine.rollouts.request import GenerationRequest
from jobs.engine.session import ROLE_CLASSES
from jobs.engine.workers.actor import CallResult
from jobs.engine.workers.worker import Worker
from tests.jobs.engine.ranks import make_workers, start_policies

NUM_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMeasurement:
    """What rank 0 of a role held: bytes before its model was loaded, most bytes by phase, and its last readings."""

    baseline: int
    peaks: dict[str, int]
    readings: dict[str, float]


def measure(spec: RunSpec, run_dir: Path) -> dict[str, PeakMeasurement]:
    """Return what each role that learns or scores held, by role."""
    answers: dict[str, list[CallResult]] = {}

    def keep(worker: Worker, answer: CallResult) -> None:
        if worker.rank == 0:
            answers.setdefault(worker.role, []).append(answer)

    workers = make_workers(spec, run_dir, keep)
    batches, whole = batches_of(spec)
    counts = [Counts(num_tokens=whole.num_trained_tokens, num_sequences=whole.num_sequences)]
    starts = start_policies(workers, spec, ROLES["policy"].worker_of(spec))
    if workers.reference is not None:
        starts.append(workers.reference.start(ROLE_CLASSES["reference"], spec=spec, device="cpu"))
    workers.gather(starts)
    for step in range(1, NUM_STEPS + 1):
        pairs = list(zip(workers.policies, batches, strict=True))
        if is_in(spec.algorithm, "rl") and spec.hardware.layout == "colocated":
            requests = requests_of(spec)
            workers.gather([p.call("generate", requests, step=step, phase="rollout") for p in workers.policies])
        if is_in(spec.algorithm, "rl") and DERIVED["batch.has_old_pass"](spec):
            workers.gather([p.call("logprobs", b, step=step, phase="old_logprobs") for p, b in pairs])
        if workers.reference is not None:
            workers.gather([workers.reference.call("logprobs", whole, step=step, phase="reference")])
        elif spec.needs("reference"):
            workers.gather([p.call("reference_logprobs", b, step=step, phase="reference") for p, b in pairs])
        calls = [
            p.call("update", [b], counts, 1e-4, step=step, phase="update")
            for p, b in zip(workers.policies, batches, strict=True)
        ]
        workers.gather(calls)
    workers.close()
    return {role: _measured(told) for role, told in answers.items()}


def requests_of(spec: RunSpec) -> list[GenerationRequest]:
    """Return what a rank draws in a step: its prompts, each as long as the longest, as often as they are sampled."""
    prompts = spec.int_knob("rollout.prompts_per_step") // spec.hardware.policy_ranks
    length, samples = spec.int_knob("rollout.max_prompt_tokens"), spec.int_knob("rollout.samples_per_prompt")
    generator = torch.Generator().manual_seed(1)
    rows = torch.randint(1, 500, (prompts, length), generator=generator).tolist()
    return [GenerationRequest(tokens=tuple(row), seed=seed) for row in rows for seed in range(samples)]


def batches_of(spec: RunSpec) -> tuple[list[Batch], Batch]:
    """Return each rank's batch of one optimizer step, all sequences as long as the longest, and all of them."""
    ranks = spec.hardware.policy_ranks
    unit = sequences_per_sample(spec)
    if not is_in(spec.algorithm, "rl"):
        count, length = unit * spec.int_knob("train.batch_size"), spec.int_knob("train.max_sequence_tokens")
    else:
        count = spec.int_knob("rollout.prompts_per_step") * spec.int_knob("rollout.samples_per_prompt")
        length = spec.int_knob("rollout.max_prompt_tokens") + spec.int_knob("rollout.max_new_tokens")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 500, (count, length), generator=generator).tolist()
    whole = make_batch([(row, [True] * length) for row in rows], pad_id=0)
    zeros_BL = torch.full((count, length), -6.0)
    if is_in(spec.algorithm, "anchored"):
        whole = replace(
            whole,
            reference_logprobs_BL=zeros_BL,
            is_desirable_B=torch.arange(count) % 2 == 0,
            reference_points_B=torch.zeros(count),
        )
    elif is_in(spec.algorithm, "rl"):
        whole = replace(
            whole,
            advantages_BL=torch.randn((count, 1), generator=generator).expand(count, length),
            old_logprobs_BL=zeros_BL,
            reference_logprobs_BL=zeros_BL.clone() if spec.needs("reference") else None,
            values_BL=zeros_BL.clone() if spec.needs("critic") else None,
            returns_BL=zeros_BL.clone() if spec.needs("critic") else None,
        )
    if spec.needs("teacher"):
        shape = (count, length, spec.int_knob("algorithm.distillation_top_k"))
        ids_BLK = torch.randint(0, 500, shape, generator=generator, dtype=torch.int32)
        scores_BLK = torch.full((*shape[:2], shape[2] + 1), -6.0)  # the last is that of all other tokens
        whole = replace(whole, teacher_ids_BLK=ids_BLK, teacher_logprobs_BLK=scores_BLK)
    samples = torch.arange(count // unit)
    return [whole.rows(of_units(samples[rank::ranks], unit)) for rank in range(ranks)], whole


def _measured(answers: list[CallResult]) -> PeakMeasurement:
    peaks: dict[str, int] = {}
    for answer in answers:
        for span in answer.spans:
            # What the first step alone holds is not the trainer's: modules that it is the first to import, which Python
            # compiles where nobody has before.
            if span.memory is not None and span.step != 1:
                key = f"{span.phase}/{span.name}" if span.name else span.phase
                peaks[key] = max(peaks.get(key, 0), span.memory.resident_peak)
    readings = dict(answers[-1].readings)
    return PeakMeasurement(baseline=int(readings["memory_baseline_bytes"]), peaks=peaks, readings=readings)


def main() -> None:
    """Measure every case."""
    run_dir = Path(sys.argv[1])
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    cases: dict[str, Any] = json.loads((run_dir / "cases.json").read_text())
    found = {}
    for name, spec in cases.items():
        measured = measure(parse_spec(spec), run_dir / name)
        found[name] = {role: asdict(value) for role, value in measured.items()}
        (run_dir / "found.json").write_text(json.dumps(found))
        print(name, json.dumps(found[name]), flush=True)


if __name__ == "__main__":
    main()
