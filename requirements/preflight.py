"""Look whether this machine can hold Pitwall, before anything is installed.

`python3 requirements/preflight.py [--set engine] [--installed]`: exit code 1 and one sentence for each missing thing.
Standard library only, and it must also run on a Python that is too old, to say so.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

GIB = 1 << 30
MEMORY_BYTES = 6 * GIB  # the demo's four actors take 3.1 GiB, Ray 1.5, the console 0.4
CGROUP = "/sys/fs/cgroup"
SHARED_MEMORY = "/dev/shm"  # noqa: S108
SHARED_MEMORY_BYTES = 300 << 20  # Ray's object store of 256 MiB, and some room
# What an installation takes, and the same again for what pip downloads and unpacks; measured on 2026-11-20.
DISK_BYTES = {"console": 2 * GIB, "engine": 6 * GIB, "dev": 6 * GIB, "gpu": 30 * GIB}
CUDA_TORCH_BYTES = 12 * GIB  # where the index has no CPU build of torch: its CUDA packages take 4.7 GiB
CPU_FEATURES = ("avx2", "fma", "f16c")  # vLLM's CPU build has an AVX2 and an AVX512 library, nothing below
# The oldest driver that runs programs of a CUDA version, by its first number: NVIDIA, CUDA Compatibility.
DRIVERS = {12: (525,), 13: (580,)}
DRIVER_FILE = "/proc/driver/nvidia/version"
GPU_LOCK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu.lock")  # noqa: PTH100, PTH118, PTH120
PYTHONS = ((3, 11), (3, 12))
GLIBC = (2, 31)  # the newest that a locked wheel asks for; Debian 11, Ubuntu 20.04 and later have it


class Facts(NamedTuple):
    """What this machine is; sizes in bytes, None where it could not be found out."""

    python: tuple[int, int]
    has_venv: bool
    machine: str
    system: str
    glibc: tuple[int, int] | None
    cpu_features: frozenset[str]
    has_make: bool
    memory_bytes: int | None
    disk_bytes: int | None
    shared_memory_bytes: int | None
    has_nvidia: bool
    driver: tuple[int, ...] | None
    driver_cuda: tuple[int, int] | None


def read_facts(folder: str) -> Facts:
    """Ask the machine; `folder` is where the installation will stand."""
    has_nvidia = os.path.exists(DRIVER_FILE)  # noqa: PTH110
    return Facts(
        python=(sys.version_info[0], sys.version_info[1]),
        has_venv=bool(importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")),
        machine=platform.machine(),
        system=platform.system(),
        glibc=_glibc(),
        cpu_features=_cpu_features(),
        has_make=shutil.which("make") is not None,
        memory_bytes=_available_memory(),
        disk_bytes=_free(folder),
        shared_memory_bytes=_free(SHARED_MEMORY),
        has_nvidia=has_nvidia,
        driver=_driver() if has_nvidia else None,
        driver_cuda=driver_cuda() if has_nvidia else None,
    )


def problems(facts: Facts, *, chosen: str, is_installed: bool) -> list[str]:
    """Return a sentence for everything that stands in the way; `is_installed`: what installing needs does not count."""
    sentences = _python_problems(facts, is_installed=is_installed)
    if facts.system != "Linux" or facts.machine != "x86_64":
        sentences.append(
            f"Pitwall's locked packages are for Linux on x86_64; this is {facts.system} on {facts.machine}."
        )
    if facts.glibc is not None and facts.glibc < GLIBC:
        sentences.append(
            f"The C library is glibc {facts.glibc[0]}.{facts.glibc[1]}; packages need {GLIBC[0]}.{GLIBC[1]} or later. "
            "Use Debian 12, Ubuntu 22.04 or later."
        )
    if not facts.has_make:
        sentences.append("make is missing. Install it: apt-get install make.")
    if chosen != "console":
        sentences += _engine_problems(facts)
    if facts.disk_bytes is not None and not is_installed and facts.disk_bytes < DISK_BYTES[chosen]:
        sentences.append(
            f"Only {_gib(facts.disk_bytes)} are free on this disk; installing needs {_gib(DISK_BYTES[chosen])}. "
            "Delete something, or put the installation elsewhere: make VENV=/other/disk/venv."
        )
    if chosen == "gpu" and not facts.has_nvidia:
        sentences.append(
            "ENGINE=gpu was given, but no NVIDIA driver is loaded. Install the driver, or leave ENGINE=gpu out."
        )
    if chosen == "gpu" and facts.has_nvidia:
        sentences += driver_problems(facts.driver, facts.driver_cuda, locked_cuda())
    return sentences


def driver_problems(
    driver: tuple[int, ...] | None, driver_cuda: tuple[int, int] | None, needed: tuple[int, int] | None
) -> list[str]:
    """Return a sentence if a driver is too old for programs of the CUDA version `needed`; None is not known.

    What the driver's own library says that it runs (`driver_cuda`) counts first: NVIDIA's package cuda-compat lets an
    older driver of a data centre's card run newer programs.
    """
    if needed is None or needed[0] not in DRIVERS:
        return []
    least = DRIVERS[needed[0]]
    if driver_cuda is not None:
        is_too_old = driver_cuda[0] < needed[0]
    else:
        is_too_old = driver is not None and driver < least
    if not is_too_old:
        return []
    name = _dotted(driver) if driver else "of an unknown version"
    runs = f", which runs programs of CUDA up to {_dotted(driver_cuda)}" if driver_cuda else ""
    return [
        f"The NVIDIA driver is {name}{runs}; the locked torch is built for CUDA {_dotted(needed)} and needs driver "
        f"{_dotted(least)} or later. Update the driver, or leave ENGINE=gpu out."
    ]


def locked_cuda(lock: str = GPU_LOCK) -> tuple[int, int] | None:
    """Return the CUDA version of the locked torch: that of the toolkit which its packages are from."""
    try:
        with open(lock) as file:
            match = re.search(r"^cuda-toolkit==(\d+)\.(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return (int(match.group(1)), int(match.group(2))) if match else None


def driver_version(text: str) -> tuple[int, ...] | None:
    """Return the version of a driver in what /proc/driver/nvidia/version or nvidia-smi says; None if none is there."""
    match = re.search(r"(?:^|\s)(\d{3,}(?:\.\d+)+)\b", text)
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def _driver() -> tuple[int, ...] | None:
    try:
        with open(DRIVER_FILE) as file:
            read = driver_version(file.readline())  # the second line is of the compiler
    except OSError:
        read = None
    if read is not None or shutil.which("nvidia-smi") is None:
        return read
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return driver_version(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=30).stdout.decode())
    except (OSError, subprocess.SubprocessError):
        return None


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA version whose programs the driver's library runs."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)):
            return None
    except (OSError, AttributeError):
        return None
    return (number.value // 1000, number.value % 1000 // 10)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _python_problems(facts: Facts, *, is_installed: bool) -> list[str]:
    version = f"{facts.python[0]}.{facts.python[1]}"
    if facts.python not in PYTHONS:
        return [
            f"Python 3.11 or 3.12 is needed; this is {version}. Install it (Debian 12 and Ubuntu 24.04: "
            "apt-get install python3 python3-venv), or name one: make PYTHON=/path/to/python3.12."
        ]
    if not facts.has_venv and not is_installed:
        return [
            "Python's venv module is missing. Install it: apt-get install python3-venv "
            f"(python{version}-venv if this is not the system's own Python)."
        ]
    return []


def _engine_problems(facts: Facts) -> list[str]:
    sentences = []
    missing = [name for name in CPU_FEATURES if name not in facts.cpu_features]
    if missing:
        sentences.append(
            f"This CPU lacks {', '.join(missing)}, which vLLM's CPU build needs. Servers since about 2015 have "
            "it; in a virtual machine, pass the host's CPU model through."
        )
    if facts.memory_bytes is not None and facts.memory_bytes < MEMORY_BYTES:
        sentences.append(
            f"Only {_gib(facts.memory_bytes)} of memory are available; a run on this machine needs "
            f"{_gib(MEMORY_BYTES)}. Close other programs or use a larger machine."
        )
    return sentences


def warnings(facts: Facts, *, is_installed: bool) -> list[str]:
    """Return a sentence for everything that will work, but worse."""
    sentences = []
    if facts.shared_memory_bytes is not None and facts.shared_memory_bytes < SHARED_MEMORY_BYTES:
        sentences.append(
            f"{SHARED_MEMORY} has only {facts.shared_memory_bytes >> 20} MiB; Ray will keep its objects on disk, which "
            "is slower. In a container give it more: --shm-size=1g."
        )
    if facts.disk_bytes is not None and not is_installed and facts.disk_bytes < CUDA_TORCH_BYTES:
        sentences.append(
            f"{_gib(facts.disk_bytes)} are free on this disk. That is enough with torch's CPU build; if the package "
            f"index has only the standard one, its CUDA packages need {_gib(CUDA_TORCH_BYTES)}."
        )
    return sentences


def _glibc() -> tuple[int, int] | None:
    name, version = platform.libc_ver()
    parts = version.split(".")
    return (int(parts[0]), int(parts[1])) if name == "glibc" and len(parts) > 1 else None


def _cpu_features() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def _available_memory() -> int | None:
    """Return what can be used without swapping: of the machine, or of this control group if that is less."""
    available = None
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    available = int(line.split()[1]) * 1024
    except OSError:
        return None
    limit, used = _number(f"{CGROUP}/memory.max"), _number(f"{CGROUP}/memory.current")
    if available is not None and limit is not None and used is not None:
        return min(available, max(0, limit - used + _dropped_first()))
    return available


def _dropped_first() -> int:
    """Return how much of the control group's memory is files that nobody has looked at again: room, if it is needed."""
    try:
        with open(f"{CGROUP}/memory.stat") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("inactive_file ")), 0)
    except (OSError, ValueError):
        return 0


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):  # "max": no limit
        return None


def _free(folder: str) -> int | None:
    while not os.path.exists(folder) and folder != os.path.dirname(folder):  # noqa: PTH110, PTH120
        folder = os.path.dirname(folder)  # noqa: PTH120
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def main() -> int:
    """Print what is wrong; return the exit code."""
    parser = argparse.ArgumentParser(description="Check whether this machine can hold Pitwall.")
    parser.add_argument("--set", default="engine", choices=sorted(DISK_BYTES), help="which packages will be installed")
    parser.add_argument("--folder", default=".", help="where they will be installed")
    parser.add_argument("--installed", action="store_true", help="they are installed already")
    options = parser.parse_args()
    facts = read_facts(os.path.abspath(options.folder))  # noqa: PTH100
    refusals = problems(facts, chosen=options.set, is_installed=options.installed)
    for text in warnings(facts, is_installed=options.installed):
        print("Note: " + text, file=sys.stderr)
    for text in refusals:
        print("Missing: " + text, file=sys.stderr)
    return 1 if refusals else 0


if __name__ == "__main__":
    sys.exit(main())
