"""Rendering and the loss mask, with the bundled tokenizer and templates of other models."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel, TextSegment
from jobs.engine.problem import RunProblem
from tests.jobs.engine.data.text_models import BOS, EOS, byte_level, model_folder, sentence_pieces

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


def texts(segments: list[TextSegment]) -> list[tuple[str, bool]]:
    return [(segment.text, segment.is_trained) for segment in segments]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(BUNDLED / "tiny-word-problems", copy)
    return copy


def test_the_prompt_ends_where_the_answer_begins() -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")

    assert texts(text.prompt(TURNS[:1])) == [("<|user|>1+1?<|assistant|>", False)]
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

    assert [before] == text.prompt(TURNS[:1])
    assert answer.is_trained


def test_a_template_that_rewrites_earlier_turns_trains_the_last_answer_only(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text(FORGETFUL)

    segments = TextModel(folder).conversation(TURNS)

    assert [s.text for s in segments if s.is_trained] == ["#### 4"]
    assert "".join(s.text for s in segments) == "[user]1+1?[assistant]...[user]2+2?[assistant]#### 4"


def test_some_turns_are_trained_where_the_template_shows_which_text_is_theirs(folder: Path) -> None:
    text = TextModel(folder)
    plain = [s.text for s in text.conversation(TURNS, trained=[False, True, False, False]) if s.is_trained]
    (folder / "chat_template.jinja").write_text(FORGETFUL)
    forgetful = TextModel(folder)

    last = [s.text for s in forgetful.conversation(TURNS, trained=[False, False, False, True]) if s.is_trained]
    with pytest.raises(RunProblem, match="only its last answer can be trained"):
        forgetful.conversation(TURNS, trained=[False, True, False, False])

    assert (plain, last) == (["#### 2<|eos|>"], ["#### 4"])


def test_without_a_template_some_turns_are_trained(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()

    segments = TextModel(folder).conversation(TURNS, trained=[False, False, False, True])

    assert [(s.text, s.is_trained) for s in segments][1::2] == [("#### 2<|eos|>", False), ("#### 4<|eos|>", True)]


def test_a_model_without_a_template_gets_plain_text(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    text = TextModel(folder)

    assert texts(text.prompt(TURNS[:1])) == [("1+1?", False)]
    assert texts(text.conversation(TURNS[:2])) == [("1+1?", False), ("#### 2<|eos|>", True)]


def test_without_a_template_the_prompt_of_generation_is_that_of_training(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    text = TextModel(folder)
    chat = [{"role": "system", "content": "Be brief."}, *TURNS]

    prompt, conversation = text.prompt(chat[:-1]), text.conversation(chat)

    assert [s.text for s in prompt] == ["Be brief.\n\n1+1?", "#### 2<|eos|>", "2+2?"]
    assert not any(s.is_trained for s in prompt)
    assert texts(conversation)[1:] == [("#### 2<|eos|>", True), ("2+2?", False), ("#### 4<|eos|>", True)]
    (asked, whole) = text.tokenize([prompt, conversation])
    assert whole.tokens[: len(asked.tokens)] == asked.tokens


@pytest.mark.parametrize("tokenizer", [byte_level(), sentence_pieces()], ids=["bytes", "pieces"])
def test_without_a_template_a_text_begins_as_the_tokenizer_begins_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    text = TextModel(model_folder(tmp_path, tokenizer))
    begin = tokenizer.token_to_id(BOS)

    prompt, conversation = text.prompt(TURNS[:1]), text.conversation(TURNS)
    (asked, whole) = text.tokenize([prompt, conversation])

    assert texts(prompt) == [(BOS, False), ("1+1?", False)]
    assert list(asked.tokens) == tokenizer.encode("1+1?").ids
    assert asked.tokens[0] == begin
    assert whole.tokens[: len(asked.tokens)] == asked.tokens
    assert whole.tokens.count(begin) == 1
    assert not whole.is_trained[0]


def test_a_beginning_that_the_row_brings_along_is_not_doubled(tmp_path: Path) -> None:
    tokenizer = byte_level()
    text = TextModel(model_folder(tmp_path, tokenizer))

    segments = text.prompt([{"role": "user", "content": f"{BOS}1+1?"}])

    assert list(text.tokenize([segments])[0].tokens) == tokenizer.encode("1+1?").ids


def test_a_template_says_itself_how_a_text_begins(tmp_path: Path) -> None:
    tokenizer = byte_level()
    text = TextModel(model_folder(tmp_path, tokenizer, "{{ messages[0].content }}"))

    (tokenized,) = text.tokenize([text.prompt(TURNS[:1])])

    assert list(tokenized.tokens) == tokenizer.encode("1+1?", add_special_tokens=False).ids


def test_only_the_token_before_a_text_is_added_not_the_one_behind_it(tmp_path: Path) -> None:
    tokenizer = byte_level()
    ends = [(token, tokenizer.token_to_id(token)) for token in (BOS, EOS)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A {EOS}", special_tokens=ends)

    text = TextModel(model_folder(tmp_path, tokenizer))

    assert texts(text.prompt(TURNS[:1])) == [(BOS, False), ("1+1?", False)]


def test_a_beginning_that_is_no_special_token_of_the_file_is_recognized(folder: Path) -> None:
    """Transformers recognizes every token that a configuration names, too."""
    (folder / "chat_template.jinja").unlink()
    tokenizer = Tokenizer(models.WordLevel({"[B]": 0, "a": 1, "[": 2, "?": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(single="[B] $A", special_tokens=[("[B]", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    text = TextModel(folder)

    (tokenized,) = text.tokenize([text.prompt([{"role": "user", "content": "a a"}])])

    assert tokenized.tokens == (0, 1, 1)


def test_padding_and_truncation_that_a_file_asks_for_are_not_done(tmp_path: Path) -> None:
    tokenizer = byte_level()
    wanted = tokenizer.encode("1+1? " * 9, add_special_tokens=False).ids
    tokenizer.enable_padding(length=300)
    tokenizer.enable_truncation(max_length=4)

    text = TextModel(model_folder(tmp_path, tokenizer))

    assert text.encode("1+1? " * 9) == wanted


def test_a_token_across_the_boundary_is_cut_where_generation_starts(tmp_path: Path) -> None:
    tokenizer = byte_level()
    assert len(tokenizer.encode("\n\n", add_special_tokens=False).ids) == 1
    chat = "{% for m in messages %}{{ '\\n' if m.role == 'assistant' }}{{ m.content }}{% endfor %}"
    text = TextModel(model_folder(tmp_path, tokenizer, chat + "{% if add_generation_prompt %}{{ '\\n' }}{% endif %}"))
    messages = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "\n2"}]

    prompt, whole = text.tokenize([text.prompt(messages[:1]), text.conversation(messages)])

    assert whole.tokens == (*prompt.tokens, *text.encode("\n2"))
    assert whole.is_trained == (False,) * len(prompt.tokens) + (True,) * len(text.encode("\n2"))


def test_a_named_template_for_tools_is_used_where_there_are_tools(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, byte_level(), "plain")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools | length }} tools")
    text = TextModel(folder)

    assert text.prompt(TURNS[:1])[0].text == "plain"
    assert text.prompt(TURNS[:1], {"tools": [{}, {}]})[0].text == "2 tools"

    (folder / "chat_template.jinja").unlink()
    with pytest.raises(RunProblem, match="none for all: tool_use"):
        TextModel(folder).prompt(TURNS[:1])


def test_special_tokens_of_older_models_stand_in_a_file_of_their_own(folder: Path) -> None:
    (folder / "special_tokens_map.json").write_text(json.dumps({"sep_token": {"content": "<sep>"}}))
    (folder / "chat_template.jinja").write_text("{{ sep_token }}{{ mask_token is defined }}")

    assert TextModel(folder).prompt(TURNS[:1])[0].text == "<sep>False"


def test_the_date_of_a_prompt_is_the_one_that_is_given(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ strftime_now('%d %b %Y') }}")

    prompt = TextModel(folder, now=datetime(2025, 1, 2)).prompt(TURNS[:1])  # noqa: DTZ001

    assert prompt[0].text == "02 Jan 2025"


def test_a_template_inside_the_tokenizer_config_is_used(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [
        {"name": "tools", "template": "no"},
        {"name": "default", "template": "yes {{ eos_token }}"},
    ]
    config["eos_token"] = {"content": "<|eos|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))

    assert texts(TextModel(folder).prompt(TURNS[:1])) == [("yes <|eos|>", False)]


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
