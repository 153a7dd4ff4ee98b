"""The guide's pages: what they find, what they say of it, and what they do not claim."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobs.catalog.advice import QUESTIONS
from jobs.catalog.knob import knobs
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import rules
from jobs.catalog.rules.symptom import symptoms
from profiling.diagnosis.finding import rules as diagnosis_rules
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db
TABS = ("knobs", "recipes", "devices", "tuning", "symptoms", "metrics", "rules", "diagnosis")


@pytest.fixture
def viewer(client: Client) -> Client:
    client.force_login(
        make_user(project=make_project(), role="viewer"), backend="django.contrib.auth.backends.ModelBackend"
    )
    return client


def page(client: Client, address: str, **query: str) -> str:
    answer = client.get(address, query)
    assert answer.status_code == 200
    return answer.content.decode()


def listed(shown: str) -> list[str]:
    """Return the ids in a page's list, in order."""
    return re.findall(r'<li><a href="/guide/\w+/([^"?]+)', shown.partition('id="guide-detail"')[0])


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_shows_itself_and_is_no_burden(viewer: Client, tab: str) -> None:
    answer = viewer.get(reverse(f"guide-{tab}"))

    shown = answer.content.decode()
    assert answer.status_code == 200
    assert f'href="/guide/{tab}" aria-current="page"' in shown
    assert 'href="/guide" data-keys="g d" aria-current="page"' in shown
    assert len(answer.content) < 400_000
    assert "style=" not in shown


@pytest.mark.parametrize(
    ("asked", "first", "caption"),
    [
        ("train.micro_batch_size", "train.micro_batch_size", "train.micro_batch_size"),
        ("--rollout.n_samples_per_prompt", "rollout.samples_per_prompt", "--rollout.n_samples_per_prompt"),
        ("--n_samples_per_prompt=8", "rollout.samples_per_prompt", "--n_samples_per_prompt"),
        ("actor_rollout_ref.rollout.n", "rollout.samples_per_prompt", "actor_rollout_ref.rollout.n"),
        ("--eps_clip", "algorithm.clip_ratio_low", "--eps_clip"),
        ("prompts per step", "rollout.prompts_per_step", "rollout.prompts_per_step"),
    ],
)
def test_a_knob_is_found_by_our_name_or_by_any_versions_option(
    viewer: Client, asked: str, first: str, caption: str
) -> None:
    shown = page(viewer, reverse("guide-knobs"), q=asked)

    assert listed(shown)[0] == first
    assert f"<code>{caption}</code></a>" in shown
    assert f'data-item="{first}"' in shown


@pytest.mark.parametrize(
    ("asked", "name", "says"),
    [
        ("adv_estimator", "algorithm.adv_estimator", "New run: Algorithm"),
        ("--pretrain", "--pretrain", "New run: Model id"),
        ("data.train_files=/d/x.parquet", "data.train_files", "New run: Data id"),
        ("custom_reward_function.path", "custom_reward_function.path", "New run: Reward location"),
        ("--save_path", "--save_path", "Pitwall keeps the trained model below the run directory."),
    ],
)
def test_an_option_that_is_no_knob_s_is_found_with_what_says_it(
    viewer: Client, asked: str, name: str, says: str
) -> None:
    shown = page(viewer, reverse("guide-knobs"), q=asked).split('class="guide-beside"')[1].split("</dl>")[0]

    assert shown.index(f"<dt><code>{name}</code>") < shown.index(f"<dd>{says}</dd>")
    assert "guide-beside" not in page(viewer, reverse("guide-knobs"), q=asked, trainer="native")


def test_filters_leave_what_a_version_has(viewer: Client) -> None:
    every = set(listed(page(viewer, reverse("guide-knobs"))))
    old = set(listed(page(viewer, reverse("guide-knobs"), trainer="openrlhf:0.8.6")))
    pairs = set(listed(page(viewer, reverse("guide-knobs"), trainer="openrlhf", algorithm="dpo", group="pairs")))

    assert every == set(knobs())
    assert old < every
    assert all(any(f.trainer == "openrlhf" for f in knobs()[name].flags) for name in old)
    assert pairs
    assert all(name.startswith("pairs.") for name in pairs)


def test_a_knobs_page_says_how_each_version_names_it_and_who_speaks_of_it(viewer: Client) -> None:
    shown = page(viewer, reverse("guide-knob", args=["rollout.samples_per_prompt"]))

    for text in ("--rollout.n_samples_per_prompt", "--n_samples_per_prompt", "actor_rollout_ref.rollout.n"):
        assert f"<code>{text}</code>" in shown
    assert "OpenRLHF 0.10.1, 0.8.6" in shown
    assert "DeepSeekMath" in shown
    assert "/guide/rules/" in shown
    assert "/guide/recipes/" in shown


def test_all_that_is_linked_is_there(viewer: Client) -> None:
    for name, ids in (("knob", knobs()), ("recipe", recipes()), ("symptom", symptoms()), ("rule", rules())):
        for one in list(ids)[::9]:
            answer = viewer.get(reverse(f"guide-{name}", args=[one]), headers={"HX-Target": "guide-detail"})
            assert answer.status_code == 200, one
            assert len(answer.content) < 60_000
        assert viewer.get(reverse(f"guide-{name}", args=["no-such-thing"])).status_code == 404


def test_a_recipe_shows_what_differs_and_is_used_by_those_who_may_launch(viewer: Client) -> None:
    address = reverse("guide-recipe", args=["verl-grpo-qwen3-8b"])
    for_a_viewer = page(viewer, address)
    editor = make_user("an-editor", project=make_project("other"), role="editor")
    viewer.force_login(editor, backend="django.contrib.auth.backends.ModelBackend")

    assert "new?recipe=" not in for_a_viewer
    assert 'href="/runs/new?recipe=verl-grpo-qwen3-8b"' in page(viewer, address)
    assert "values differ from the trainer" in for_a_viewer
    assert recipes()["verl-grpo-qwen3-8b"].hardware in for_a_viewer
    assert "guide-table" in for_a_viewer
    assert "guide-table" not in page(viewer, reverse("guide-recipe", args=["native-grpo-demo"]))  # it changes nothing


def test_a_size_alone_is_answered_by_what_was_published(viewer: Client) -> None:
    address = reverse("guide-devices")
    reported = page(viewer, address, model="7.6", method="grpo-lora")
    unknown = page(viewer, address, model="405B", method="grpo")
    stated = page(viewer, address, model="8", method="ppo")

    assert "Yes: Qwen2.5-7B was trained with GRPO-LoRA on 1 × H100 80 GB." in reported
    assert "only published runs are shown" in reported
    assert "Nobody reported it" in unknown
    assert "That does not say that it cannot run" in unknown
    assert "Its authors say so" in stated
    assert "Yes:" not in stated


def test_advice_rules_symptoms_and_metrics_are_all_there(viewer: Client) -> None:
    for question in QUESTIONS:
        assert f"question={question}" in page(viewer, reverse("guide-tuning"))
    assert set(listed(page(viewer, reverse("guide-rules")))) == set(rules())
    errors = listed(page(viewer, reverse("guide-rules"), level="error", trainer="verl"))
    assert errors
    assert {rules()[name].level for name in errors} == {"error"}
    assert set(listed(page(viewer, reverse("guide-symptoms")))) == set(symptoms())
    found = page(viewer, reverse("guide-symptoms"), q="No available memory for the cache blocks")
    assert listed(found)[0].startswith("memory.")
    assert "KL to reference" in page(viewer, reverse("guide-metrics"), q="actor/kl_loss")


def test_each_diagnosis_rule_is_there_with_its_threshold_and_the_knobs_to_change(viewer: Client) -> None:
    shown = page(viewer, reverse("guide-diagnosis"))

    assert set(re.findall(r'<tr id="(\w+)">', shown)) == set(diagnosis_rules())
    assert "Waiting for data" in shown
    assert "&gt; 5 %" in shown
    assert 'href="/guide/knobs/data.num_workers"' in shown


def test_diagnosis_rules_are_found_by_question_by_when_they_look_and_by_words(viewer: Client) -> None:
    def keys(**asked: str) -> set[str]:
        return set(re.findall(r'<tr id="(\w+)">', page(viewer, reverse("guide-diagnosis"), **asked)))

    assert keys(question="why") == {key for key, rule in diagnosis_rules().items() if rule.question == "why"}
    assert keys(when="live") == set(diagnosis_rules(live=True))
    assert keys(q="rollout.kv_cache_mib") == {"kv_cache_full"}


def test_strange_addresses_are_no_trouble(viewer: Client) -> None:
    for tab in TABS:
        odd = viewer.get(
            reverse(f"guide-{tab}"), {"q": "<b>" + "x" * 999, "trainer": "'", "size": "nan", "question": "?"}
        )
        assert odd.status_code == 200
        assert "<b>x" not in odd.content.decode()


def test_the_same_is_there_by_api(viewer: Client) -> None:
    def ask(name: str, **query: str) -> dict[str, Any]:
        answer = viewer.get(f"/api/catalog/{name}", query)
        assert answer.status_code == 200, answer.content
        found: dict[str, Any] = answer.json()
        return found

    assert [each["id"] for each in ask("recipes")["recipes"]] == list(recipes())
    assert {row["id"] for row in ask("devices", size="7.6", method="GRPO-LoRA")["rows"]} == {"H05"}
    assert ask("devices", size="405")["rows"] == []
    assert {piece["question"] for piece in ask("advice", question="too_slow")["advice"]} == {"too_slow"}
    assert len(ask("symptoms")["symptoms"]) == len(symptoms())
    assert len(ask("rules", trainer="verl", level="error")["rules"]) < len(ask("rules")["rules"]) == len(rules())
    assert viewer.get("/api/catalog/rules", {"trainer": "nobody"}).status_code == 422
    assert viewer.get("/api/catalog/devices", {"size": "-1"}).status_code == 422
