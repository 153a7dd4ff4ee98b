"""The planner by API: what is asked, by whom, and what comes back; prices and constants of a project."""

import json
from typing import Any

import pytest
from django.test import Client

from console.sign_in.api_token import make_token
from jobs.catalog.model import models
from jobs.models import AuditEvent, Project
from jobs.planner.constant import shipped_constants
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db

H200 = {"accelerator": "h200", "nodes": 1, "devices_per_node": 8}
CONFIG = dict(models()["qwen2.5-7b"].config)


@pytest.fixture
def project() -> Project:
    return make_project("pit")


def client_of(project: Project, role: str) -> Client:
    _row, token = make_token(user=make_user(project=project, role=role), name="test")
    return Client(headers={"Host": "localhost", "Authorization": f"Bearer {token}"})


def spec(model: str = "Qwen/Qwen2.5-7B", **more: Any) -> dict[str, Any]:
    kind = "path" if model.startswith("/") else "hub"
    return {
        "algorithm": "grpo",
        "trainer": {"name": "verl", "version": "0.9.1"},
        "model": {"kind": kind, "id": model},
        "knobs": {"placement.policy_gpus_per_node": 8},
        **more,
    }


def ask(client: Client, part: str = "", **body: Any) -> Any:
    path = f"/api/projects/pit/plan{part}"
    return client.post(path, json.dumps({"what_if": H200, **body}), content_type="application/json")


def problems(answer: Any) -> dict[str, str]:
    assert answer.status_code == 422, answer.content
    return {each["field"]: each["message"] for each in answer.json()["problems"]}


def test_the_whole_estimate_comes_back_and_its_parts_agree(project: Project) -> None:
    answer = ask(client_of(project, "viewer"), spec=spec())

    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert (found["parameters"], found["is_exact"]) == (7_615_616_512, True)
    assert found["fleet"]["accelerator"] == "h200-sxm"
    pool = next(pool for pool in found["pools"] if pool["name"] == found["pool"])
    phase = next(each for each in pool["phases"] if each["phase"] == found["phase"])
    assert found["term"] == max(phase["terms"], key=phase["terms"].get)
    for pool in found["pools"]:
        assert pool["share"] == pytest.approx(max(each["total"] for each in pool["phases"]) / pool["limit"])
        for each in pool["phases"]:
            assert each["total"] == sum(each["terms"].values())
            assert each["total"] == sum(sum(terms.values()) for terms in each["by_role"].values())
    step = found["time"]["step"]
    assert 0 < step["low"] <= step["middle"] <= step["high"]
    assert found["time"]["bottleneck"] in found["time"]["phases"]
    assert found["cost"]["money"] is None


def test_a_price_makes_money_of_device_hours(project: Project) -> None:
    admin = client_of(project, "admin")
    body = {"currency": "eur", "prices": {"H200": 3.5}}
    assert admin.patch("/api/projects/pit/plan-settings", body, content_type="application/json").status_code == 200

    found = ask(admin, spec=spec(knobs={"placement.policy_gpus_per_node": 8, "train.num_steps": 10})).json()

    assert found["cost"]["currency"] == "EUR"
    assert found["fleet"]["price"] == 3.5
    if found["cost"]["device_hours"] is not None:
        assert found["cost"]["money"]["middle"] == pytest.approx(found["cost"]["device_hours"]["middle"] * 3.5)


def test_a_config_stands_for_the_model_and_is_read_with_care(project: Project) -> None:
    viewer = client_of(project, "viewer")
    by_name, by_config = ask(viewer, spec=spec()), ask(viewer, spec=spec("nobody/knows-it"), config=CONFIG)
    broken = ask(viewer, spec=spec(), config={**CONFIG, "hidden_size": "wide"})

    assert by_name.json()["pools"] == by_config.json()["pools"]
    assert "hidden_size" in problems(broken)["config"]


def test_no_path_of_the_server_is_read_for_a_viewer(
    project: Project, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def spy(model: Any, **_: Any) -> dict[str, Any]:
        read.append(model.id)
        return CONFIG

    monkeypatch.setattr("jobs.preflight.preview.read_config", spy)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    refused = ask(client_of(project, "viewer"), spec=spec(str(tmp_path)))

    assert "not read for viewers" in problems(refused)["model.id"]
    assert read == []
    assert ask(client_of(project, "editor"), spec=spec(str(tmp_path))).status_code == 200
    assert read == [str(tmp_path)]


def test_a_folder_is_read_by_the_trial_process(project: Project, tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    editor = client_of(project, "editor")

    assert ask(editor, spec=spec(str(tmp_path))).json()["parameters"] == 7_615_616_512
    nothing = ask(editor, spec=spec(str(tmp_path / "nothing")))
    assert "There is no folder" in problems(nothing)["model.id"]


def test_a_folder_that_is_not_seen_is_taken_by_its_name_and_that_is_said(project: Project) -> None:
    found = ask(client_of(project, "viewer"), spec=spec("/nowhere/Qwen2.5-7B")).json()

    assert found["parameters"] == 7_615_616_512
    assert any("/nowhere/Qwen2.5-7B cannot be read from here" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("what_if", "field", "says"),
    [
        ({"accelerator": "h2000"}, "what_if.accelerator", "'h2000' is not a known accelerator. The nearest is"),
        ({"accelerator": "h200", "nodes": 0}, "what_if.nodes", "0 is not allowed. Use a number of at least 1."),
        ({"accelerator": "h200", "nodes": 2, "devices": 8}, "what_if.devices", "There is no field 'devices'"),
    ],
)
def test_hardware_that_cannot_be_is_refused(project: Project, what_if: Any, field: str, says: str) -> None:
    assert says in problems(ask(client_of(project, "viewer"), spec=spec(), what_if=what_if))[field]


def test_without_hardware_the_cluster_is_asked_and_says_what_it_lacks(project: Project) -> None:
    refused = ask(client_of(project, "viewer"), spec=spec(), what_if=None)

    assert "Choose hardware to plan for" in problems(refused)["what_if"]


def test_a_recipes_hardware_is_planned_for_where_the_cluster_has_none(project: Project) -> None:
    viewer = client_of(project, "viewer")
    found = ask(viewer, spec=spec(), what_if=None, recipe="verl-dapo-qwen3-30b-a3b").json()
    strange = problems(ask(viewer, spec=spec(), what_if=None, recipe="nobody"))

    assert found["fleet"]["accelerator"] == "h100-sxm"
    assert any("the recipe's hardware" in note for note in found["notes"])
    assert "There is no recipe 'nobody'" in strange["recipe"]


def test_advice_and_layouts_change_knobs_of_the_run(project: Project) -> None:
    editor = client_of(project, "editor")
    advice = ask(editor, "/advice", spec=spec("Qwen/Qwen2.5-72B")).json()
    layouts = ask(editor, "/layouts", spec=spec("Qwen/Qwen2.5-0.5B"), goal="cost", limit=4).json()

    assert set(advice) == {"fit", "faster", "together", "largest_terms", "levers", "constants"}
    assert advice["largest_terms"]
    assert advice["levers"] == advice["largest_terms"]  # by its former name
    assert advice["fit"]
    assert all(move["saved_bytes"] > 0 for move in advice["fit"])
    listed, rejected = len(layouts["layouts"]), sum(each["count"] for each in layouts["rejected"])
    assert 0 < listed <= 4
    assert layouts["considered"] == listed + layouts["unlisted"] + rejected + layouts["skipped"]
    assert "Use one of time, cost, room" in problems(ask(editor, "/layouts", spec=spec(), goal="joy"))["goal"]
    assert "from 1 to 100" in problems(ask(editor, "/layouts", spec=spec(), limit=0))["limit"]


def test_what_is_known_of_accelerators_and_models_is_listed(project: Project) -> None:
    viewer = client_of(project, "viewer")
    listed = {each["id"]: each for each in viewer.get("/api/accelerators").json()["accelerators"]}
    known = {each["id"]: each for each in viewer.get("/api/models").json()["models"]}

    assert listed["h200-sxm"]["usable_bytes"] > 140e9
    assert known["qwen3-30b-a3b"]["active_parameters"] == 3_353_032_704
    assert (known["qwen3-30b-a3b"]["is_exact"], known["qwen3-30b-a3b"]["rests_on"]) == (True, [])
    assert set(known) == set(models())


def test_prices_and_constants_are_changed_all_or_nothing(project: Project) -> None:
    admin = client_of(project, "admin")

    def patch(**body: Any) -> Any:
        return admin.patch("/api/projects/pit/plan-settings", body, content_type="application/json")

    constant = shipped_constants().all()[0]
    wrong = patch(currency="euros", prices={"h200": -1, "h2000": 1}, constants={constant.name: 1e30, "no.such": 1})
    assert set(problems(wrong)) == {
        "currency",
        "prices.h200",
        "prices.h2000",
        f"constants.{constant.name}",
        "constants.no.such",
    }
    project.refresh_from_db()
    assert (project.currency, project.prices, project.plan_constants) == ("USD", {}, {})
    assert not AuditEvent.objects.filter(verb="planner.set").exists()

    found = patch(prices={"NVIDIA H200": 3}, constants={constant.name: constant.high}).json()
    assert list(found["prices"]) == ["h200-sxm"]
    mine = next(each for each in found["constants"] if each["name"] == constant.name)
    assert (mine["value"], mine["shipped"], mine["is_own"]) == (constant.high, constant.value, True)
    kept = AuditEvent.objects.get(verb="planner.set")
    assert kept.after["plan_constants"] == {constant.name: constant.high}

    gone = patch(prices={"h200-sxm": None}, constants={constant.name: None}).json()
    assert gone["prices"] == {}
    assert not any(each["is_own"] for each in gone["constants"])


def test_an_own_value_that_no_longer_holds_is_told_and_not_used(project: Project) -> None:
    Project.objects.filter(pk=project.pk).update(plan_constants={"speed.gone": 1.0})
    found = client_of(project, "viewer").get("/api/projects/pit/plan-settings").json()

    assert "speed.gone" in found["outdated"]
    assert ask(client_of(project, "viewer"), spec=spec()).status_code == 200
