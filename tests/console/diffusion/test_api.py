"""Diffusion transformers by API: the planner's own numbers, exact counts, and refusals that name the field."""

import json
from typing import Any

import pytest

from jobs.catalog.accelerator import accelerators
from jobs.catalog.diffusion_model import diffusion_models
from jobs.models import Project
from jobs.planner.diffusion.can_it_run import can_it_train
from jobs.planner.diffusion.job import Picture
from jobs.planner.shapes.known import shape_of_diffusion
from tests.console.plan.test_api import client_of, problems
from tests.rows import make_project

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def ask(project: Project, **body: Any) -> Any:
    asked = {"model": "flux.1-dev", "on": ["h100"], **body}
    path = "/api/projects/pit/plan/diffusion"
    return client_of(project, "viewer").post(path, json.dumps(asked), content_type="application/json")


def test_the_answer_has_the_planners_own_numbers(project: Project) -> None:
    answer = ask(project, method="grpo", on=["h100", "l40s"])

    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert (found["parameters"], found["latent_tokens"], found["text_tokens"]) == (11_901_408_320, 4096, 512)
    for each in found["options"]:
        verdict = can_it_train(
            shape_of_diffusion("flux.1-dev"),
            accelerators()[each["accelerator"]],
            "grpo",
            picture=Picture(width=1024, height=1024),
        )
        assert each["answer"] == verdict.answer
        assert [need["devices"] for need in each["needs"]] == [need.num_devices for need in verdict.needs]
        assert set(each["seconds"]) == {"rollout", "reference", "update"}


def test_known_models_are_listed(project: Project) -> None:
    found = client_of(project, "viewer").get("/api/models").json()["diffusion_models"]

    assert {each["id"]: each["parameters"] for each in found}["qwen-image"] == 20_430_401_088
    assert len(found) == len(diffusion_models())


def test_a_config_is_the_same_model(project: Project) -> None:
    config = dict(diffusion_models()["sd3.5-large"].config)
    pasted = ask(project, model="", config=config, width=1024, height=1024).json()
    named = ask(project, model="stabilityai/stable-diffusion-3.5-large").json()

    assert pasted["parameters"] == named["parameters"] == 8_056_627_520
    assert pasted["options"] == named["options"]


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({"model": "flux.9"}, "model", "is not a known diffusion transformer"),
        ({"config": {"_class_name": "Dream"}}, "config", "_class_name is 'Dream'"),
        ({"config": {"_class_name": "FluxTransformer2DModel"}}, "config", "num_attention_heads is missing"),
        ({"width": 1000}, "width", "multiples of 16 pixels"),
        ({"frames": 5}, "frames", "makes pictures"),
        ({"trained_steps": 99}, "trained_steps", "Use a whole number from 1 to 10"),
        ({"on": ["abacus"]}, "on", "abacus"),
        ({"method": "dpo"}, "method", "sft"),
        ({"zero": 4}, "zero", "3"),
        ({"devices": True}, "devices", "a whole number"),
        ({"sorcery": 1}, "sorcery", ""),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(project: Project, body: dict[str, Any], field: str, says: str) -> None:
    found = problems(ask(project, **body))

    assert says in found[field]
