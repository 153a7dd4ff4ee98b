"""Which variables and secrets a spec takes: names that would break a run or let somebody out of it are refused."""

from typing import Any

import pytest

from jobs.catalog.spec.environment import read_variables, runs_code, variables_text, why_no_secret
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import to_json

SECRET = "hf_" + "aB3" * 11


def refusal(environment: Any) -> str:
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({"environment": environment})
    return str(refused.value)


def test_variables_are_texts_and_secrets_are_names() -> None:
    variables = {"NCCL_DEBUG": "INFO", "A": 1, "B": True}

    spec = to_json(parse_spec({"environment": {"variables": variables, "secrets": ["W", "HF_TOKEN", "HF_TOKEN"]}}))

    assert spec["environment"] == {
        "variables": {"A": "1", "B": "1", "NCCL_DEBUG": "INFO"},
        "secrets": ["HF_TOKEN", "W"],
    }


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("LD_PRELOAD", "loader"),
        ("ld_audit", "loader"),
        ("GLIBC_TUNABLES", "loader"),
        ("PYTHONPATH", "which code Python runs"),
        ("PYTHONSTARTUP", "which code Python runs"),
        ("RAY_ADDRESS", "Ray reads it when its nodes start"),
        ("RAY_JOB_CONFIG_JSON_ENV_VAR", "Ray reads it"),
        ("PITWALL_TOKEN", "Pitwall's own"),
        ("PITWALL_SECRETS", "Pitwall's own"),
        ("PATH", "found and started by it"),
        ("BASH_ENV", "found and started by it"),
        ("CUDA_VISIBLE_DEVICES", "its devices"),
        ("LOCAL_RANK", "in each rank"),
        ("CUDA_INJECTION64_PATH", "recorders"),
        ("A B", "up to 128 letters"),
        ("A=B", "up to 128 letters"),
        ("A\n", "up to 128 letters"),
        ("1A", "up to 128 letters"),
        ("", "up to 128 letters"),
        ("\u0391", "up to 128 letters"),
        ("BASH_FUNC_ls%%", "up to 128 letters"),
    ],
)
def test_names_that_break_or_escape_are_refused_as_variables_and_as_secrets(name: str, why: str) -> None:
    assert why in refusal({"variables": {name: "x"}})
    assert why in refusal({"secrets": [name]})


@pytest.mark.parametrize("name", ["NCCL_CUMEM_ENABLE", "PYTHONHASHSEED", "TOKENIZERS_PARALLELISM", "LD_LIBRARY_PATH"])
def test_what_runs_need_is_taken(name: str) -> None:
    assert parse_spec({"environment": {"variables": {name: "0"}}}).environment.variables == {name: "0"}


@pytest.mark.parametrize(
    "environment",
    [
        {"variables": {"HF_TOKEN": SECRET}},
        {"variables": {"PROXY": "http://me:hunter2-hunter2@proxy"}},
        {"variables": {"MINE": SECRET}},
        {"secrets": {"HF_TOKEN": SECRET}},
        {"secrets": [SECRET]},
        {"secrets": [f"HF_TOKEN={SECRET}"]},
        {"secrets": SECRET},
        {"variables": SECRET},
        {"variables": [SECRET]},
        {"variables": {SECRET: "x"}},
        {"variables": {"A": [SECRET]}},
    ],
)
def test_no_refusal_repeats_a_value(environment: Any) -> None:
    said = refusal(environment)

    assert SECRET not in said
    assert "hunter2" not in said


def test_lines_are_read_as_they_are_written() -> None:
    text = '# of NCCL\nexport NCCL_DEBUG=INFO\nNCCL_SOCKET_IFNAME="eth0, eth1"\n\nEMPTY=\nTWO=a=b'

    read = read_variables(text)

    assert isinstance(read, dict)
    assert read == {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "eth0, eth1", "EMPTY": "", "TWO": "a=b"}
    assert read_variables(variables_text(read)) == read
    assert read_variables("no assignment") == "no assignment"


def test_a_secret_that_could_not_be_hidden_is_refused() -> None:
    assert "recognized" in str(why_no_secret("short"))
    assert "recognized" in str(why_no_secret("  padded  "))
    assert "longer" in str(why_no_secret("x" * 10_000))
    assert why_no_secret("-----BEGIN KEY-----\nabc\n-----END KEY-----") is None


def test_what_makes_a_trainer_load_or_write_files_is_known() -> None:
    harmful, harmless = ("NCCL_NET_PLUGIN", "NCCL_DEBUG_FILE", "CC"), ("NCCL_DEBUG", "HF_TOKEN", "HF_HOME")

    assert [runs_code(name) for name in (*harmful, *harmless)] == [True] * 3 + [False] * 3
