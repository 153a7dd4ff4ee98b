"""Kernels are shorter than the calls that launch them: the CPU cannot keep the device busy."""

from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.device_work import devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule, amount
from profiling.evidence import Evidence

_IDLE = 0.80


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        _begin, length = work.launches
        is_launched = work.kernels & (length >= 0)
        if not is_launched.any():
            continue
        short = float((work.duration[is_launched] < length[is_launched]).mean())
        yield work.observation(
            short,
            is_firing=short > PLUGIN.watch and work.busy_share < _IDLE,
            median=amount(float(np.median(work.duration[is_launched])) / 1e9, "seconds"),
            launch=amount(float(np.median(length[is_launched])) / 1e9, "seconds"),
            busy=f"{100 * work.busy_share:.0f} %",
        )


PLUGIN = Rule(
    title="Launch-bound",
    question="why",
    definition="Fraction of kernels that are shorter than the call that launched them.",
    unit="share",
    watch=0.30,
    bad=0.60,
    source="Holistic Trace Analysis: a launch takes 5 to 20 µs on the CPU; 30 % is ours",
    needs=("device_trace",),
    fires="{value} of the kernels of {device} are shorter than their launch (median {median} for "
    "{launch}), and it is busy for {busy} of the time.",
    clear="{value} of the kernels of {device} are shorter than their launch; it is busy for {busy} of the time.",
    advice="Use CUDA graphs, torch.compile or fused optimizers, or larger micro-batches: fewer and longer kernels.",
    changes=(
        KnobChange("rollout.enforce_eager", "off"),
        KnobChange("kernels.torch_compile", "on"),
        KnobChange("train.micro_batch_size", "raise"),
        KnobChange("optimizer.implementation", "choose"),
    ),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="device_trace")),
)
