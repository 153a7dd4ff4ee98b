"""A piece of code in a process of its own, as workers are, and the numbers that it tells."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from profiling.launch_nsys import runtime_env
from tests.bench.stage import ROOT, Result


def run(code: str, *arguments: str, under_nsys: bool = False, preload: Path | None = None) -> dict[str, list[float]]:
    """Run a piece of code in a process of its own, with a library before all others, and return what it told."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    with tempfile.TemporaryDirectory(prefix="pw-bench-") as folder:
        program = Path(folder) / "program.py"
        program.write_text(code)
        command = [sys.executable, str(program), *arguments]
        if under_nsys:  # as Ray starts a worker
            executable = runtime_env(ready="on", trace="nvtx")["py_executable"]
            command = ["bash", "-c", f"exec {executable} {shlex.join(command[1:])}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr
    return json.loads(lines[-1])  # type: ignore[no-any-return]


def result(what: str, values: list[float], unit: str, command: str) -> Result:
    """Return one number as the table shows it."""
    ordered = sorted(values)
    return Result(
        what=what,
        median=ordered[len(ordered) // 2],
        spread=(ordered[0], ordered[-1]),
        unit=unit,
        command=command,
    )
