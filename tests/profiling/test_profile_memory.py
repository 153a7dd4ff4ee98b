"""What marks measure of memory: of a device that says what it holds, and of this process."""

import mmap
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from profiling import memory_marks, process_memory, profile
from profiling.profile import drain, mark

pytestmark = pytest.mark.usefixtures("no_marks")


def can_measure_peaks() -> bool:
    """Whether this kernel sets the high-water mark back."""
    files = process_memory.ProcessFiles()
    return files.peak_bytes() >= 0


class FakeDevice:
    """A device whose allocator is told what it holds; it remembers one peak, as real ones do."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def hold(self, size: int) -> None:
        self.now, self.most = size, max(self.most, size)

    def allocated_bytes(self) -> int:
        return self.now

    def peak_bytes(self) -> tuple[int, int]:
        return self.most, 2 * self.most

    def reset_peak(self) -> None:
        self.most = self.now


def fresh_pages(size: int) -> mmap.mmap:
    """Return memory that the process did not hold before; malloc may hand out what earlier tests have freed."""
    pages = mmap.mmap(-1, size)
    for offset in range(0, size, mmap.PAGESIZE):
        pages[offset] = 1
    return pages


def test_timers_measure_memory_of_process_and_device() -> None:
    device = FakeDevice()
    device.hold(100)
    profile.configure("timers", device=device)

    with mark("update", step=1):
        ballast = fresh_pages(64 << 20)
        device.hold(500)
        device.hold(160)

    memory = drain()[0].memory
    assert memory is not None
    assert memory.resident_end - memory.resident_begin > len(ballast) // 2
    assert (memory.device_begin, memory.device_end) == (100, 160)
    assert (memory.device_peak, memory.device_reserved_peak) == (500, 1000)


def test_a_peak_belongs_to_every_mark_around_it_and_to_none_beside_it() -> None:
    device = FakeDevice()
    profile.configure("timers", device=device)

    with mark("old_logprobs", step=1):
        device.hold(900)
        device.hold(100)
    with mark("update", step=1):
        device.hold(300)
        device.hold(100)
        with mark("update", name="forward"):
            device.hold(200)
            device.hold(100)
        with mark("update", name="backward"):
            device.hold(250)
            device.hold(50)
    with mark("weight_sync", step=1):
        pass

    peaks = {(s.phase, s.name): s.memory.device_peak for s in drain() if s.memory}
    assert peaks == {
        ("old_logprobs", ""): 900,
        ("update", "forward"): 200,
        ("update", "backward"): 250,
        ("update", ""): 300,
        ("weight_sync", ""): 50,
    }


def test_peaks_of_marks_that_overlap_on_threads_hold_what_each_has_seen() -> None:
    device = FakeDevice()
    profile.configure("timers", device=device)
    opened, grown = threading.Event(), threading.Event()

    def other() -> None:
        with mark("reference", step=1):
            opened.set()
            assert grown.wait(60)

    thread = threading.Thread(target=other)
    with mark("update", step=1):
        device.hold(700)
        device.hold(10)
        thread.start()
        assert opened.wait(60)
        device.hold(400)
        device.hold(10)
    device.hold(600)
    grown.set()
    thread.join()

    assert {s.phase: s.memory.device_peak for s in drain() if s.memory} == {"update": 700, "reference": 600}


@pytest.mark.skipif(not can_measure_peaks(), reason="this kernel sets no high-water mark back")
@pytest.mark.parametrize("marks", ["timers", "memory"])
def test_the_resident_peak_holds_what_was_freed_within_the_phase_and_not_before(marks: Any) -> None:
    profile.configure(marks)
    size = 64 << 20

    with mark("old_logprobs", step=1):
        fresh_pages(size).close()
    with mark("update", step=1):
        pass

    first, second = (s.memory for s in drain())
    assert first is not None
    assert second is not None
    assert first.resident_peak - first.resident_begin > 0.9 * size
    assert second.resident_peak - second.resident_begin < 0.1 * size


@pytest.mark.skipif(not can_measure_peaks(), reason="this kernel sets no high-water mark back")
def test_memory_in_use_leaves_out_what_malloc_keeps_of_an_earlier_phase() -> None:
    """Small blocks with one held at the top: malloc keeps the freed ones below it, and a peak would hold them."""
    code = (
        "import ctypes\n"
        "from profiling import profile\n"
        "profile.configure('memory')\n"
        "libc = ctypes.CDLL(None)\n"
        "libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]\n"
        "with profile.mark('old_logprobs', step=1):\n"
        "    blocks = [libc.malloc(1024) for _ in range(60_000)]\n"
        "    for block in blocks: ctypes.memset(block, 1, 1024)\n"
        "    for block in blocks[:-1]: libc.free(block)\n"
        "with profile.mark('update', step=1): pass\n"
        "first, second = [s.memory for s in profile.drain()]\n"
        "print(first.resident_peak - first.resident_begin, second.resident_peak - first.resident_begin)\n"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    first, second = map(int, said)
    assert first > 55_000_000
    assert second < 10_000_000  # the list of blocks stays


def test_a_kernel_without_the_file_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    files = process_memory.ProcessFiles()
    real = os.open

    def refuse(path: str, flags: int) -> int:
        if path.endswith("clear_refs"):
            raise PermissionError(path)
        return real(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(memory_marks, "FILES", files)
    profile.configure("timers")

    with mark("update", step=1):
        pass

    memory = drain()[0].memory
    assert memory is not None
    assert memory.resident_begin > 0
    assert memory.resident_peak == memory.device_peak == memory.device_reserved_peak == -1
