"""Readings of NVIDIA devices, and what a node without any says."""

import os

import pytest

from jobs.runner.nodes.devices import device_bytes_of, device_readings, has_devices


@pytest.mark.skipif(has_devices(), reason="this machine has NVIDIA devices")
def test_a_node_without_devices_reads_nothing_and_holds_no_device_memory() -> None:
    assert device_readings() == {}
    assert device_bytes_of([os.getpid()]) == 0


@pytest.mark.gpu
def test_device_memory_of_a_process_is_counted() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("pynvml")
    held = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")

    bytes_held = device_bytes_of([os.getpid()])

    assert bytes_held is not None
    assert bytes_held >= held.numel()
    assert device_readings()["gpu0_memory_used_bytes"] >= held.numel()
