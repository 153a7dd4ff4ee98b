"""The short case of `make proof-live`: viewers come and go, ingest is killed, and nothing is missing or doubled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from console.embedded.ports import free_block
from jobs.telemetry.frames import encode_frame
from tests.proofs.live_points import SERIES, event
from tests.proofs.live_viewers import Audience

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.stack
@pytest.mark.slow("a console with its processes, and a load that outlasts the death of one")
def test_nothing_is_lost_when_ingest_is_killed_under_load() -> None:
    (port,) = free_block(1, seed="live under load")
    load = ["--load", "2000,12,4,1", "--seconds", "3"]
    argv = [sys.executable, "-m", "tests.proofs.live", "--short", "--databases", "sqlite", "--port", str(port), *load]

    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    (case,) = json.loads(done.stdout.splitlines()[-1])
    assert (case["gaps"], case["duplicates"], case["wrong"]) == (0, 0, 0)
    assert case["stored"] == case["emitted"] > 2000 * 3
    assert case["connections"] > 12  # some did leave and come back


def frame(seq: int, *steps: int, shift: float = 0.0) -> str:
    """Return the text of a frame with the events of these steps, the first value off by `shift`."""
    events = [event(step) for step in steps]
    events[0]["values"]["proof/00"] += shift
    return encode_frame(seq=seq, attempt=1, events=events, logs=[]).decode()


def audience(*texts: tuple[int, str]) -> Audience:
    """Return an audience of one after these frames."""
    watching = Audience({"viewers": 1, "flapping": 0, "slow": 0})
    for seq, text in texts:
        watching._take(watching.viewers[0], seq, text, 0, 0)
    return watching


def test_the_proof_would_notice_what_it_promises() -> None:
    good = audience((1, frame(1, 1, 2)), (2, frame(2, 3)))
    doubled = audience((1, frame(1, 1)), (1, frame(1, 1)))
    missing = audience((1, frame(1, 1)), (3, frame(3, 2)))
    skipped = audience((1, frame(1, 1)), (2, frame(2, 3)))
    changed = audience((1, frame(1, 1, 2, shift=0.5)))

    assert (good.ledger.wrong, good.viewers[0].gaps, good.viewers[0].duplicates) == (0, 0, 0)
    assert doubled.viewers[0].duplicates == 1
    assert missing.viewers[0].gaps == 1
    assert skipped.ledger.wrong == SERIES
    assert changed.ledger.wrong == 1
    changed.ledger.check(1, frame(1, 1, 2))
    assert changed.ledger.wrong == 2  # another viewer got another text
