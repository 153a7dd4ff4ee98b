"""Questions made to break the planner: each is refused with a sentence or answered, within bounded work."""

import json
import re
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.sign_in.api_token import make_token
from jobs.catalog.model import models
from jobs.catalog.recipe import recipes
from jobs.models import Project
from jobs.planner.constant import shipped_constants
from jobs.planner.shapes.config_values import LAYER_LIMIT
from jobs.planning.settings import MAX_CHANGES
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db

SPEC = dict(recipes()["verl-grpo-qwen3-8b"].raw)
MIXTURE = dict(recipes()["verl-grpo-deepseek-v3-128gpu"].raw)
CONFIG = dict(models()["qwen3-8b"].config)
H200 = {"accelerator": "h200", "nodes": 1, "devices_per_node": 8}
MARK = "<img src=x onerror=alert(1)>"
PARTS = ("", "/advice", "/layouts")


class Attacker:
    """Somebody of a project, by API and as browser; faults (500) come back as answers."""

    def __init__(self, role: str = "admin") -> None:
        self.project = Project.objects.filter(slug="pit").first() or make_project("pit")
        user = make_user(project=self.project, role=role)
        signed = {"Host": "localhost", "Authorization": f"Bearer {make_token(user=user, name='t')[1]}"}
        self.api = Client(headers=signed, raise_request_exception=False)
        self.web = Client(headers={"Host": "localhost"}, raise_request_exception=False)
        self.web.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    def plan(self, part: str = "", *, raw: str = "", project: str = "pit", **body: Any) -> Any:
        """Ask the planner; `raw` is the text of config.json as it stands in the request."""
        text = json.dumps({"spec": SPEC, "what_if": H200, **body})
        text = f'{text[:-1]}, "config": {raw}}}' if raw else text
        return self.api.post(f"/api/projects/{project}/plan{part}", text, content_type="application/json")

    def set(self, body: str | dict[str, Any], *, project: str = "pit") -> Any:
        """Change the project's planner settings."""
        raw = body if isinstance(body, str) else json.dumps(body)
        return self.api.patch(f"/api/projects/{project}/plan-settings", raw, content_type="application/json")


@pytest.fixture
def attacker() -> Attacker:
    return Attacker()


def refused(answer: Any) -> str:
    """Return the field that a refusal names first."""
    assert answer.status_code == 422, answer.content[:400]
    problem = answer.json()["problems"][0]
    assert problem["message"].strip()
    return str(problem["field"])


BAD_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "a number of 400 digits": ("hidden_size", {"hidden_size": 10**400}),
    "a float": ("hidden_size", {"hidden_size": 4096.0}),
    "a text": ("hidden_size", {"hidden_size": "4096"}),
    "a list": ("hidden_size", {"hidden_size": [1] * 1000}),
    "true for a number": ("num_hidden_layers", {"num_hidden_layers": True}),
    "a negative number": ("vocab_size", {"vocab_size": -5}),
    "no heads": ("num_attention_heads", {"num_attention_heads": 0}),
    "a thousand million layers": ("num_hidden_layers", {"num_hidden_layers": 10**9}),
    "a layer too many": ("num_hidden_layers", {"num_hidden_layers": LAYER_LIMIT + 1}),
    "more kinds than layers": ("layer_types", {"layer_types": ["full_attention"] * 500_000}),
    "tables as kinds of layers": ("layer_types", {"layer_types": [{}] * 36}),
    "a size of a quantization": ("quantization_config", {"quantization_config": [1]}),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_config_that_cannot_be_names_its_key_by_api_form_and_page(attacker: Attacker, name: str) -> None:
    key, changes = BAD_CONFIGS[name]
    text = json.dumps(CONFIG | changes)

    for part in PARTS:
        answer = attacker.plan(part, raw=text)
        assert answer.status_code == 422
        assert key in answer.json()["problems"][0]["message"]
    pasted = attacker.web.post("/runs/new/plan/config", {"text": text, "base": ""})
    assert pasted.status_code == 422
    assert (
        key in pasted.json()["problems"][0]["message"] or "larger than 1 MiB" in pasted.json()["problems"][0]["message"]
    )
    assert attacker.web.get("/guide/devices", {"config": text[:9000]}).status_code == 200


@pytest.mark.parametrize(
    ("text", "statuses"),
    [
        ("[" * 100_000, (400, 422)),
        ('{"a":' * 100_000, (400, 422)),
        ('{"hidden_size": NaN}', (400, 422)),
        ('{"hidden_size": 1e999}', (400, 422)),
        (f'{{"hidden_size": {"9" * 5000}}}', (400, 422)),
        ('{"hidden_size": 1, "hidden_size": 4096}', (422,)),
        (f'{{"a": "{"x" * 17_000_000}"}}', (400, 413, 422)),
    ],
    ids=["deep list", "deep object", "NaN", "infinite", "digits", "the same key twice", "17 MB"],
)
def test_what_is_no_config_is_refused_wherever_it_is_pasted(
    attacker: Attacker, text: str, statuses: tuple[int, ...]
) -> None:
    assert attacker.plan(raw=text).status_code in statuses
    assert attacker.web.post("/runs/new/plan/config", {"text": text, "base": ""}).status_code in (400, 413, 422)
    assert attacker.web.get("/guide/devices", {"config": text[:100_000]}).status_code == 200


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**30), max_value=10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=10,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=st.sampled_from(["qwen3-8b", "deepseek-v3", "gpt-oss-20b", "gemma-3-4b"]), data=st.data())
def test_no_value_of_any_key_of_a_config_is_a_fault(attacker: Attacker, model: str, data: st.DataObject) -> None:
    config = dict(models()[model].config)
    keys = data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3, unique=True))
    changed = config | {key: data.draw(JSON, label=key) for key in keys}

    answer = attacker.plan(data.draw(st.sampled_from(PARTS)), raw=json.dumps(changed))

    assert answer.status_code in (200, 422), (keys, changed, answer.content[:300])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodes", -1),
        ("nodes", 10**30),
        ("nodes", 1.5),
        ("nodes", True),
        ("nodes", "2"),
        ("devices_per_node", 129),
        ("accelerator", MARK),
        ("accelerator", "x" * 1_000_000),
        ("accelerator", "\0"),
    ],
)
def test_hardware_that_cannot_be_is_refused(attacker: Attacker, field: str, value: object) -> None:
    assert field in refused(attacker.plan(what_if=H200 | {field: value}))


@pytest.mark.parametrize("value", ["NaN", "1e999", "-1", "true", '"1"', "9" * 400])
@pytest.mark.parametrize("field", ["mean_prompt", "mean_response", "spread", "samples", "reward_seconds"])
def test_a_workload_that_cannot_be_is_refused(attacker: Attacker, field: str, value: str) -> None:
    text = json.dumps({"spec": SPEC, "what_if": H200})[:-1] + f', "workload": {{"{field}": {value}}}}}'

    answer = attacker.api.post("/api/projects/pit/plan", text, content_type="application/json")

    assert answer.status_code in (400, 422), answer.content[:300]


@pytest.mark.parametrize("part", PARTS)
def test_the_largest_workload_is_answered_in_numbers(attacker: Attacker, part: str) -> None:
    most = {"mean_prompt": 1e8, "mean_response": 1e8, "spread": 5, "samples": 10**12, "reward_seconds": 1e7}

    answer = attacker.plan(part, workload=most, what_if=H200 | {"nodes": 4096, "devices_per_node": 128})

    assert answer.status_code in (200, 422)
    assert not re.search(rb"\b(NaN|Infinity|inf)\b", answer.content)


def test_a_model_of_which_no_change_makes_a_run_has_no_advice_and_is_no_fault(attacker: Attacker) -> None:
    config = dict(models()["deepseek-v3"].config) | {"num_hidden_layers": LAYER_LIMIT}

    answer = attacker.plan("/advice", spec=MIXTURE, raw=json.dumps(config), what_if=H200 | {"nodes": 64})

    assert answer.status_code == 200, answer.content[:300]
    assert answer.json()["together"] is None


@pytest.mark.parametrize(
    "body", [{"limit": 0}, {"limit": 10**9}, {"limit": True}, {"goal": "\0"}, {"goal": "x" * 10**5}]
)
def test_a_search_that_cannot_be_is_refused(attacker: Attacker, body: dict[str, Any]) -> None:
    assert refused(attacker.plan("/layouts", **body)) in body


@pytest.mark.parametrize(
    "price", ["NaN", "1e999", "-Infinity", "1e308", "-1", "10001", "true", '"1"', "9" * 4000, "[1]", '{"a": 1}']
)
def test_a_price_that_cannot_be_changes_nothing(attacker: Attacker, price: str) -> None:
    answer = attacker.set(f'{{"currency": "EUR", "prices": {{"h100": 2, "h200": {price}}}}}')

    assert answer.status_code in (400, 422), answer.content[:300]
    attacker.project.refresh_from_db()
    assert (attacker.project.prices, attacker.project.currency) == ({}, "USD")


@pytest.mark.parametrize("value", ["NaN", "1e999", "1e308", "-1e308", "true", '"1"', "9" * 4000, "null"])
def test_a_constant_that_cannot_be_changes_nothing(attacker: Attacker, value: str) -> None:
    name = shipped_constants().all()[0].name

    answer = attacker.set(f'{{"constants": {{"{name}": {value}}}}}')

    assert answer.status_code == (200 if value == "null" else 422) or answer.status_code == 400, answer.content[:300]
    attacker.project.refresh_from_db()
    assert attacker.project.plan_constants == {}


@pytest.mark.parametrize("field", ["prices", "constants"])
def test_more_changes_than_there_can_be_are_refused_before_any_name_is_looked_up(
    attacker: Attacker, field: str
) -> None:
    many = {f"k{number}": 1 for number in range(MAX_CHANGES + 1)}

    answer = attacker.set({field: many})

    assert refused(answer) == field
    assert len(answer.json()["problems"]) == 1


@pytest.mark.parametrize("currency", [MARK, "x" * 1_000_000, "U\0D", "ÄÖÜ", ""])
def test_a_currency_that_is_none_is_refused(attacker: Attacker, currency: str) -> None:
    assert refused(attacker.set({"currency": currency})) == "currency"


@pytest.mark.parametrize("role", ["viewer", "editor"])
def test_prices_and_constants_are_an_admins(role: str) -> None:
    somebody = Attacker(role)

    assert somebody.set({"prices": {"h200": 2}}).status_code == 403
    assert somebody.web.post("/settings/planner", {"price": "2", "accelerator": "h200"}).status_code in (403, 404)


def test_another_projects_planner_is_not_there(attacker: Attacker) -> None:
    make_project("other")

    for part in PARTS:
        assert attacker.plan(part, project="other").status_code == 404
    assert attacker.set({"currency": "EUR"}, project="other").status_code == 404
    assert attacker.api.get("/api/projects/other/plan-settings").status_code == 404


@pytest.mark.parametrize("part", PARTS)
def test_whoever_is_not_signed_in_plans_nothing(attacker: Attacker, part: str) -> None:
    path = f"/api/projects/pit/plan{part}"

    assert Client(headers={"Host": "localhost"}).post(path, "{}", content_type="application/json").status_code == 401


@pytest.mark.parametrize(
    "query",
    [
        {"model": MARK},
        {"model": "qwen3-8b", "on": MARK},
        {"model": "qwen3-8b", "method": MARK},
        {"model": "qwen3-8b", "devices": MARK, "prompt": MARK, "response": MARK, "show": MARK},
        {"config": json.dumps({"model_type": MARK, MARK: MARK})},
        {"config": json.dumps(CONFIG | {"hidden_size": MARK}), "model": MARK},
        {"config": json.dumps(CONFIG), "model": MARK},
    ],
)
def test_what_an_address_says_is_text_on_can_it_run(attacker: Attacker, query: dict[str, str]) -> None:
    answer = attacker.web.get("/guide/devices", query)

    assert answer.status_code == 200
    assert b"<img src=x" not in answer.content


def test_what_a_config_says_is_text_beside_the_form(attacker: Attacker) -> None:
    bad = CONFIG | {"model_type": MARK, "hidden_size": MARK}
    pasted = attacker.web.post("/runs/new/plan/config", {"text": json.dumps(bad), "base": "", "model.id.hub": MARK})
    planned = attacker.web.post(
        "/runs/new/check",
        {"base": json.dumps(SPEC), "plan.config": json.dumps(bad), "plan.config_of": "Qwen/Qwen3-8B"},
    )

    assert pasted.headers["Content-Type"].startswith("application/json")
    assert planned.status_code == 200
    assert "<img src=x" not in planned.json()["plan"]["verdict"] + planned.json()["plan"]["bars"]


@pytest.mark.parametrize("value", ["9" * 400, "NaN", "-1", "1e3", "٣", "\u202e8", "8\0", MARK])
def test_hardware_of_the_form_that_cannot_be_is_told_beside_it(attacker: Attacker, value: str) -> None:
    form = {"base": json.dumps(SPEC), "plan.accelerator": "h200-sxm", "plan.nodes": value, "plan.devices_per_node": "8"}

    answer = attacker.web.post("/runs/new/check", form)

    assert answer.status_code in (200, 400), answer.content[:300]
    if answer.status_code == 200 and value != "٣":
        assert [problem["field"] for problem in answer.json()["plan"]["problems"]] == ["plan.nodes"]
