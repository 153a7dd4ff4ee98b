"""verl's own checks say yes to our random specs and no to the broken ones; run by `make proof-conformance`.

It needs verl itself (`make trainer-env TRAINER=verl`): importing it takes seconds and brings torch, so `make test` goes
as far as Hydra.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.runspec import RunSpec
from tests.conformance.test_verl import number_of_specs, overrides_of
from tests.conformance.verl_rejected import rejected, starts

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.9.1"
PYTHON = ROOT / ".trainers" / f"verl-{VERSION}" / "bin" / "python"
MODEL = ROOT / "jobs" / "engine" / "bundled" / "tiny-word-problems"

pytestmark = pytest.mark.skipif(number_of_specs() < 500, reason="make proof-conformance runs verl's own checks")


def answers(specs: Sequence[RunSpec]) -> list[dict[str, Any]]:
    """Return what verl says to each spec's command."""
    assert PYTHON.exists(), f"There is no verl here: make trainer-env TRAINER=verl VERSION={VERSION}"
    asked = "".join(json.dumps(overrides_of(spec)[1]) + "\n" for spec in specs)
    command = [str(PYTHON), str(Path(__file__).with_name("real_verl.py")), str(MODEL)]
    env = {**os.environ, "VERL_PLATFORM": "cpu", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, input=asked, capture_output=True, text=True, env=env, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_verl_refuses_what_we_say_it_refuses_and_takes_what_that_was_made_from() -> None:
    valid, broken = list(starts(VERSION)), list(rejected(VERSION))
    said = answers([*valid, *(wrong.spec for wrong in broken)])

    assert [answer["text"] for answer in said[: len(valid)] if not answer["accepted"]] == []
    for wrong, answer in zip(broken, said[len(valid) :], strict=True):
        assert not answer["accepted"], f"{wrong.rule} {wrong.spec.algorithm}: verl takes it ({wrong.says})"
        assert wrong.says in f"{answer['kind']}: {answer['text']}", (wrong.rule, answer)
    assert len(broken) >= 80
    print(f"verl {VERSION}: {len(broken)} broken specs refused by its own checks")
