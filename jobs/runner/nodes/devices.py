"""Read NVIDIA devices through NVML where there are any. Not for deciding anything: only for showing and proving."""

import contextlib
from collections.abc import Sequence
from functools import cache
from typing import Any


@cache
def _nvml() -> Any:
    """Return the NVML binding, initialized; None on a node without driver or binding."""
    try:
        import pynvml
    except ImportError:
        return None
    with contextlib.suppress(Exception):  # each driver has its own way of not being there
        pynvml.nvmlInit()
        return pynvml
    return None


def has_devices() -> bool:
    """Return True if the kernel driver of NVIDIA devices is loaded, whether or not they can be read."""
    with contextlib.suppress(OSError), open("/proc/driver/nvidia/version", "rb"):
        return True
    return False


def device_readings() -> dict[str, float]:
    """Return memory, use, power and temperature of each device, by `gpu<index>_<what>_<unit>`."""
    nvml = _nvml()
    values: dict[str, float] = {}
    if nvml is None:
        return values
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        with contextlib.suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            values[f"gpu{index}_memory_used_bytes"] = float(memory.used)
            values[f"gpu{index}_memory_total_bytes"] = float(memory.total)
        with contextlib.suppress(nvml.NVMLError):
            values[f"gpu{index}_busy_percent"] = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        with contextlib.suppress(nvml.NVMLError):
            values[f"gpu{index}_power_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        with contextlib.suppress(nvml.NVMLError):
            values[f"gpu{index}_temperature_celsius"] = float(
                nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            )
    return values


def device_names() -> list[str]:
    """Return the name of each device of this node, [] where there are none or none can be read."""
    nvml, names = _nvml(), []
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            names = [
                _text(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index)))
                for index in range(nvml.nvmlDeviceGetCount())
            ]
    return names


def driver_version() -> str:
    """Return the version of the devices' driver, "" where there is none or it cannot be read."""
    nvml = _nvml()
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            return _text(nvml.nvmlSystemGetDriverVersion())
    return ""


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def device_bytes_of(pids: Sequence[int]) -> int | None:
    """Return the device memory that `pids` hold; 0 on a node without devices, None if it cannot be read."""
    by_pid = device_bytes_by_pid()
    return None if by_pid is None else sum(by_pid.get(pid, 0) for pid in set(pids))


def device_bytes_by_pid() -> dict[int, int] | None:
    """Return the memory that each process holds on all devices; {} on a node without devices, None if it cannot be
    read."""
    nvml = _nvml()
    if nvml is None:
        return None if has_devices() else {}
    by_pid: dict[int, int] = {}
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
                by_pid[process.pid] = by_pid.get(process.pid, 0) + (process.usedGpuMemory or 0)
    except nvml.NVMLError:
        return None
    return by_pid
