"""The device spends its time copying from and to the host, or copies block because host memory is not pinned."""

import re
from collections.abc import Iterator

import numpy as np

from profiling.analysis.intervals import difference, total
from profiling.diagnosis.device_work import devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule, amount
from profiling.evidence import Evidence
from profiling.trace.category import Category
from profiling.trace.names import numbers_of

_HOST = re.compile(r"HtoD|DtoH|Host", re.I)
_PAGEABLE = re.compile(r"pageable", re.I)
_LARGE = 1 << 20
_UNPINNED = 0.01  # of the time
_AGAIN = 3  # large copies: one of the inputs and one of the results are no fault


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        names = work.recorded.store.names
        copies = (work.category == Category.COPY) & np.isin(work.name, numbers_of(names, _HOST))
        slow = copies & np.isin(work.name, numbers_of(names, _PAGEABLE)) & (work.bytes >= _LARGE)
        hidden = work.of(Category.KERNEL, Category.COMMUNICATION)
        share = total(difference(work.moments(copies), hidden)) / work.window
        unpinned = total(difference(work.moments(slow), hidden)) / work.window
        yield work.observation(
            share,
            is_firing=share > PLUGIN.watch or (unpinned > _UNPINNED and int(slow.sum()) >= _AGAIN),
            bytes=amount(float(work.bytes[copies].sum()), "bytes"),
            pageable=int(slow.sum()),
        )


PLUGIN = Rule(
    title="Copies from and to the host",
    question="why",
    definition="Fraction of the recorded time in which a device copies from or to the host and neither computes nor "
    "communicates; it also fires where at least three copies of a mebibyte or more from memory that is not pinned take "
    "1 % of it.",
    unit="share",
    watch=0.05,
    bad=0.15,
    source="the rule cuda-async-memcpy of nsys; 5 % from lists of root causes",
    needs=("device_trace",),
    fires="{device} does nothing but copy from and to the host for {value} of the time ({bytes} in all); {pageable} "
    "large copies are from memory that is not pinned.",
    clear="{device} does nothing but copy from and to the host for {value} of the time; {pageable} large copies are "
    "from memory that is not pinned.",
    advice="Pin the memory, copy with non_blocking, keep data on the device; offload less if memory is free.",
    changes=(
        KnobChange("memory.optimizer_offload", "off"),
        KnobChange("memory.param_offload", "off"),
        KnobChange("memory.activation_offload", "off"),
        KnobChange("data.num_workers", "raise"),
    ),
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="device_trace")),
)
