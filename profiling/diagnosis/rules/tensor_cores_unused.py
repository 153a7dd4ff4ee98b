"""Matrix products run on the general cores although the device has faster ones for them."""

import re
from collections.abc import Iterator

import numpy as np

from profiling.diagnosis.device_work import devices
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_PRODUCT = re.compile(r"gemm|gemv2T|cutlass|wgrad|dgrad|nvjet|matmul|_mm_|Cijk_", re.I)
_TENSOR = re.compile(
    r"tensorop|s16816|s1688|s884|h884|h1688|h16816|i8816|bmma|hmma|wgmma|nvjet|xmma_gemm_(?:bf16|f16|e4m3|e5m2|tf32)"
    r"|(?:bf16|f16|tf32)(?:bf16|f16|tf32)_.*xmma|warpgroup|tensor16x8|fp8|e4m3|_MFMA|MI\d+x\d+",
    re.I,
)
_LEAST = 0.05  # of the time in kernels: below, products do not matter


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for work in devices(evidence):
        names = work.recorded.store.names
        product = [i for i, name in enumerate(names) if _PRODUCT.search(name)]
        tensor = [i for i in product if _TENSOR.search(names[i])]
        kernels = work.duration[work.kernels].sum()
        spent = work.duration[work.kernels & np.isin(work.name, product)].sum()
        if not kernels or spent < _LEAST * kernels:
            continue
        fast = work.duration[work.kernels & np.isin(work.name, tensor)].sum()
        yield work.observation(float(fast / spent), products=f"{100 * spent / kernels:.0f} %")


PLUGIN = Rule(
    title="Tensor cores unused",
    question="why",
    definition="Fraction of the time in matrix products that is in kernels whose names say that they use tensor cores.",
    unit="share",
    watch=0.50,
    bad=0.10,
    is_low_bad=True,
    source="TensorBoard's torch profiler plugin, its view of tensor cores; the threshold is ours",
    needs=("device_trace",),
    fires="{value} of the time in matrix products of {device} uses tensor cores; products are {products} "
    "of its kernels.",
    clear="{value} of the time in matrix products of {device} uses tensor cores.",
    advice="Train in bf16, allow TF32, and keep sizes multiples of 8 (16 for fp8).",
    changes=(KnobChange("memory.precision", "choose"), KnobChange("memory.master_precision", "choose")),
    evaluate=evaluate_worst(
        _observations,
        missing=InsufficientData(what="device_trace", text="No file holds kernels of matrix products."),
        is_low_bad=True,
    ),
)
