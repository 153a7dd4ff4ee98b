"""The device takes each kernel the moment it is launched, and then waits for the next one."""

from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.budgets import share_of_device
from profiling.diagnosis.device_work import FEWEST_LAUNCHES, devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule, amount
from profiling.evidence import Evidence

_AT_ONCE = 10_000  # ns between the end of a launch and the start of its kernel
_LATE = ("launch", "python", "native", "off_cpu", "unattributed")
"""A CPU that waits for the device, for data or for others is not late, nor is it where the next kernel was launched
already. Where nothing says what it did it was late all the same: calls that launch were recorded.
"""


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        begin, length, start, _together = work.launched
        late = share_of_device(evidence, work, *_LATE)
        if len(begin) < FEWEST_LAUNCHES or late is None:
            continue
        delay = float(np.median(start - (begin + length)))
        is_firing = delay < _AT_ONCE and late > PLUGIN.watch
        yield work.observation(late, is_firing=is_firing, delay=amount(max(0.0, delay) / 1e9, "seconds"))


PLUGIN = Rule(
    title="CPU-bound",
    question="why",
    definition="Fraction of the steps in which the device is idle and its next work not launched, while the CPU waits "
    "for nothing, where kernels start within 10 µs (median) of their launch.",
    unit="share",
    watch=0.20,
    bad=0.50,
    source="Holistic Trace Analysis, its notion of waiting for the host; the thresholds are ours",
    needs=("device_trace",),
    fires="{device} is idle for {value} of the time because of the CPU and starts kernels {delay} after their launch: "
    "its queue is empty.",
    clear="{device} is idle for {value} of the time because of the CPU; kernels start {delay} after their launch.",
    advice="Take Python work off the step, compile the model, or give each launch more to do.",
    changes=(
        KnobChange("kernels.torch_compile", "on"),
        KnobChange("train.micro_batch_size", "raise"),
        KnobChange("rollout.enforce_eager", "off"),
    ),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="device_trace")),
)
