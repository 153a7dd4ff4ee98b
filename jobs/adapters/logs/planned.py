"""How many steps a trainer will do, from the progress bars that it draws: where data decide, the spec does not say.

Train epoch:   0%|          | 0/2 [00:00<?, ?it/s]                  OpenRLHF: epochs
Train step of epoch 0:   3%|▎         | 1/32 [00:00<00:09, ...]     OpenRLHF: micro-batches of an epoch
Epoch 1/4:   6%|▋         | 1/16 [00:03<00:49,  3.32s/it]           verl, supervised: epochs, and steps of one
Training Progress:   1%|          | 1/120 [00:09<18:20, ...]        verl, reinforcement learning: steps
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.logs.gathering import NOBODY
from jobs.catalog.placement import group_size
from jobs.catalog.runspec import RunSpec
from profiling.events import note

STDERR = "log/driver-0.stderr"
HEAD_BYTES = 1 << 20  # bars are drawn from the first step on; what comes later is not waited for
_BAR = r":\s+\d+%\|[^|\r\n]*\|\s*\d+/(?P<total>\d+) \["
_EPOCHS = re.compile("Train epoch" + _BAR)
_MICRO_BATCHES = re.compile(r"Train step of epoch \d+" + _BAR)
_EPOCH_OF = re.compile(r"Epoch \d+/(?P<epochs>\d+)" + _BAR)
_STEPS = re.compile("Training Progress" + _BAR)


@dataclass(slots=True, kw_only=True)
class Planned:
    """Tells the number of steps once, as soon as it is there to be read; never where the spec says it."""

    spec: RunSpec
    run_dir: Path
    _is_over: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._is_over = self.spec.num_steps > 0

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield the note that says how many steps are planned. Raises: OSError."""
        if self._is_over:
            return
        try:
            with (self.run_dir / STDERR).open("rb") as file:
                head = file.read(HEAD_BYTES)
        except FileNotFoundError:
            return
        found = planned_steps(head.decode("utf-8", "replace"), self.spec)
        self._is_over = found is not None or len(head) == HEAD_BYTES
        if found:
            yield note(f"{found:,} steps planned", attempt=NOBODY, step=0, meta={"num_steps": found})


def planned_steps(text: str, spec: RunSpec) -> int | None:
    """Return how many steps the bars in `text` promise; None if they do not tell (yet)."""
    if match := _STEPS.search(text):
        return int(match["total"])
    if match := _EPOCH_OF.search(text):
        return int(match["epochs"]) * int(match["total"])
    epochs, micro_batches = _EPOCHS.search(text), _MICRO_BATCHES.search(text)
    if epochs and micro_batches:
        return int(epochs["total"]) * int(micro_batches["total"]) // _micro_batches_per_step(spec)
    return None


def _micro_batches_per_step(spec: RunSpec) -> int:
    """Return how many micro-batches of a rank make a step, as OpenRLHF's strategy (utils/deepspeed) has it."""
    values = {knob_id: chosen.value for knob_id, chosen in spec.knobs.items()}
    shared = int(values.get("parallel.tensor_parallel_size") or 1)
    shared *= int(values.get("parallel.sequence_parallel_size") or 1)
    batch = int(values["train.batch_size"] or 1) * shared
    ranks = max(1, group_size(values, "policy"))
    return max(1, batch // int(values["train.micro_batch_size"] or 1) // ranks)
