"""Something is compiled again and again while steps run."""

import re

import numpy as np

from profiling.diagnosis.finding import InsufficientData, KnobChange, Observation, Rule
from profiling.evidence import Evidence

_NAMES = re.compile(
    r"CompiledFxGraph|TorchDynamo|_compile\b|compile_fx|inductor|cudaModuleLoad|cuModuleLoad|triton.*compile", re.I
)


def _evaluate(evidence: Evidence) -> Observation | InsufficientData:
    recorded = [one for one in evidence.recorded if one.shows_work]
    if not recorded:
        return InsufficientData(what="trace")
    total, window, calls, name, begin, end = 0.0, 0, 0, "", 0, 0
    longest_yet, whose = 0, recorded[0]
    for one in recorded:
        names = one.store.names
        chosen = [i for i, text in enumerate(names) if _NAMES.search(text)]
        window += one.window
        if not chosen:
            continue
        query = "SELECT ts, dur, name FROM ev WHERE list_contains(?, name) AND ts < ?"
        rows = one.store.sql(query, [chosen, one.end])
        if not len(rows["ts"]):
            continue
        start, duration = rows["ts"], rows["dur"]
        longest = int(duration.argmax())
        if duration[longest] > longest_yet:
            longest_yet, whose = int(duration[longest]), one
            name = names[int(rows["name"][longest])]
            begin, end = int(start[longest]), int(start[longest] + duration[longest])
        calls += len(start)
        order = np.argsort(start, kind="stable")
        start, stop = start[order], (start + duration)[order]
        reach = np.concatenate(([start[0]], np.maximum.accumulate(stop)[:-1]))
        total += float(np.maximum(0, stop - np.maximum(start, reach)).sum())
    words = {"calls": calls, "name": name[:80]}
    return Observation(
        value=total / max(1, window), begin=begin, end=end, words=words, role=whose.role, rank=whose.rank
    )


PLUGIN = Rule(
    title="Recompilation",
    question="why",
    definition="Time in compiling (Dynamo, Inductor, Triton, loading of modules) divided by the recorded time.",
    unit="share",
    watch=0.02,
    bad=0.10,
    source="ours: after warm-up nothing should be compiled",
    needs=("trace",),
    fires="{value} of the recorded time is compiling: {calls} calls, the longest in {name}.",
    clear="{value} of the recorded time is compiling.",
    advice="Pad lengths to a few sizes, mark dimensions as dynamic, and warm up every shape before step 1.",
    changes=(
        KnobChange("kernels.torch_compile", "off"),
        KnobChange("memory.pad_to_length", "on"),
        KnobChange("train.packing", "on"),
    ),
    evaluate=_evaluate,
)
