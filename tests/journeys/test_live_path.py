"""A metric on its way from a runner's POST to real websockets, through the real web and ingest processes."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.stack
def test_every_viewer_gets_every_frame_of_the_benchmark() -> None:
    argv = [
        sys.executable,
        "-m",
        "tests.bench.live_path",
        "--seconds",
        "3",
        "--viewers",
        "5",
        "--port",
        str(free_port()),
    ]

    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert "none missing, none twice" in done.stdout
    delivered = int(re.search(r"([\d,]+) deliveries", done.stdout).group(1).replace(",", ""))  # type: ignore[union-attr]
    assert delivered > 5 * 20  # five viewers, and a metric every 20 ms for three seconds
