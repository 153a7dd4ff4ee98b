"""Ray workers that need not import torch, DeepSpeed and vLLM: tests start the engine some thirty times."""

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
START = str(Path(__file__).parent / "start")
SOCKET = "PITWALL_TEST_WARM_WORKERS"
START_SECONDS = 120.0


@contextlib.contextmanager
def cold_workers(environ: Mapping[str, str]) -> Iterator[None]:
    """Have workers of that head start as always: where what a process holds is measured.

    Several may ask for it at a time.
    """
    off = Path(environ[SOCKET] + ".off") / secrets.token_hex(8)
    off.touch()
    try:
        yield
    finally:
        off.unlink()


@contextlib.contextmanager
def warm_workers(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the environment of a Ray head whose plain workers are forked from one that has imported the libraries."""
    with tempfile.TemporaryDirectory(prefix="pw-warm-", dir="/tmp") as folder:
        path = Path(folder) / "socket"
        Path(f"{path}.off").mkdir()
        path_of_python = os.pathsep.join((START, environ.get("PYTHONPATH", "")))
        with (Path(folder) / "log").open("wb") as log:
            command = [sys.executable, "-m", "tests.warm_workers.server", str(path)]
            server = subprocess.Popen(command, cwd=ROOT, env=dict(environ), stdout=log, stderr=log)
        try:
            wait_until(lambda: path.exists() or server.poll() is not None, START_SECONDS, "no warm workers")
            assert server.poll() is None, (Path(folder) / "log").read_text()
            yield {**environ, SOCKET: str(path), "PYTHONPATH": path_of_python}
        finally:
            server.kill()
            server.wait()
