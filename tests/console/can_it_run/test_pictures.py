"""Can it run? for diffusion transformers: by name, by a pasted config.json, and what it refuses."""

import json
from html import unescape
from typing import Any

import pytest
from django.test import Client

from jobs.catalog.accelerator import accelerators
from jobs.catalog.diffusion_model import diffusion_models
from jobs.models import Project
from jobs.planner.diffusion.can_it_run import can_it_train
from jobs.planner.diffusion.job import DIFFUSION_METHODS, Picture
from jobs.planner.shapes.known import shape_of_diffusion
from tests.console.can_it_run.test_page import rows
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor() -> Client:
    project: Project = make_project("pit")
    client = Client()
    client.force_login(make_user(project=project, role="editor"), backend="django.contrib.auth.backends.ModelBackend")
    return client


def page(client: Client, **query: Any) -> str:
    answer = client.get("/guide/devices", query)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


@pytest.mark.parametrize("method", DIFFUSION_METHODS)
def test_a_known_model_has_the_planners_own_numbers(editor: Client, method: str) -> None:
    found = page(editor, model="black-forest-labs/FLUX.1-dev", method=method, on=["h100-sxm", "l40s"])

    assert "11,901,408,320" in found
    assert "hypothetical" in found
    assert "Plan a run with this" not in found
    for name, cells in rows(found).items():
        picture = Picture(width=1024, height=1024)
        expected = can_it_train(shape_of_diffusion("flux.1-dev"), accelerators()[name], method, picture=picture)
        assert cells[1] == expected.answer
        assert expected.practical is not None
        assert cells[2].split()[-1] == str(expected.practical.num_devices)


def test_a_pasted_config_is_the_same_model(editor: Client) -> None:
    config = json.dumps(dict(diffusion_models()["wan2.1-t2v-1.3b"].config))
    query = {"method": "sft", "on": "h100-sxm", "width": "832", "height": "480", "frames": "81"}

    pasted = page(editor, config=config, **query)
    named = page(editor, model="wan2.1-t2v-1.3b", **query)

    assert "1,418,996,800" in pasted
    assert rows(pasted)["h100-sxm"] == rows(named)["h100-sxm"]
    assert "clips of 832 × 480 pixels and 81 frames" in pasted


def test_encoders_and_stages_of_sharding_count(editor: Client) -> None:
    base: dict[str, Any] = {"model": "flux.1-dev", "method": "sft-lora", "on": "h100-sxm", "devices": "8"}

    def needed(**more: str) -> float:
        return float(rows(page(editor, **base, **more))["h100-sxm"][7])

    assert needed(encoders="1") - needed() == pytest.approx(2 * 4_969_190_819 / 2**30, abs=0.2)
    assert needed(zero="2") > needed()
    assert needed(recompute="0") > needed()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"method": "dpo"}, "is not a method for diffusion transformers"),
        ({"width": "1000"}, "takes multiples of 16 pixels"),
        ({"width": "-1"}, "Use a whole number from 1"),
        ({"width": "9" * 12}, "is not allowed for width"),
        ({"frames": "9"}, "makes pictures"),
        ({"zero": "7"}, "is not allowed for zero"),
        ({"encoders": "<b>"}, "is not allowed for encoders"),
        ({"config": '{"_class_name": "UNet2DConditionModel"}'}, "_class_name is 'UNet2DConditionModel'"),
        ({"config": '{"_class_name": "FluxTransformer2DModel", "num_layers": "x"}'}, "num_attention_heads is missing"),
    ],
)
def test_what_cannot_be_is_said_by_its_field(editor: Client, query: dict[str, str], says: str) -> None:
    found = page(editor, **{"model": "flux.1-dev", "method": "sft", "on": "h100-sxm", **query})

    assert says in found
    assert not rows(found)


def test_what_is_typed_is_never_markup(editor: Client) -> None:
    answer = editor.get("/guide/devices", {"model": "flux.1-dev", "encoders": "<b>", "width": '"><i>'})

    assert b"<b>'" not in answer.content
    assert b'"><i>' not in answer.content
