"""Quantities that were sampled beside a capture: counters of devices, memory of an allocator."""

from dataclasses import dataclass

from profiling.evidence import Evidence, Floats, Ints, RecordedTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One sampled quantity of one device (-1: of the host): `time` in Unix ns and `value`, both [n].

    `process` is the node, or what else the source tells devices of one number apart by; "" where it tells nothing.
    """

    recorded: RecordedTrace
    process: str
    device: int
    time: Ints
    value: Floats

    @property
    def where(self) -> tuple[int, str, str, int]:
        """Which device of which file it is of: counters of one device have the same."""
        return id(self.recorded), self.recorded.role, self.process, self.device

    @property
    def words(self) -> dict[str, object]:
        """How a sentence calls what it is of."""
        worker = f"{self.recorded.role} {self.recorded.rank}" if self.recorded.role else self.process
        whose = f" of {worker}" if worker else ""
        return {"device": f"device {self.device}{whose}"}


def counters(evidence: Evidence, *names: str) -> list[Counter]:
    """Return the counters of these names (any case) with samples, of every device and file of a capture."""
    wanted = {name.lower() for name in names}
    matches = []
    for recorded in evidence.recorded:
        for series in recorded.store.series:
            if series.name.lower() in wanted and series.samples:
                time, value = recorded.store.samples(series.id)
                one = Counter(recorded=recorded, process=series.process, device=series.device, time=time, value=value)
                matches.append(one)
    return matches
