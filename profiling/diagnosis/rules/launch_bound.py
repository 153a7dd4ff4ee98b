"""Kernels are shorter than the calls that launch them: the CPU cannot keep the device busy."""

from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.budgets import share_of_device
from profiling.diagnosis.device_work import FEWEST_LAUNCHES, devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule, amount
from profiling.evidence import Evidence

_IDLE = 0.80
_LATE = 0.10
"""Of the steps, in which the device is idle while the CPU prepares its work; else something else keeps it idle."""


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        _begin, length, _start, together = work.launched
        if len(length) < FEWEST_LAUNCHES:
            continue
        short = float((together < length).mean())
        late = share_of_device(evidence, work, "launch")
        yield work.observation(
            short,
            is_firing=short > PLUGIN.watch and work.busy_share < _IDLE and (late is None or late > _LATE),
            median=amount(float(np.median(together)) / 1e9, "seconds"),
            launch=amount(float(np.median(length)) / 1e9, "seconds"),
            busy=f"{100 * work.busy_share:.0f} %",
        )


PLUGIN = Rule(
    title="Launch-bound",
    question="why",
    definition="Fraction of launching calls that take longer than what they launched: a kernel, or all of a graph. It "
    "fires where the device is busy for less than 80 %, and idle behind the CPU's launches for more than 10 % of "
    "the time.",
    unit="share",
    watch=0.30,
    bad=0.60,
    source="Holistic Trace Analysis: a launch takes 5 to 20 µs on the CPU; 30 % is ours",
    needs=("device_trace",),
    fires="{value} of the launches on {device} take longer than what they launch (median {launch} for "
    "{median}), and it is busy for {busy} of the time.",
    clear="{value} of the launches on {device} take longer than what they launch. That costs time only where the "
    "device is idle behind them; it is busy for {busy} of the time.",
    advice="Use CUDA graphs, torch.compile or fused optimizers, or larger micro-batches: fewer and longer kernels.",
    changes=(
        KnobChange("rollout.enforce_eager", "off"),
        KnobChange("kernels.torch_compile", "on"),
        KnobChange("train.micro_batch_size", "raise"),
        KnobChange("optimizer.implementation", "choose"),
    ),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="device_trace")),
)
