"""What the catalogue says reaches makemessages, and pages in the reader's language."""

import ast
import json
import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from console.forms.new_run.form import default_spec, spec_to_form
from console.labels import catalog as catalog_words
from jobs.catalog.knob import knobs
from jobs.catalog.rules.rule import findings
from jobs.catalog.spec.parse import parse_spec
from tests.rows import make_project, make_run, make_user

_BRACES = re.compile(r"\{[^{}]+\}")
_FOUND = {
    "algorithm": "grpo",
    "trainer": {"name": "verl", "version": "0.9.1"},
    "knobs": {"rollout.temperature": 0.5, "rollout.samples_per_prompt": 1},
}
"""A spec that rules have something to say of."""


def test_gettext_finds_every_text_of_the_catalog_in_the_module_that_is_made_for_it() -> None:
    module = ast.parse(catalog_words.module_text())

    texts = [
        call.args[0].value
        for call in ast.walk(module)
        if isinstance(call, ast.Call) and isinstance(call.args[0], ast.Constant)
    ]
    assert texts == catalog_words.catalog_texts()
    assert {knob.help for knob in knobs().values()} <= set(texts)


def test_every_text_of_the_catalogue_has_chinese_words_with_the_same_values() -> None:
    with translation.override("zh-hans"):
        chinese = {text: translation.gettext(text) for text in catalog_words.catalog_texts()}

    sentences = re.compile(r"[a-z]+ [a-z]+ [a-z]+ [a-z]+")  # shorter ones may be names: "LoRA alpha"
    assert [text for text, said in chinese.items() if said == text and sentences.search(text)] == []
    for text, said in chinese.items():
        assert set(_BRACES.findall(text)) == set(_BRACES.findall(said)), text


def test_findings_are_said_in_the_reader_s_language_with_their_values() -> None:
    spec = parse_spec(_FOUND)
    english = findings(spec)
    with translation.override("zh-hans"):
        chinese = findings(spec, say=translation.gettext)

    assert [found.rule for found in chinese] == [found.rule for found in english] != []
    for found in chinese:
        assert re.search(r"[\u4e00-\u9fff]", found.message)
        assert not _BRACES.search(found.message)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "item", "words"),
    [
        ("guide-rule", "optimizer.learning_rate_is_high", "学习率偏高"),
        ("guide-symptom", "memory.cache_small", "KV 缓存太小"),
        ("guide-knobs", "", "检查点"),
        ("guide-tuning", "", "太慢"),
    ],
)
def test_the_guide_speaks_chinese(client: Client, name: str, item: str, words: str) -> None:
    client.force_login(make_user(project=make_project()), backend="django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "zh-hans"

    page = client.get(reverse(name, args=[item] if item else [])).content.decode()

    assert words in page


@pytest.mark.django_db
def test_the_api_answers_in_english_whatever_the_page_speaks(client: Client) -> None:
    client.force_login(make_user(project=make_project()), backend="django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "zh-hans"

    answer = client.post(
        "/api/specs/check",
        json.dumps(_FOUND),
        content_type="application/json",
    ).json()

    assert answer["findings"]
    assert not re.search(r"[\u4e00-\u9fff]", json.dumps(answer["findings"], ensure_ascii=False))


def test_what_a_knob_takes_reads_as_the_catalogue_says_it() -> None:
    for knob in knobs().values():
        if knob.type != "bool":
            assert catalog_words.knob_allowed(knob) == knob.allowed()


@pytest.mark.django_db
def test_the_run_page_names_knobs_and_phases_in_chinese(client: Client) -> None:
    project = make_project()
    run = make_run(project, spec={"name": "r"})
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "zh-hans"

    page = client.get(reverse("run", args=[run.pk])).content.decode()

    assert "KL 系数" in page
    assert "权重同步" in page
    assert "Weight sync" not in page


def test_the_templates_of_sentences_are_found_wherever_they_are_made() -> None:
    found = {*catalog_words.templates("jobs.catalog"), *catalog_words.templates("jobs.adapters")}

    assert "{value} is not allowed. Use {allowed}." in found  # where it is made
    assert "{text} calls a function of Hydra. Give the value itself." in found  # by a name, the first of two
    assert "{text} has {sign} inside a word. Put the value in quotes." in found  # the second
    assert "one of {choices}" in found  # in a method


def test_a_template_that_is_put_together_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made.py").write_text('def f(a):\n    return Sentence(a + "{b}", b=1)\n')
    monkeypatch.setattr(catalog_words, "files", lambda _package: tmp_path)

    with pytest.raises(ValueError, match=r"made\.py, line 2: write the sentence's template here"):
        list(catalog_words.templates("made"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"knobs.train.num_steps": "0.5"}, "不能是 '0.5'。请使用 1 到"),
        ({"data.id": "", "data.kind": "path"}, "请指定数据:集群上的路径。"),
        ({"knobs.train.updates_per_rollout": "7"}, "次更新整除。请使用一个约数。"),
        ({"profile.tool": "torch", "profile.ranks": "x"}, "不是 rank 列表"),
        ({"trainer.name": "verl", "trainer.version": "0.9.1", "name": "a ${b}"}, "verl 会多次解析其配置"),
    ],
)
def test_the_form_s_problems_are_said_in_the_reader_s_language(
    client: Client, changes: dict[str, str], says: str
) -> None:
    client.force_login(make_user(project=make_project()))
    trainer = changes.get("trainer.name", "native")
    form = spec_to_form(default_spec("grpo", trainer, changes.get("trainer.version", ""))) | changes
    if "data.id" in changes:
        form |= {name: "" for name in form if name.startswith("data.id")}

    answer = client.post(reverse("new-run-check"), form, headers={"Accept-Language": "zh-Hans"}).json()

    assert any(says in problem["message"] for problem in answer["problems"]), answer["problems"]


@pytest.mark.django_db
def test_why_a_paste_is_nothing_is_said_in_the_reader_s_language(client: Client) -> None:
    client.force_login(make_user(project=make_project()))

    answer = client.post(
        reverse("new-run-import"), {"text": "python train.py 'x"}, headers={"Accept-Language": "zh-Hans"}
    )

    assert answer.json()["problems"][0]["message"] == "文本不是完整的命令:' 打开后没有关闭。"


@pytest.mark.django_db
def test_the_api_answers_in_english_whatever_the_reader_s_language(client: Client) -> None:
    client.force_login(make_user(project=make_project()))
    spec = {"knobs": {"train.num_steps": 0.5}}
    headers = {"Accept-Language": "zh-Hans"}

    answer = client.post("/api/specs/check", json.dumps(spec), content_type="application/json", headers=headers)

    assert answer.json()["problems"][0]["message"].startswith("0.5 is not allowed for ")
