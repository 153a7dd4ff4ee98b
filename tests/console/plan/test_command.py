"""`manage.py plan`: the planner from the shell, through the API; an exit code that says whether it fits."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.sign_in.api_token import make_token
from tests.console.commands import run_command
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db

SPEC = {"algorithm": "sft", "trainer": {"name": "verl", "version": "0.9.1"}, "model": {"kind": "hub"}}


@pytest.fixture(autouse=True)
def _in_process(served_here: None) -> None:
    pass


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    user = make_user("ada", project=make_project("pit"), role="viewer")
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=user, name="cli")[1])


def plan(tmp_path: Path, model: str, *options: str, **more: Any) -> tuple[int, str, str]:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**SPEC, "model": {"kind": "hub", "id": model}, **more}))
    return run_command("plan", str(path), *options)


def test_a_small_model_fits_and_every_phase_is_told(tmp_path: Path) -> None:
    code, out, _err = plan(tmp_path, "Qwen/Qwen2.5-0.5B", "--on", "H100", "--nodes", "1")

    assert code == 0
    assert out.startswith("Fits: ")
    for word in ("update", "checkpoint", "activations", "step", "tokens/s", "device hours", "host memory"):
        assert word in out


def test_what_does_not_fit_is_exit_code_1_with_what_would_help(tmp_path: Path) -> None:
    code, out, _err = plan(tmp_path, "Qwen/Qwen2.5-72B", "--on", "h100", "--per-node", "1", "--advice")

    assert code == 1
    assert out.startswith("Does not fit: ")
    assert "What would make it fit" in out
    assert "What would make it faster" in out


def test_json_holds_the_whole_answers(tmp_path: Path) -> None:
    code, out, _err = plan(tmp_path, "Qwen/Qwen2.5-7B", "--on", "h200", "--layouts", "3", "--goal", "room", "--json")
    found = json.loads(out)

    assert code in (0, 1)
    assert found["plan"]["parameters"] == 7_615_616_512
    assert found["plan"]["fleet"]["accelerator"] == "h200-sxm"
    assert len(found["layouts"]["layouts"]) <= 3
    assert found["layouts"]["goal"] == "room"


def test_refusals_stand_beside_their_fields(tmp_path: Path) -> None:
    code, _out, err = plan(tmp_path, "Qwen/Qwen2.5-7B", "--on", "abacus")
    assert code == 3
    assert "what_if.accelerator: 'abacus' is not a known accelerator." in err

    code, _out, err = plan(tmp_path, "nobody/knows-it", "--on", "h200")
    assert code == 3
    assert "model.id: 'nobody/knows-it' is not a known model." in err


def test_a_config_stands_for_a_model_that_is_not_known(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "hidden_size": -1}')
    code, _out, err = plan(tmp_path, "nobody/knows-it", "--on", "h200", "--config", str(config))

    assert code == 3
    assert "config: " in err
