"""Rendering and the loss mask, with the bundled tokenizer and templates of other models."""

import json
import shutil
from pathlib import Path

import pytest

from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem

TURNS = [
    {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "#### 2"},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "#### 4"},
]
FORGETFUL = (  # shows what an earlier assistant turn said only in short, as templates of thinking models do
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' and not loop.last %}...{% else %}"
    "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(BUNDLED / "tiny-word-problems", copy)
    return copy


def test_the_prompt_ends_where_the_answer_begins() -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")

    assert text.prompt(TURNS[:1]) == "<|user|>1+1?<|assistant|>"
    assert text.decode(text.encode("<|user|>1+1?<|assistant|>")) == "1+1?"


def test_every_answer_of_a_conversation_is_trained_with_its_end_token() -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")

    segments = text.conversation(TURNS)

    assert [s.text for s in segments if s.is_trained] == ["#### 2<|eos|>", "#### 4<|eos|>"]
    assert (
        "".join(s.text for s in segments)
        == "<|user|>1+1?<|assistant|>#### 2<|eos|><|user|>2+2?<|assistant|>#### 4<|eos|>"
    )
    assert text.encode("<|eos|>") == text.eos_ids


def test_prompt_and_answer_are_cut_where_generation_starts() -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")

    before, answer = text.conversation(TURNS[:2])

    assert before.text == text.prompt(TURNS[:1])
    assert answer.is_trained


def test_a_template_that_rewrites_earlier_turns_trains_the_last_answer_only(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(FORGETFUL)

    segments = TextModel(folder).conversation(TURNS)

    assert [s.text for s in segments if s.is_trained] == ["#### 4"]
    assert "".join(s.text for s in segments) == "[user]1+1?[assistant]...[user]2+2?[assistant]#### 4"


def test_a_model_without_a_template_gets_plain_text(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    text = TextModel(folder)

    assert text.prompt(TURNS[:1]) == "1+1?"
    assert [(s.text, s.is_trained) for s in text.conversation(TURNS[:2])] == [("1+1?", False), ("#### 2<|eos|>", True)]


def test_a_template_inside_the_tokenizer_config_is_used(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "tools", "template": "no"},
        {"name": "default", "template": "yes {{ eos_token }}"},
    ]
    config["eos_token"] = {"content": "<|eos|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))

    assert TextModel(folder).prompt(TURNS[:1]) == "yes <|eos|>"


def test_all_end_tokens_of_the_generation_config_are_known(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 1]}))

    assert TextModel(folder).eos_ids == [7, 1]


@pytest.mark.parametrize(
    ("template", "said"),
    [("{% for %}", "chat template is not valid"), ("{{ raise_exception('no system role') }}", "no system role")],
)
def test_a_broken_template_is_a_sentence(folder: Path, template: str, said: str) -> None:
    (folder / "chat_template.jinja").write_text(template)

    with pytest.raises(RunProblem, match=said) as caught:
        TextModel(folder).prompt(TURNS[:1])

    assert caught.value.field == "model.id"


def test_a_template_cannot_reach_into_python(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")

    with pytest.raises(RunProblem, match="cannot render"):
        TextModel(folder).prompt(TURNS[:1])


def test_a_broken_tokenizer_is_a_sentence(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")

    with pytest.raises(RunProblem, match=r"tokenizer of 'model' cannot be loaded"):
        TextModel(folder)
