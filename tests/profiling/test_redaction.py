"""What counts as a secret of a process, and that a report keeps its length without it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiling.redaction import overwrite, own_secrets, secrets_of


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("RAY_AUTH_TOKEN", "c0ffee-c0ffee", "c0ffee-c0ffee"),
        ("HF_TOKEN", "hf_abcdefgh", "hf_abcdefgh"),
        ("WANDB_API_KEY", "0123456789", "0123456789"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI", "wJalrXUtnFEMI"),
        ("DATABASE_URL", "postgres://pitwall:open-sesame@db:5432/pitwall", "open-sesame"),
        ("https_proxy", "http://:open-sesame@proxy:3128", "open-sesame"),
        ("RAY_JOB_CONFIG", json.dumps({"runtime_env": {"env_vars": {"PITWALL_TOKEN": "4f5e6d7c"}}}), "4f5e6d7c"),
    ],
)
def test_a_secret_is_known_by_its_name_or_by_its_place(name: str, value: str, secret: str) -> None:
    assert secrets_of({name: value}) == {secret.encode()}


@pytest.mark.parametrize(
    ("name", "value"),
    [("RAY_AUTH_MODE", "token"), ("TOKENIZERS_PARALLELISM", "false"), ("GREETING", "good morning"), ("X", "{not json")],
)
def test_what_is_no_secret_stays(name: str, value: str) -> None:
    assert secrets_of({name: value}) == frozenset()


def test_a_secret_that_left_the_environment_is_still_known() -> None:
    code = "import os; del os.environ['A_TOKEN']; from profiling.redaction import own_secrets; print(own_secrets())"
    environment = {**os.environ, "A_TOKEN": "still-here"}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert "still-here" in done.stdout
    assert b"still-here" not in own_secrets()


def test_the_file_keeps_its_length_and_all_else(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"\0A=sekret-1\0sekret-1-longer\0sekret-1sekret-1\0end")

    count = overwrite(path, [b"sekret-1", b"sekret-1-longer", b"not there"])

    assert count == 4
    assert path.read_bytes() == b"\0A=********\0***************\0****************\0end"
