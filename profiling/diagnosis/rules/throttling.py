"""A device runs below its clock while it works, or reports errors."""

import numpy as np

from profiling.diagnosis.counters import counters
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    clocks = [one for one in counters(evidence, "DCGM_FI_DEV_SM_CLOCK", "SM Clock") if one.value.max() > 0]
    errors = counters(evidence, "DCGM_FI_DEV_XID_ERRORS")
    if not clocks:
        return InsufficientData(what="counters")
    drops = [float(1 - np.percentile(one.value, 25) / one.value.max()) for one in clocks]
    at = int(np.argmax(drops))
    worst = clocks[at]
    codes = sorted({int(value) for one in errors for value in one.value if value > 0})
    words = {
        **worst.words,
        "low": f"{np.percentile(worst.value, 25):.0f} MHz",
        "high": f"{worst.value.max():.0f} MHz",
        "codes": ", ".join(map(str, codes)) or "none",
    }
    return Observation(
        value=drops[at],
        begin=int(worst.time.min()),
        end=int(worst.time.max()),
        words=words,
        is_firing=drops[at] > PLUGIN.watch or bool(codes),
        role=worst.recorded.role,
        rank=worst.recorded.rank,
    )


PLUGIN = Rule(
    title="Throttling or hardware errors",
    question="why",
    definition="1 - (lower quartile of the SM clock / its highest value), of the device where it is largest; it "
    "also fires on any XID error.",
    unit="share",
    watch=0.10,
    bad=0.25,
    source="DCGM's fields; 10 % is ours",
    needs=("counters",),
    fires="{device} runs at {low} for a quarter of the time, {value} below its {high}; XID errors: {codes}.",
    clear="The clock of {device} lies within {value} of its {high}; there are no XID errors.",
    advice="Look at cooling and power caps of that node, and take it out if it reports XID errors.",
    evaluate=_evaluate,
)
