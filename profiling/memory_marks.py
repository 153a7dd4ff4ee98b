"""Memory over a mark: what is resident and what the device holds, at its begin, at its end, and at most in between."""

from typing import NamedTuple

from profiling.process_memory import FILES, NOT_MEASURED, DeviceMemory, HighWater, Peaks


class MarkMemory(NamedTuple):
    """Bytes at the begin and the end of a mark, and the most in between: resident in the process, and held on its
    device; -1 for what was not measured. `device_reserved_peak` is what the device's allocator kept, in use or not.
    """

    resident_begin: int
    resident_end: int
    device_begin: int = -1
    device_end: int = -1
    resident_peak: int = -1
    device_peak: int = -1
    device_reserved_peak: int = -1


Opened = tuple[int, int, list[Peaks]]
"""A mark that is open: resident bytes and bytes of the device at its begin, and its stretch of the high-water mark."""


class MemoryMarks:
    """Open and close marks. `device` is what tells of the device, None where there is none."""

    device: DeviceMemory | None = None

    def __init__(self) -> None:
        self._high_water = HighWater(read=self._peaks, reset=self._reset)

    @property
    def is_idle(self) -> bool:
        """Whether no mark is open."""
        return self._high_water.is_idle

    def problem(self) -> str:
        """Return why nothing can be measured here, "" if it can."""
        try:
            FILES.resident_bytes()
        except OSError:
            return "This system has no /proc/self/statm."
        return ""

    def begin(self) -> Opened:
        """Open a mark."""
        stretch = self._high_water.begin()
        return FILES.resident_bytes(), self._device_bytes(), stretch

    def end(self, opened: Opened) -> MarkMemory:
        """Close it; return what was measured."""
        resident_peak, device_peak, device_reserved_peak = self._high_water.end(opened[2])
        resident, device = FILES.resident_bytes(), self._device_bytes()
        return MarkMemory(
            resident_begin=opened[0],
            resident_end=resident,
            device_begin=opened[1],
            device_end=device,
            # The kernel counts pages per core and adds them up now and then: never say less than what was read.
            resident_peak=max(resident_peak, opened[0], resident) if resident_peak >= 0 else NOT_MEASURED,
            device_peak=device_peak,
            device_reserved_peak=device_reserved_peak,
        )

    def _device_bytes(self) -> int:
        return self.device.allocated_bytes() if self.device else NOT_MEASURED

    def _peaks(self) -> Peaks:
        if self.device is None:
            return FILES.peak_bytes(), NOT_MEASURED, NOT_MEASURED
        return FILES.peak_bytes(), *self.device.peak_bytes()

    def _reset(self) -> None:
        FILES.reset_peak()
        if self.device:
            self.device.reset_peak()
