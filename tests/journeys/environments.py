"""Environments of other trainers, made as people make them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def make_environment(trainer: str) -> str:
    """Make the trainer's environment as `make trainer-env` does, unless it is there; return its interpreter."""
    command = [sys.executable, "requirements/trainer_env.py", trainer, "--venv", sys.prefix]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]
