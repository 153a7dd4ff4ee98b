"""How many steps a trainer will do, from the progress bars that it draws: where data decide, the spec does not say."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from jobs.adapters.checkpoints import origin_of
from jobs.adapters.logs.gathering import NOBODY
from jobs.catalog.spec.runspec import RunSpec
from profiling.events import Event, note

STDERR = "log/driver-0.stderr"
HEAD_BYTES = 1 << 20  # bars are drawn from the first step on; what comes later is not waited for
BAR = r":\s+\d+%\|[^|\r\n]*\|\s*\d+/(?P<total>\d+) \["
"""What a progress bar of tqdm has behind its name, as a pattern."""


@dataclass(slots=True, kw_only=True)
class StepCount:
    """Reports the number of steps once, as soon as `count` reads it off the bars; never where the spec says it.

    `count` is given the bars, the spec, and the step that the attempt was resumed from.
    """

    spec: RunSpec
    run_dir: Path
    count: Callable[[str, RunSpec, int], int | None]
    _is_over: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._is_over = self.spec.num_steps > 0

    def events(self) -> Iterator[Event]:
        """Yield the note that says how many steps are planned. Raises: OSError."""
        if self._is_over:
            return
        try:
            with (self.run_dir / STDERR).open("rb") as file:
                head = file.read(HEAD_BYTES)
        except FileNotFoundError:
            return
        num_steps = self.count(head.decode("utf-8", "replace"), self.spec, origin_of(self.run_dir))
        self._is_over = num_steps is not None or len(head) == HEAD_BYTES
        if num_steps:
            yield note(f"{num_steps:,} steps planned", attempt=NOBODY, step=0, meta={"num_steps": num_steps})
