"""`can_it_run`, `diffusion` and `plan` without a token, a database or a console: the planner's own arithmetic."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.model import models
from jobs.catalog.recipe import recipes
from jobs.planner.can_it_run.language_models import can_it_run
from jobs.planner.shapes.known import shape_of
from tests.console.commands import run_command


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token, and a console's address at which nothing is: a test without a database fails where one is asked."""
    monkeypatch.delenv("PITWALL_API_TOKEN", raising=False)
    monkeypatch.setenv("PITWALL_URL", "http://127.0.0.1:9")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(dict(recipes()["verl-grpo-qwen3-8b-throughput"].raw), default=dict))
    return path


def test_the_headline_stands_first_with_host_memory_and_disk() -> None:
    code, out, err = run_command("can_it_run", "llama-3.1-70b", "--on", "h100")

    assert (code, err) == (0, "")
    headline = out.splitlines()[2]
    assert headline.startswith("h100-sxm: yes. It runs from 8 devices on, ")
    for word in ("of host RAM a node", "of disk for a checkpoint", "It is tight: it takes "):
        assert word in headline
    _code, mixture, _err = run_command("can_it_run", "qwen3-30b-a3b", "--on", "h200")
    assert "  Possible with offload from 1 device on, " in mixture


def test_figures_are_plain_and_notes_say_of_which_hardware_they_are() -> None:
    _code, out, _err = run_command("can_it_run", "qwen2.5-72b", "--on", "v100", "h100")

    assert "e+0" not in out.partition("Constants that move it most")[0]
    assert "note: v100-16: V100 SXM2 16 GB computes nothing in bf16" in out
    assert "note: The mean response length is not known" in out


def test_an_end_that_is_the_other_is_said_once_and_devices_without_a_name_are_said_to_have_none() -> None:
    _code, out, _err = run_command("can_it_run", "qwen3-30b-a3b", "--on", "h200")

    assert "supports: Qwen3-30B-A3B on 8 x devices not named" in out
    rows = out.partition("Constants that move it most")[2].splitlines()[1:6]
    assert [row for row in rows if re.search(r" ([\d.]+)–\1 ", row)] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["qwen3-8b", "--devices", "0"], "devices: 0 is not allowed. Use a number of at least 1."),
        (["qwen3-8b", "--on", "h100-sxm-80"], "The nearest is h100-sxm (H100 SXM 80 GB)."),
        ([""], "model: No model is named."),
    ],
)
def test_a_refusal_names_the_value_and_what_is_allowed(arguments: list[str], says: str) -> None:
    code, _out, err = run_command("can_it_run", *arguments)

    assert code == 3
    assert says in err


def test_json_is_what_the_api_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(dict(models()["qwen2.5-7b"].config)))
    code, out, _err = run_command(
        "can_it_run",
        str(tmp_path),
        "--method",
        "sft",
        "--on",
        "h200",
        "--within-hours",
        "2",
        "--host-gb",
        "900",
        "--json",
    )

    (option,) = json.loads(out)["options"]
    found = can_it_run(shape_of("qwen2.5-7b"), _h200(), "sft", within_hours=2.0, host_bytes=900 * 10**9)
    assert code == 0
    assert found.practical is not None
    assert (option["answer"], option["practical"]["devices"]) == ("yes", found.practical.num_devices)
    assert option["says"] == found.summary
    assert not any("Assumed" in line for line in option["more"])


def _h200() -> Any:
    from jobs.catalog.accelerator import find_accelerator

    return find_accelerator("h200")


def test_what_is_possible_and_no_more_is_exit_code_1() -> None:
    code, out, _err = run_command("can_it_run", "qwen3-30b-a3b", "--on", "h200", "--devices", "1")

    assert code == 1
    assert "h200-sxm: possible. It fits, but a step takes long" in out


def test_refusals_name_their_field() -> None:
    for arguments, says in (
        (("can_it_run", "qwen2.5-7b", "--on", "abacus"), "on: 'abacus' is not a known accelerator."),
        (("can_it_run", "qwen2.5-7b", "--within-hours", "0"), "within_hours: "),
        (("can_it_run", "nobody/knows-it"), "model: "),
        (("diffusion", "flux.1-dev", "--devices", "0"), "devices: "),
    ):
        code, _out, err = run_command(*arguments)
        assert code == 3
        assert says in err


def test_a_diffusion_transformer_is_answered() -> None:
    code, out, err = run_command("diffusion", "flux.1-dev", "--on", "h100")

    assert (code, err) == (0, "")
    assert "h100-sxm: yes. It runs from " in out


def test_a_spec_is_planned_with_advice_and_layouts_on_named_hardware(spec: Path) -> None:
    code, out, err = run_command("plan", str(spec), "--on", "h100", "--advice", "--layouts", "3")

    assert (code, err) == (0, "")
    for word in ("8 x H100", "What would make it faster", "layouts, by time"):
        assert word in out
    code, _out, err = run_command("plan", str(spec))
    assert code == 3
    assert "what_if: No hardware is named. Use --on h200" in err


def test_a_recipe_is_planned_on_the_hardware_that_it_names() -> None:
    code, out, err = run_command("plan", "--recipe", "verl-dapo-qwen3-30b-a3b")

    assert (code, err) == (0, "")
    assert "8 x H100" in out
    assert "the recipe's hardware" in out


def test_a_console_that_is_named_is_asked_with_a_token(spec: Path) -> None:
    from django.core.management.base import CommandError

    with pytest.raises(CommandError, match="No API token"):
        run_command("plan", str(spec), "--on", "h100", "--project", "pit")
