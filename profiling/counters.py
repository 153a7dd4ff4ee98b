"""Quantities that were sampled beside a capture: counters of devices, memory of an allocator."""

from dataclasses import dataclass

from profiling.evidence import Evidence, Floats, Ints, Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One sampled quantity of one device (-1: of the host): `time` in Unix ns and `value`, both [n]."""

    recorded: Recorded
    device: int
    time: Ints
    value: Floats

    @property
    def words(self) -> dict[str, object]:
        """How a sentence calls what it is of."""
        whose = f" of {self.recorded.role} {self.recorded.rank}" if self.recorded.role else ""
        return {"device": f"device {self.device}{whose}"}


def counters(evidence: Evidence, *names: str) -> list[Counter]:
    """Return the counters of these names (any case) with samples, of every device and file of a capture."""
    wanted = {name.lower() for name in names}
    found = []
    for recorded in evidence.recorded:
        for series in recorded.store.series:
            if series.name.lower() in wanted and series.samples:
                time, value = recorded.store.samples(series.id)
                found.append(Counter(recorded=recorded, device=series.device, time=time, value=value))
    return found
