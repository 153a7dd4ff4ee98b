"""The CPU waits for the device inside the step, so that the device then waits for the CPU."""

import re
from collections.abc import Iterator

import numpy as np

from profiling.analysis.intervals import total, union
from profiling.diagnosis.evaluators import evaluate_worst
from profiling.diagnosis.finding import InsufficientData, Observation, Rule
from profiling.evidence import Evidence
from profiling.trace.category import DEVICE, Category
from profiling.trace.store import Store

_WAITS = re.compile(r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|^(cudaMemcpy|hipMemcpy|cuMemcpy)(?!.*Async)")
_LEAST = 1_000_000  # ns


def _observations(evidence: Evidence) -> Iterator[Observation]:
    for recorded in evidence.recorded:
        store = recorded.store
        waits = {i for i, name in enumerate(store.names) if _WAITS.search(name)}
        threads = [lane.id for lane in store.lanes if lane.kind == "thread"]
        events = recorded.events(
            lanes=threads, categories=[Category.RUNTIME, Category.SYNC], columns=("lane", "ts", "dur", "name")
        )
        if not len(events["ts"]) or not _has_device(recorded.store):
            continue
        is_wait = np.isin(events["name"], list(waits))
        lengths = {
            int(lane): total(union(events["ts"][rows], (events["ts"] + events["dur"])[rows]))
            for lane in np.unique(events["lane"][is_wait])
            for rows in [is_wait & (events["lane"] == lane)]
        }
        most = max(lengths.values(), default=0)
        longest = int(np.where(is_wait, events["dur"], -1).argmax())
        words = {
            "calls": int(is_wait.sum()),
            "name": store.names[int(events["name"][longest])][:80] if is_wait.any() else "—",
        }
        begin = int(events["ts"][longest]) if is_wait.any() else recorded.begin
        end = int((events["ts"] + events["dur"])[longest]) if is_wait.any() else recorded.end
        share = most / recorded.window
        is_firing = share > PLUGIN.watch and most >= _LEAST
        yield Observation(
            value=share,
            begin=begin,
            end=end,
            words=words,
            is_firing=is_firing,
            role=recorded.role,
            rank=recorded.rank,
        )


def _has_device(store: "Store") -> bool:
    rows = store.sql("SELECT 1 AS one FROM ev WHERE list_contains(?, cat) LIMIT 1", [sorted(map(int, DEVICE))])
    return len(rows["one"]) > 0


PLUGIN = Rule(
    title="Hidden synchronisation",
    question="why",
    definition="Time that a thread spends waiting for the device (Synchronize, copies that block), divided by the "
    "recorded time, of the thread with most.",
    unit="share",
    watch=0.02,
    bad=0.15,
    source="the rules cuda-sync-api and cuda-sync-memcpy of nsys; 2 % and 1 ms from lists of root causes",
    needs=("device_trace",),
    fires="A thread waits for the device for {value} of the time, in {calls} calls; the longest is {name}.",
    clear="Threads wait for the device for {value} of the time.",
    advice="Take .item(), .cpu() and prints of tensors out of the step; torch.cuda.set_sync_debug_mode finds them.",
    evaluate=evaluate_worst(_observations, missing=InsufficientData(what="device_trace")),
)
