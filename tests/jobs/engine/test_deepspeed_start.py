"""What DeepSpeed is spared at its start: asked in a process of its own, as imports stay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[3]
PROGRAM = """
import os, sys
from jobs.engine import deepspeed_start
deepspeed_start.spare()
from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam  # as ZeRO does at each start
import deepspeed
print(sorted(name for name in sys.modules if name.startswith("torch._inductor.")))
print(deepspeed.ops.__compatible_ops__, os.environ.get("TORCHDYNAMO_DISABLE"))
"""


@pytest.mark.proof
def test_zero_asks_for_muon_without_a_compiler_and_compilers_stay_on() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TORCHDYNAMO_DISABLE"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=HOUSE, env=environment, capture_output=True, text=True, check=True)
    modules, answers = done.stdout.splitlines()[-2:]
    assert "lowering" not in modules
    assert answers == "{} None"
