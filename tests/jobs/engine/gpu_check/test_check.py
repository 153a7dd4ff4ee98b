"""The look at a GPU machine: what fails counts, what is missing is said."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.engine.gpu_check.check import CHECKS, GpuCheck, Result, report, run_checks
from jobs.engine.gpu_check.probes import nsys

ROOT = Path(__file__).resolve().parents[4]


def all_ok(check: GpuCheck) -> Result:
    return Result(status="ok", found={"name": check.name})


def test_every_check_runs_on_a_good_machine() -> None:
    results = run_checks(CHECKS, all_ok)
    assert {result.status for result in results.values()} == {"ok"}
    assert report(results)["failed"] == []


def test_without_a_driver_nothing_that_needs_one_is_tried() -> None:
    def probe(check: GpuCheck) -> Result:
        return Result(status="absent", text="no driver") if check.name == "driver" else all_ok(check)

    results = run_checks(CHECKS, probe)

    assert {name for name, result in results.items() if result.status == "not tried"} == {
        "matmul",
        "nccl",
        "deepspeed",
        "vllm",
    }
    assert results["nccl"].text == "needs driver"
    assert report(results)["failed"] == []


def test_what_is_there_and_does_not_work_is_a_failure() -> None:
    def probe(check: GpuCheck) -> Result:
        return Result(status="failed", text="no kernel image") if check.name == "nccl" else all_ok(check)

    assert report(run_checks(CHECKS, probe))["failed"] == ["nccl"]


@pytest.mark.proof
def test_this_machine_gets_an_answer(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "jobs.engine.gpu_check.check", "--output", str(output)]

    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=1500)

    answer = json.loads(output.read_text())
    assert set(answer["checks"]) == {check.name for check in CHECKS}
    assert (done.returncode == 0) == (answer["failed"] == [])
    if not Path("/proc/driver/nvidia/version").exists():
        assert answer["checks"]["driver"]["text"] == "no NVIDIA driver is loaded"
        assert "matmul" in answer["not_tried"]


def test_nsys_records_a_report_where_it_is_installed() -> None:
    if shutil.which("nsys") is None:
        pytest.skip("nsys is not installed: the package nsight-systems (docs/operate/install.md)")
    assert nsys()["report_bytes"] > 0


@pytest.mark.gpu
def test_everything_works_on_a_gpu(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "jobs.engine.gpu_check.check", "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=1500)
    checks = json.loads(output.read_text())["checks"]
    assert {checks[name]["status"] for name in ("driver", "torch", "matmul", "nccl", "deepspeed", "vllm")} == {"ok"}
