"""Can it run? by API: the planner's own numbers, hardware side by side, and refusals that name the field."""

import json
from typing import Any

import pytest

from jobs.catalog.accelerator import accelerators
from jobs.catalog.model import models
from jobs.models import Project
from jobs.planner.can_it_run.language_models import can_it_run
from jobs.planner.can_it_run.plans import METHODS, Demand
from jobs.planner.shapes.known import shape_of
from tests.console.plan.test_api import client_of, problems
from tests.rows import make_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def ask(project: Project, role: str = "viewer", **body: Any) -> Any:
    asked = {"model": "qwen2.5-7b", "on": ["h100"], **body}
    path = "/api/projects/pit/plan/can-it-run"
    return client_of(project, role).post(path, json.dumps(asked), content_type="application/json")


def test_the_answer_has_the_planners_own_numbers_side_by_side(project: Project) -> None:
    answer = ask(project, method="ppo", on=["h100", "RTX 4090", "h100-sxm"], max_prompt=512, prompts=32)

    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert (found["parameters"], found["method"], found["note"]) == (7_615_616_512, "ppo", "")
    assert {each["accelerator"] for each in found["options"]} == {"h100-sxm", "rtx-4090"}
    for each in found["options"]:
        demand = Demand(max_prompt=512, prompts=32)
        verdict = can_it_run(shape_of("qwen2.5-7b"), accelerators()[each["accelerator"]], "ppo", demand=demand)
        assert each["answer"] == verdict.answer
        assert [need["devices"] for need in each["needs"]] == [need.num_devices for need in verdict.needs]
        assert verdict.at is not None
        assert verdict.at.estimate is not None
        assert each["devices"] == verdict.at.num_devices
        assert each["step"]["middle"] == pytest.approx(verdict.at.estimate.time.step.middle)
        binding = verdict.at.estimate.binding.memory.terms
        assert list(each["terms"].values()) == sorted(binding.values(), reverse=True)[:3]
        assert 0 < each["band"] < 1
        assert each["constants"][0]["share"] >= each["constants"][-1]["share"] > 0
        assert len(each["published"]) == len(verdict.published)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_answered(project: Project, method: str) -> None:
    found = ask(project, model="qwen2.5-0.5b", method=method).json()

    assert found["options"][0]["answer"] == "yes"


def test_a_number_of_devices_is_judged_and_costed(project: Project) -> None:
    project.currency, project.prices = "EUR", {"h100-sxm": {"price": 2.5, "on": "2026-11-20"}}
    project.save()
    few = ask(project, model="llama-3.1-70b", method="sft", devices=1).json()
    enough = ask(project, model="llama-3.1-70b", method="sft", devices=64).json()

    assert [few["options"][0]["answer"], enough["options"][0]["answer"]] == ["possible", "yes"]
    (option,) = enough["options"]
    assert enough["currency"] == "EUR"
    assert option["cost_per_step"]["middle"] == pytest.approx(option["step"]["middle"] * 64 / 3600 * 2.5)


def test_one_device_is_said_as_one(project: Project) -> None:
    says = ask(project, model="qwen2.5-0.5b", method="sft").json()["options"][0]["says"]

    assert "from 1 device on" in says


def test_a_config_is_the_same_model_and_a_folder_is_not_read_for_a_viewer(project: Project, tmp_path: Any) -> None:
    config = dict(models()["qwen2.5-7b"].config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_name, by_config = ask(project, method="sft").json(), ask(project, model="", config=config, method="sft").json()

    assert by_name["options"] == by_config["options"]
    assert "not read for viewers" in problems(ask(project, model=str(tmp_path)))["model"]
    assert ask(project, "editor", model=str(tmp_path), method="sft").json()["options"] == by_name["options"]


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"method": "grop"}, "method", "Use one of sft"),
        ({"on": ["h1000"]}, "on", "is not a known accelerator"),
        ({"on": []}, "on", "at least 1"),
        ({"on": list(accelerators())[:9]}, "on", "at most 8"),
        ({"devices": 0}, "devices", "0 is not allowed. Use a number of at least 1."),
        ({"devices": True}, "devices", "true is not allowed. Use a whole number."),
        ({"max_prompt": 10**9}, "max_prompt", "1000000000 is not allowed. Use a number of at most 1,000,000."),
        ({"within_hours": -1}, "within_hours", "-1 is not allowed. Use a number above 0."),
        ({"within_hours": float("nan")}, "within_hours", ""),
        ({"within_hours": "8"}, "within_hours", "'8' is not allowed. Use a number."),
        ({"host_gb": float("inf")}, "host_gb", ""),
        ({"host_gb": 10**400}, "host_gb", ""),
        ({"model": "nobody/knows-it"}, "model", "is not a known model"),
        ({"config": {"model_type": "qwen2", "num_hidden_layers": -1}}, "config", "num_hidden_layers"),
        ({"mean_response": 4000, "max_response": 2000}, "mean_response", "longer than the longest response, 2,000"),
        ({"mean_prompt": 1025}, "mean_prompt", "A mean of 1,025 tokens is longer than the longest prompt, 1,024."),
        ({"more": 1}, "more", "There is no field 'more'"),
    ],
)
def test_what_cannot_be_is_refused_beside_its_field(project: Project, body: Any, field: str, says: str) -> None:
    assert says in problems(ask(project, **body))[field]
