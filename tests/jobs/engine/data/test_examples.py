"""From rows to examples: mapping, mask, limits, order."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.examples import column_value, in_order, mapping_problem, render, usable
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem
from tests.jobs.engine.data.text_models import BOS, EOS, byte_level, model_folder

TEXT = TextModel(BUNDLED / "tiny-word-problems")


def spec(algorithm: str = "grpo", knobs: dict[str, Any] | None = None, **data: Any) -> RunSpec:
    return parse_spec({"algorithm": algorithm, "data": data, "knobs": knobs or {}})


def refusal(made: RunSpec, rows: list[dict[str, Any]]) -> tuple[str, str]:
    with pytest.raises(RunProblem) as caught:
        render(made, rows, TEXT)
    return caught.value.field, caught.value.message


def test_a_prompt_is_rendered_and_nothing_of_it_is_trained() -> None:
    (example,) = render(spec(), [{"prompt": "1+1?", "answer": 2}], TEXT)

    assert example.tokens == tuple(TEXT.encode("<|user|>1+1?<|assistant|>"))
    assert not any(example.is_trained)
    assert (example.prompt, example.answer, example.row) == ("1+1?", "2", 0)


def test_sft_trains_the_answer_and_its_end_token_only() -> None:
    (example,) = render(spec("sft"), [{"prompt": "1+1?", "response": "#### 2"}], TEXT)

    trained = [t for t, is_trained in zip(example.tokens, example.is_trained, strict=True) if is_trained]
    assert trained == TEXT.encode("#### 2<|eos|>")


def test_a_system_prompt_stands_first_unless_the_row_brings_one() -> None:
    made = spec(system_prompt="Be brief.")
    rows = [{"prompt": "1+1?"}, {"prompt": [{"role": "system", "content": "X"}, {"role": "user", "content": "2+2?"}]}]

    first, second = render(made, rows, TEXT)

    assert first.segments[0].text == "<|system|>Be brief.<|user|>1+1?<|assistant|>"
    assert second.segments[0].text == "<|system|>X<|user|>2+2?<|assistant|>"


def test_a_messages_column_replaces_prompt_and_response() -> None:
    made = spec("sft", messages_column="chat")
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    (example,) = render(made, [{"chat": chat}], TEXT)

    assert [s.text for s in example.segments] == ["<|user|>a<|assistant|>", "b<|eos|>"]


TWO_TURNS = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
]


def learned(made: RunSpec, *own: dict[str, Any]) -> list[str]:
    chat = [{**message, **flags} for message, flags in zip(TWO_TURNS, own or ({},) * 4, strict=True)]
    (example,) = render(made, [{"chat": chat}], TEXT)
    return [s.text.removesuffix("<|eos|>") for s in example.segments if s.is_trained]


def test_the_turns_to_learn_are_all_the_last_or_those_that_the_data_say() -> None:
    every = spec("sft", messages_column="chat")
    last = spec("sft", {"data.trained_turns": "last"}, messages_column="chat")

    assert (learned(every), learned(last)) == (["b", "d"], ["d"])
    assert learned(every, {}, {"train": False}, {}, {}) == ["d"]
    assert learned(last, {}, {"weight": 1}, {}, {}) == ["b", "d"]
    assert learned(every, {"train": True}, {"weight": 0}, {}, {"train": None}) == ["d"]


def test_a_conversation_of_which_nothing_is_learned_is_left_out() -> None:
    made = spec("sft", messages_column="chat")
    chat = [{**message, "train": False} for message in TWO_TURNS]

    assert usable(made, render(made, [{"chat": chat}, {"chat": TWO_TURNS}], TEXT))[0].row == 1


def test_a_flag_that_is_none_is_named() -> None:
    field, message = refusal(
        spec("sft", messages_column="chat"), [{"chat": [{**TWO_TURNS[0], "weight": 0.5}, *TWO_TURNS[1:]]}]
    )

    assert field == "data.messages_column"
    assert message == "Row 1 has a message whose weight is float '0.5'. It must be true, false, 0 or 1."


SEEN = """\
{% for m in messages %}[{{ m | tojson }}]{% endfor %} {{ tools | tojson }} {{ documents | tojson }} {{ mode }}"""
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "add"}}


@pytest.fixture
def seeing(tmp_path: Path) -> TextModel:
    """A model whose template shows all that it is given."""
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED / "tiny-word-problems", folder)
    (folder / "chat_template.jinja").write_text(SEEN)
    return TextModel(folder)


def prompt_text(made: RunSpec, row: dict[str, Any], text: TextModel) -> str:
    (example,) = render(made, [row], text)
    return "".join(segment.text for segment in example.segments)


def test_a_template_sees_all_of_a_message_but_what_parquet_fills_in(seeing: TextModel) -> None:
    chat = [
        {"role": "user", "content": "é<1>", "name": None, "tool_calls": None},
        {"role": "assistant", "content": None, "name": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": "2", "name": "add", "tool_call_id": "c1"},
    ]
    wanted = [
        {"role": "user", "content": "é<1>"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [CALL], "content": None},
        {"role": "tool", "content": "2", "name": "add", "tool_call_id": "c1"},
    ]

    text = prompt_text(spec(), {"prompt": chat}, seeing)

    assert text == "".join(f"[{json.dumps(m, ensure_ascii=False)}]" for m in wanted) + " null null "


def test_a_template_sees_the_tools_and_documents_of_its_row_and_the_spec_s_variables(seeing: TextModel) -> None:
    made = spec(chat_template_kwargs={"mode": "<quick>", "tools": [], "documents": [{"text": "all"}]})

    def tail(**row: Any) -> str:
        return prompt_text(made, {"prompt": "x", **row}, seeing).partition("] ")[2]

    assert tail() == '[] [{"text": "all"}] <quick>'
    assert tail(tools=None, documents=["text alone"]) == '[] [{"text": "all"}] <quick>'
    assert tail(tools=[TOOL], documents=[{"text": "own"}]) == f'[{json.dumps(TOOL)}] [{{"text": "own"}}] <quick>'
    assert tail(tools=json.dumps([TOOL])) == f'[{json.dumps(TOOL)}] [{{"text": "all"}}] <quick>'


def test_tools_may_stand_in_another_column_or_in_none(seeing: TextModel) -> None:
    row = {"prompt": "x", "tools": "a hammer", "functions": {"known": [TOOL]}}

    assert json.dumps([TOOL]) in prompt_text(spec(tools_column="functions.known"), row, seeing)
    assert "null null" in prompt_text(spec(tools_column=""), row, seeing)
    assert mapping_problem(spec(tools_column="functions.known"), ["prompt", "answer", "functions"]) is None
    missing = mapping_problem(spec(tools_column="functions"), ["prompt", "answer"])
    assert missing is not None
    assert missing.field == "data.tools_column"


@pytest.mark.parametrize("value", ["a hammer", "[1]", {"name": "add"}, [1], 3, "[" * 100_000])
def test_tools_that_are_none_name_their_row(value: object) -> None:
    field, message = refusal(spec(), [{"prompt": "x", "tools": value}])

    assert field == "data.tools_column"
    assert message.startswith("Row 1 holds ")
    assert "in column 'tools'. It must be a list of tools" in message


def test_sft_trains_what_the_template_marks(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(BUNDLED / "tiny-word-problems", folder)
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|eos|>"
        "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}{{ ' ' * 3 }}"
    )
    text = TextModel(folder)
    chat = [
        {"role": r, "content": c} for r, c in [("user", "1"), ("assistant", "2"), ("user", "3"), ("assistant", "4")]
    ]

    (example,) = render(spec("sft", messages_column="chat"), [{"chat": chat}], text)

    trained = [token for token, is_trained in zip(example.tokens, example.is_trained, strict=True) if is_trained]
    assert trained == text.encode("2<|eos|>4<|eos|>")


def test_grpo_and_sft_begin_a_text_alike_where_there_is_no_template(tmp_path: Path) -> None:
    text = TextModel(model_folder(tmp_path, byte_level()))

    (prompt,) = render(spec(), [{"prompt": "1+1?", "answer": "2"}], text)
    (pair,) = render(spec("sft"), [{"prompt": "1+1?", "response": "2"}], text)

    assert [s.text for s in prompt.segments] == [BOS, "1+1?"]
    assert [(s.text, s.is_trained) for s in pair.segments] == [(BOS, False), ("1+1?", False), (f"2{EOS}", True)]
    assert pair.tokens[: len(prompt.tokens)] == prompt.tokens
    assert not any(pair.is_trained[: len(prompt.tokens)])
    assert all(pair.is_trained[len(prompt.tokens) :])


def test_a_dot_reaches_into_a_column() -> None:
    row = {"reward_model": {"ground_truth": "42"}, "a.b": 1}

    assert column_value(row, "reward_model.ground_truth") == "42"
    assert column_value(row, "a.b") == 1
    assert column_value(row, "reward_model.style") is None


def test_a_missing_column_names_those_there_are() -> None:
    problem = mapping_problem(spec(prompt_column="question"), ["prompt", "answer"])

    assert problem is not None
    assert (problem.field, problem.message) == (
        "data.prompt_column",
        "The data has no column 'question'. It has: prompt, answer.",
    )


def test_only_columns_that_the_run_reads_must_be_there() -> None:
    assert mapping_problem(spec("sft"), ["prompt", "response"]) is None
    assert mapping_problem(parse_spec({"reward": {"kind": "format"}}), ["prompt"]) is None
    assert mapping_problem(spec(), ["prompt"]) is not None


@pytest.mark.parametrize(
    ("algorithm", "row", "field", "said"),
    [
        ("grpo", {"prompt": 3}, "data.prompt_column", "Row 1 holds int '3'"),
        ("grpo", {"prompt": None}, "data.prompt_column", "Row 1 holds nothing"),
        ("grpo", {"prompt": [{"role": "robot", "content": "x"}]}, "data.prompt_column", "role and content"),
        ("grpo", {"prompt": [{"role": "user"}]}, "data.prompt_column", "role and content"),
        ("grpo", {"prompt": [{"role": "user", "tool_calls": [CALL]}]}, "data.prompt_column", "role and content"),
        ("grpo", {"prompt": [{"role": "assistant", "tool_calls": []}]}, "data.prompt_column", "role and content"),
        ("sft", {"prompt": "x", "response": None}, "data.response_column", "has no text in column 'response'"),
    ],
)
def test_a_value_of_the_wrong_type_names_its_row(algorithm: str, row: dict[str, Any], field: str, said: str) -> None:
    found_field, message = refusal(spec(algorithm), [row])

    assert found_field == field
    assert said in message


def test_messages_without_an_answer_teach_nothing() -> None:
    made = spec("sft", messages_column="chat")

    assert "no assistant message" in refusal(made, [{"chat": [{"role": "user", "content": "a"}]}])[1]


def test_long_prompts_are_left_out() -> None:
    made = spec(knobs={"rollout.max_prompt_tokens": 10})

    kept = usable(made, render(made, [{"prompt": "1+1?"}, {"prompt": "1+1?" * 9}], TEXT))

    assert [e.row for e in kept] == [0]


def test_long_samples_are_cut_and_left_out_if_nothing_is_left_to_learn() -> None:
    made = spec("sft", knobs={"train.max_sequence_tokens": 12})
    rows = [{"prompt": "1", "response": "12345678901234567890"}, {"prompt": "1" * 20, "response": "2"}]

    (kept,) = usable(made, render(made, rows, TEXT))

    assert len(kept.tokens) == len(kept.is_trained) == 12
    assert kept.row == 0


def test_each_pass_over_the_data_is_a_new_shuffle_of_all() -> None:
    drawn = list(itertools.islice(in_order(10, seed=0), 30))

    passes = [drawn[0:10], drawn[10:20], drawn[20:30]]
    assert all(sorted(p) == list(range(10)) for p in passes)
    assert passes[0] != passes[1]


def test_the_order_can_be_taken_up_anywhere() -> None:
    whole = list(itertools.islice(in_order(7, seed=3), 40))

    assert list(itertools.islice(in_order(7, seed=3, start=17), 23)) == whole[17:]
