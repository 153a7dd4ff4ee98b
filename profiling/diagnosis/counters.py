"""Quantities that were sampled beside a capture: counters of devices, memory of an allocator."""

from dataclasses import dataclass

from profiling.analysis.workers import device_words
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
        whose = f"{self.recorded.role} {self.recorded.rank}" if self.recorded.role else self.process
        return {"device": device_words(self.device if self.device >= 0 else None, whose=whose)}


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


def memory_of_device(evidence: Evidence, counter: Counter) -> float:
    """Return all the memory of the device that a counter is of [bytes]; 0 where nothing tells it.

    A trace describes its devices, DCGM counts used and free memory [MiB], and a run reports its devices' memory.
    """
    return next(
        (
            whole
            for whole in (_described(counter), _counted(evidence, counter), _reported(evidence, counter))
            if whole > 0
        ),
        0.0,
    )


def _described(counter: Counter) -> float:
    described = counter.recorded.store.meta.get("devices")
    for about in described if isinstance(described, list) else ():
        if isinstance(about, dict) and about.get("id") == counter.device:
            whole = about.get("totalGlobalMem", about.get("memory"))
            return float(whole) if isinstance(whole, int | float) else 0.0
    return 0.0


def _counted(evidence: Evidence, counter: Counter) -> float:
    """Return the memory that DCGM tells of a device of that number: all nodes of a cluster have the same, as a rule."""
    used, free = (
        [one for one in counters(evidence, f"DCGM_FI_DEV_FB_{what}") if one.device == counter.device]
        for what in ("USED", "FREE")
    )
    return (float(used[0].value[-1]) + float(free[0].value[-1])) * 2**20 if used and free else 0.0


def _reported(evidence: Evidence, counter: Counter) -> float:
    readings = evidence.all_readings(f"gpu{counter.device}_memory_total_bytes")
    return max((float(one.finite.max()) for one in readings), default=0.0)
