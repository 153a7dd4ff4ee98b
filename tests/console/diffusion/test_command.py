"""`manage.py diffusion`: the planner's answer on a diffusion transformer from the shell."""

import json
from pathlib import Path

import pytest

from console.sign_in.api_token import make_token
from jobs.catalog.diffusion_model import diffusion_models
from tests.console.commands import run_command
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _in_process(served_here: None) -> None:
    pass


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    user = make_user("ada", project=make_project("pit"), role="viewer")
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=user, name="cli")[1])


def test_a_known_model_is_planned_side_by_side() -> None:
    code, out, _err = run_command("diffusion", "flux.1-dev", "--on", "h100", "l40s", "--method", "grpo-lora")

    assert code == 0
    assert "11,901,408,320 parameters, 4,096 latent and 512 text tokens" in out
    assert "h100-sxm" in out
    assert "l40s" in out
    assert "hypothetical" in out


def test_a_config_that_fits_nowhere_is_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dict(diffusion_models()["qwen-image"].config)))

    asked = ("--config", str(path), "--on", "t4", "--devices", "1", "--width", "4096", "--height", "4096", "--json")
    code, out, _err = run_command("diffusion", *asked)

    assert code == 1
    assert json.loads(out)["options"][0]["answer"] == "no"


def test_what_is_refused_is_exit_code_3() -> None:
    code, _out, err = run_command("diffusion", "flux.1-dev", "--width", "1000")

    assert code == 3
    assert "multiples of 16 pixels" in err
