"""What every device kind promises: one suite for each file of jobs/engine/devices. None of it needs the device."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import Hardware
from jobs.engine.device import Device, load_device
from profiling import plugins
from profiling.config import Device as DeviceName

ROOT = Path(__file__).resolve().parents[2]
NAMES = plugins.names("jobs.engine.devices")
METHODS = [name for name, value in vars(Device).items() if inspect.isfunction(value) and not name.startswith("_")]
HEAVY = ("torch", "ray", "deepspeed", "vllm")


def test_a_spec_can_ask_for_each() -> None:
    assert set(NAMES) == set(get_args(Hardware.model_fields["device"].annotation)) - {"auto"}
    assert set(NAMES) <= set(get_args(DeviceName))


@pytest.mark.parametrize("name", NAMES)
def test_it_has_what_the_contract_names(name: str) -> None:
    device = load_device(name)

    assert device.name == name
    assert device.gpus_per_worker >= 0
    assert device.collective_backend
    assert device.transfer_backend
    assert device.shared_transfer_backend not in ("", device.transfer_backend)
    assert isinstance(device.gives_back_memory, bool)
    assert isinstance(device.compiles_layers, bool)
    assert device.nsys_trace
    for method in METHODS:
        wanted = [p for p in inspect.signature(getattr(Device, method)).parameters if p != "self"]
        assert list(inspect.signature(getattr(device, method)).parameters) == wanted, method


@pytest.mark.parametrize("name", NAMES)
def test_the_driver_reads_it_without_a_heavy_library(name: str) -> None:
    code = (
        f"import sys\nfor each in {HEAVY!r}: sys.modules[each] = None\n"
        f"from jobs.engine.device import load_device\nd = load_device({name!r})\n"
        "print(d.name, d.collective_backend, d.gpus_per_worker)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )

    assert done.stdout.split()[:1] == [name], done.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tensor", [1, 2])
def test_an_engine_over_several_workers_gets_processes_of_its_own(name: str, tensor: int) -> None:
    spec = parse_spec({"hardware": {"policy_ranks": 2, "tensor_parallel_size": tensor}})

    arguments = load_device(name).rollout_arguments(spec)

    assert arguments["distributed_executor_backend"] == ("uni" if tensor == 1 else "mp")


@pytest.mark.parametrize("name", NAMES)
def test_the_worker_s_side_of_a_transfer_says_where_to_join(name: str) -> None:
    told = load_device(name).transfer_init(host="10.0.0.7", port=2900, world_size=3, rank_offset=1)

    assert {"10.0.0.7", 2900, 3, 1} <= set(told.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_shares_devices_is_told_where_to_read(name: str) -> None:
    device = load_device(name)
    spec = parse_spec({"hardware": {"layout": "colocated"}, "knobs": {"rollout.engine": "vllm"}})
    filling = {"names": ["a"], "ipc_handles": {"0": (1, 2)}}

    assert device.shared_transfer_init(source=2)
    assert device.update_info(filling, spec) == filling
    assert device.rollout_arguments(spec).get("enable_sleep_mode", False) is device.gives_back_memory


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_measured_is_told_as_such_and_never_raises(name: str) -> None:
    code = (
        "from jobs.engine.device import load_device\n"
        f"d = load_device({name!r})\nd.reset_peak()\nprint(d.allocated_bytes(), *d.peak_bytes())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )

    assert done.returncode == 0, done.stderr
    assert all(int(value) <= 0 for value in done.stdout.split())
