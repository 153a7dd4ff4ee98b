"""Something is compiled again and again while steps run."""

import re

import numpy as np

from profiling.evidence import Evidence
from profiling.finding import Missing, Rule, Seen, Turn

_NAMES = re.compile(
    r"CompiledFxGraph|TorchDynamo|_compile\b|compile_fx|inductor|cudaModuleLoad|cuModuleLoad|triton.*compile", re.I
)


def _judge(evidence: Evidence) -> Seen | Missing:
    if not evidence.recorded:
        return Missing(what="trace")
    total, window, calls, name, begin, end = 0.0, 0, 0, "", 0, 0
    longest_yet, whose = 0, evidence.recorded[0]
    for one in evidence.recorded:
        names = one.store.names
        chosen = [i for i, text in enumerate(names) if _NAMES.search(text)]
        window += max(1, one.store.end - one.store.begin)
        if not chosen:
            continue
        events = one.store.events(columns=("ts", "dur", "name", "depth"))
        mine = np.isin(events["name"], chosen)
        if not mine.any():
            continue
        start, duration = events["ts"][mine], events["dur"][mine]
        order = np.argsort(start, kind="stable")
        start, stop = start[order], (start + duration)[order]
        reach = np.concatenate(([start[0]], np.maximum.accumulate(stop)[:-1]))
        total += float(np.maximum(0, stop - np.maximum(start, reach)).sum())
        calls += int(mine.sum())
        longest = int(duration.argmax())
        if duration[longest] > longest_yet:
            longest_yet, whose = int(duration[longest]), one
            name = names[int(events["name"][mine][longest])]
            begin, end = int(events["ts"][mine][longest]), int((events["ts"] + events["dur"])[mine][longest])
    words = {"calls": calls, "name": name[:80]}
    return Seen(value=total / max(1, window), begin=begin, end=end, words=words, role=whose.role, rank=whose.rank)


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
    turns=(Turn("kernels.torch_compile", "off"), Turn("memory.pad_to_length", "on"), Turn("train.packing", "on")),
    judge=_judge,
)
