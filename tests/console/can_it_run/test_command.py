"""`manage.py can_it_run`: Can it run? from the shell; an exit code that says whether it does anywhere."""

import json
from pathlib import Path

import pytest

from console.sign_in.api_token import make_token
from jobs.catalog.model import models
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


def test_hardware_stands_side_by_side_with_what_it_takes() -> None:
    code, out, _err = run_command("can_it_run", "qwen2.5-7b", "--method", "grpo", "--on", "h100", "rtx-4090")

    assert code == 0
    assert "7,615,616,512 parameters" in out
    for word in ("h100-sxm", "rtx-4090", "fewest", "largest in", "Constants that move it most", "supports: "):
        assert word in out


def test_what_runs_nowhere_is_exit_code_1() -> None:
    code, out, _err = run_command("can_it_run", "llama-3.1-70b", "--method", "grpo", "--on", "l4", "--devices", "1")

    assert code == 1
    assert "no" in out.split()


def test_json_holds_the_whole_answer_of_a_config(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(dict(models()["qwen2.5-7b"].config)))
    code, out, _err = run_command("can_it_run", "--config", str(config), "--method", "sft", "--on", "h200", "--json")

    assert code == 0
    assert json.loads(out)["parameters"] == 7_615_616_512


def test_a_model_type_that_is_not_known_is_counted_about_right_and_says_so(tmp_path: Path) -> None:
    known = dict(models()["qwen2.5-0.5b"].config)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**known, "model_type": "novel", "architectures": ["NovelForCausalLM"], "bells": 3}))
    asked = ("can_it_run", "--config", str(config), "--method", "sft", "--on", "h200")
    _code, out, _err = run_command(*asked)

    assert "about 0.494 B parameters" in out
    assert "note: Its model type 'novel' is not known: counted as most decoders are built." in out
    _code, out, _err = run_command(*asked, "--json")
    answer = json.loads(out)
    assert (answer["is_exact"], answer["rests_on"][1]) == (
        False,
        "These keys of its config were not understood: bells.",
    )


def test_refusals_stand_beside_their_fields() -> None:
    code, _out, err = run_command("can_it_run", "qwen2.5-7b", "--on", "abacus")
    assert code == 3
    assert "on: 'abacus' is not a known accelerator." in err
    code, _out, err = run_command("can_it_run", "qwen2.5-7b", "--method", "joy")
    assert code == 3
    assert "method: 'joy' is not a known method." in err
