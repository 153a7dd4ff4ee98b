"""Which ways to train were measured in combination, so that memory of the others is trusted less.

A combination is what decides which bytes there are: the kind of sharding, what is trained, the precision, the kernels.
Each part by itself is counted from code; what two of them do together is known where somebody has measured it.
`MEASURED` is what the measured cases hold (tests/planner_cases; tests/jobs/planner/memory/test_measured.py keeps both
alike).
"""

from typing import NamedTuple

from jobs.catalog.sentence import Sentence
from jobs.planner.job import Training
from jobs.planner.memory.precision import compute_bytes, is_autocast


class WayToTrain(NamedTuple):
    """One way to train. `sharding`: none, zero12, zero3, fsdp or megatron; `method`, `kernels`: as in Training;
    `precision`: autocast, masters, pure, fp8, fp32, or 16 bits of a frozen base; `extra`: weights on host, dora, or
    nothing."""

    sharding: str
    method: str
    precision: str
    kernels: str
    extra: str = ""


def combination(training: Training) -> WayToTrain:
    """Return the way in which a training trains."""
    return WayToTrain(
        sharding=_sharding(training),
        method=training.method,
        precision=_precision(training),
        kernels=training.kernels,
        extra="dora" if training.is_dora else "weights on host" if training.offload.params else "",
    )


def _sharding(training: Training) -> str:
    if training.family == "megatron":
        return "megatron"
    if not training.layout.shards or training.layout.num_devices == 1:
        return "none"  # on one device nothing is gathered
    if training.family == "deepspeed":
        return "zero3" if training.layout.shards == 3 else "zero12"
    return "fsdp"


def _precision(training: Training) -> str:
    if training.compute in ("fp8", "fp32"):
        return training.compute
    if is_autocast(training):
        return "autocast"
    if training.method != "full":
        return "16 bits"
    is_wide = training.has_master or training.weight_bytes > compute_bytes(training)
    return "masters" if is_wide else "pure"


def is_measured(training: Training) -> bool:
    """Return whether the same way to train was measured, and came near what is counted."""
    return combination(training) in MEASURED and not trains_experts_of_modules(training)


def is_quantized_and_sharded(training: Training) -> bool:
    """Return whether a quantized base is divided over devices, of which little is known: see
    estimate.band_sharded_quantized."""
    return training.method == "qlora" and _sharding(training) in ("fsdp", "zero3")


def trains_experts_of_modules(training: Training) -> bool:
    """Return whether all weights of experts are trained by modules of Transformers, which go through experts one by
    one, and in some releases differentiate the whole stack for each. Six peaks of such runs are 1.06 to 2.8 times what
    is counted, and a seventh filled its device (AX11 to AX14 and FA36 to FA38 of tests/planner_cases)."""
    is_module = training.family != "megatron" and training.kernels in ("eager", "liger")
    return is_module and training.method == "full" and training.model.experts > 0


def doubt_of(training: Training) -> Sentence:
    """Return what was never measured together."""
    way = combination(training)
    return Sentence(
        "Memory is less certain here: no run was measured well that combines {sharding}, {method}, {precision} and"
        " {kernels} kernels.",
        sharding=_SHARDINGS[way.sharding],
        method={"full": Sentence("training of all weights"), "lora": "LoRA", "qlora": "QLoRA"}[way.method],
        precision=_PRECISIONS[way.precision],
        kernels=way.kernels,
    )


_SHARDINGS = {
    "none": Sentence("no sharding"),
    "zero12": Sentence("ZeRO 1 or 2"),
    "zero3": "ZeRO-3",
    "fsdp": "FSDP",
    "megatron": "Megatron",
}
_PRECISIONS = {
    "autocast": "torch.autocast",
    "masters": Sentence("mixed precision"),
    "pure": Sentence("16 bits alone"),
    "16 bits": Sentence("16 bits"),
    "fp8": "fp8",
    "fp32": "fp32",
}
_ROWS = """
fsdp full autocast compiled
fsdp full fp8 compiled
fsdp full masters compiled
fsdp full masters eager
fsdp full masters fused
fsdp full masters liger
fsdp full pure compiled
fsdp full pure compiled weights-on-host
fsdp full pure eager
fsdp full pure liger
fsdp full pure megatron
fsdp lora 16-bits compiled
fsdp lora 16-bits eager
fsdp lora 16-bits fused
fsdp lora 16-bits liger
fsdp qlora 16-bits eager
fsdp qlora 16-bits fused
fsdp qlora 16-bits liger
megatron full fp8 megatron
megatron full masters megatron
megatron lora 16-bits megatron
none full autocast eager
none full autocast fused
none full autocast liger
none full fp32 eager
none full masters compiled
none full masters eager
none full masters eager weights-on-host
none full masters liger
none full masters liger weights-on-host
none full pure compiled
none full pure eager
none full pure fused
none full pure liger
none lora 16-bits compiled
none lora 16-bits eager
none lora 16-bits eager dora
none lora 16-bits fused
none lora 16-bits liger
none lora autocast eager
none lora autocast fused
none lora autocast liger
none lora fp32 eager
none qlora 16-bits compiled
none qlora 16-bits eager
none qlora 16-bits fused
none qlora 16-bits liger
none qlora autocast eager
none qlora autocast fused
none qlora autocast liger
none qlora fp32 eager
zero12 full masters compiled
zero12 full masters eager
zero12 full masters fused
zero12 full masters megatron
zero12 lora 16-bits eager
zero12 qlora 16-bits eager
zero3 full masters liger
zero3 lora 16-bits eager
zero3 lora 16-bits eager weights-on-host
zero3 lora 16-bits liger weights-on-host
zero3 qlora 16-bits eager
"""

_FAR_OFF_ROWS = """
fsdp full pure eager weights-on-host
fsdp lora 16-bits eager weights-on-host
fsdp qlora 16-bits eager weights-on-host
megatron full masters fused
zero3 full masters eager
zero3 full masters eager weights-on-host
zero3 full masters fused
"""


def _ways(rows: str) -> frozenset[WayToTrain]:
    parts = (row.split() for row in rows.split("\n") if row)
    return frozenset(WayToTrain(*(part.replace("-", " ") for part in row)) for row in parts)


MEASURED = _ways(_ROWS)
"""Combinations of which a peak was measured, or whether they fit."""
FAR_OFF = _ways(_FAR_OFF_ROWS)
"""Combinations of which more than three tenths of the measured peaks are a fifth above what is counted, or more."""
