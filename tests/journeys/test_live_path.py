"""A metric on its way from a runner's POST to real websockets, through the real web and ingest processes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from console.embedded.ports import free_block

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.stack
def test_every_viewer_gets_every_frame_of_the_benchmark() -> None:
    (port,) = free_block(1, seed="live path")  # none of those that the kernel hands out meanwhile
    argv = [
        sys.executable,
        "-m",
        "tests.bench.live_path",
        "--seconds",
        "3",
        "--viewers",
        "5",
        "--port",
        str(port),
    ]

    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    assert "none missing, none twice" in done.stdout
    delivered = int(re.search(r"([\d,]+) deliveries", done.stdout).group(1).replace(",", ""))  # type: ignore[union-attr]
    assert delivered > 5 * 20  # five viewers, and a metric every 20 ms for three seconds
