"""Say what this machine's NVIDIA GPUs can do for Pitwall: `python -m jobs.engine.gpu_check.check [--output FILE]`.

For machines where little is installed: the standard library alone; every check runs in a process of its own, for a
limited time. Prints (and writes) one JSON object. Exit code 1 only if something that is there does not work.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Status = Literal["ok", "failed", "absent", "not tried"]

ROOT = Path(__file__).resolve().parents[3]
PROBES = "jobs.engine.gpu_check.probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """What to try: a probe of `jobs.engine.gpu_check.probes`, the checks it needs, and how long it may take."""

    name: str
    needs: tuple[str, ...] = ("driver", "torch")
    seconds: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a check: `absent` if it is not installed, `not tried` if something it needs is missing."""

    status: Status
    text: str = ""
    seconds: float = 0.0
    found: dict[str, object] = field(default_factory=dict)


CHECKS = (
    GpuCheck(name="driver", needs=(), seconds=30),
    GpuCheck(name="torch", needs=(), seconds=120),
    GpuCheck(name="matmul"),
    GpuCheck(name="nccl"),
    GpuCheck(name="deepspeed", seconds=300),
    GpuCheck(name="vllm", seconds=600),
    GpuCheck(name="ray", needs=(), seconds=60),
    GpuCheck(name="nsys", needs=(), seconds=30),
)


def run_probe(check: GpuCheck) -> Result:
    """Run one probe in a process of its own. Its last line is JSON; exit code 3 means: not installed."""
    begin = time.monotonic()
    command = [sys.executable, "-m", PROBES, check.name]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=check.seconds, check=False)
    except subprocess.TimeoutExpired:
        return Result(status="failed", text=f"took longer than {check.seconds:.0f} s", seconds=check.seconds)
    seconds = round(time.monotonic() - begin, 2)
    lines = done.stdout.strip().splitlines()
    if done.returncode == 3:
        return Result(status="absent", text=lines[-1] if lines else "", seconds=seconds)
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Result(status="failed", text=why, seconds=seconds)
    return Result(status="ok", found=json.loads(lines[-1]), seconds=seconds)


def run_checks(checks: Sequence[GpuCheck], probe: Callable[[GpuCheck], Result]) -> dict[str, Result]:
    """Run the checks in order; what needs something that is not ok is not tried, and says so."""
    results: dict[str, Result] = {}
    for check in checks:
        missing = [name for name in check.needs if results[name].status != "ok"]
        if missing:
            results[check.name] = Result(status="not tried", text=f"needs {' and '.join(missing)}")
        else:
            results[check.name] = probe(check)
    return results


def report(results: dict[str, Result]) -> dict[str, object]:
    """Return everything as one JSON-able object."""
    return {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "checks": {name: asdict(result) for name, result in results.items()},
        "failed": [name for name, result in results.items() if result.status == "failed"],
        "not_tried": [name for name, result in results.items() if result.status in ("absent", "not tried")],
    }


def main() -> int:
    """Check, print, write; return the exit code."""
    parser = argparse.ArgumentParser(description="Say what this machine's NVIDIA GPUs can do for Pitwall.")
    parser.add_argument("--output", type=Path, default=Path("gpu-check.json"), help="where the JSON is written")
    options = parser.parse_args()
    results = run_checks(CHECKS, run_probe)
    text = json.dumps(report(results), indent=2)
    options.output.write_text(text + "\n")
    print(text)
    for name, result in results.items():
        print(f"{name:<10} {result.status:<10} {result.text}", file=sys.stderr)
    return 1 if any(result.status == "failed" for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
