"""Kernels are shorter than the calls that launch them: the CPU cannot keep the device busy."""

import numpy as np

from profiling.device_work import devices
from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn, amount

_IDLE = 0.80


def _judge(evidence: Evidence) -> Seen | Missing:
    worst: Seen | None = None
    for work in devices(evidence):
        _begin, length = work.launches
        known = work.kernels & (length >= 0)
        if not known.any():
            continue
        short = float((work.duration[known] < length[known]).mean())
        words = {
            **work.words,
            "median": amount(float(np.median(work.duration[known])) / 1e9, "seconds"),
            "launch": amount(float(np.median(length[known])) / 1e9, "seconds"),
            "busy": f"{100 * work.busy_share:.0f} %",
        }
        seen = Seen(
            value=short,
            begin=work.begin,
            end=work.end,
            words=words,
            is_firing=short > PLUGIN.watch and work.busy_share < _IDLE,
            role=work.recorded.role,
            rank=work.recorded.rank,
        )
        if worst is None or (bool(seen.is_firing), seen.value) > (bool(worst.is_firing), worst.value):
            worst = seen
    return worst or Missing(what="device_trace")


PLUGIN = Rule(
    title="Launch-bound",
    question="why",
    definition="Share of kernels that are shorter than the call that launched them.",
    unit="share",
    watch=0.30,
    bad=0.60,
    source="Holistic Trace Analysis: a launch takes 5 to 20 µs on the CPU; 30 % is ours",
    needs=("device_trace",),
    fires="{value} of the kernels of {device} are shorter than their launch (median {median} for "
    "{launch}), and it is busy for {busy} of the time.",
    clear="{value} of the kernels of {device} are shorter than their launch; it is busy for {busy} of the time.",
    advice="Use CUDA graphs, torch.compile or fused optimizers, or larger micro-batches: fewer and longer kernels.",
    turns=(
        Turn("rollout.enforce_eager", "off"),
        Turn("kernels.torch_compile", "on"),
        Turn("train.micro_batch_size", "raise"),
        Turn("optimizer.implementation", "choose"),
    ),
    judge=_judge,
)
