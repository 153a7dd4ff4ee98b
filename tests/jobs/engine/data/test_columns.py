"""Which columns of a data set are read as what, where nobody says it."""

from typing import Any

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.engine.data.columns import in_words, recognized_columns, with_recognized
from jobs.engine.data.dataset import Table
from jobs.engine.data.examples import column_value, mapping_problem, render
from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel

CHAT = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
SHARED = [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]


def found(algorithm: str, row: dict[str, Any], **spec: Any) -> dict[str, str]:
    made = parse_spec(
        {"algorithm": algorithm, "data": {"kind": "path", "id": "/a.jsonl", **spec.pop("data", {})}, **spec}
    )
    return recognized_columns(made, list(row), [row])


@pytest.mark.parametrize(
    ("algorithm", "row", "wanted"),
    [
        ("grpo", {"prompt": "x", "answer": "y"}, {}),
        ("grpo", {"question": "x", "solution": "y"}, {"prompt_column": "question", "answer_column": "solution"}),
        ("grpo", {"question": "x", "answer": "y"}, {"prompt_column": "question"}),
        ("grpo", {"Problem": "x", "Final Answer": "y"}, {"prompt_column": "Problem", "answer_column": "Final Answer"}),
        (
            "grpo",
            {"prompt": CHAT[:1], "reward_model": {"ground_truth": "2"}},
            {"answer_column": "reward_model.ground_truth"},
        ),
        ("sft", {"prompt": "x", "response": "y"}, {}),
        ("sft", {"prompt": "x", "answer": "y"}, {"response_column": "answer"}),
        ("sft", {"question": "x", "solution": "y"}, {"prompt_column": "question", "response_column": "solution"}),
        ("sft", {"prompt": "x", "completion": "y"}, {"response_column": "completion"}),
        ("sft", {"prompt": "x", "messages": CHAT}, {"messages_column": "messages"}),
        ("sft", {"id": 1, "conversations": SHARED}, {"messages_column": "conversations"}),
        ("sft", {"id": 1, "talk": CHAT}, {"messages_column": "talk"}),
        (
            "sft",
            {"instruction": "x", "input": "", "output": "y"},
            {"prompt_column": "instruction", "response_column": "output"},
        ),
        (
            "sft",
            {"instruction": "x", "input": "z", "output": "y"},
            {"prompt_column": "instruction + input", "response_column": "output"},
        ),
        ("kto", {"prompt": "x", "chosen": "y", "rejected": "z", "label": True}, {}),
        (
            "kto",
            {"question": "x", "completion": "y", "label": "false"},
            {"label_column": "label", "prompt_column": "question", "response_column": "completion"},
        ),
        (
            "kto",
            {"completion": CHAT, "liked": 1},
            {"label_column": "liked", "prompt_column": "", "response_column": "completion"},
        ),
        (
            "kto",
            {"better": "y", "worse": "z", "label": 4.5},
            {"prompt_column": "", "chosen_column": "better", "rejected_column": "worse"},
        ),
    ],
)
def test_usual_columns_are_recognized(algorithm: str, row: dict[str, Any], wanted: dict[str, str]) -> None:
    assert found(algorithm, row) == wanted


@pytest.mark.parametrize(
    ("row", "data", "wanted"),
    [
        ({"prompt": "x", "tests": []}, {}, {"answer_column": "tests"}),
        ({"text": "x", "code": "y", "test_list": []}, {}, {"prompt_column": "text", "answer_column": "test_list"}),
        ({"prompt": "x", "answer": "y", "test": "z"}, {}, {"answer_column": "test"}),
        ({"prompt": "x", "answer": "assert f()"}, {}, {}),
        ({"prompt": "x", "mine": "y", "tests": "z"}, {"answer_column": "mine"}, {}),
    ],
)
def test_tests_of_code_are_the_answers_that_a_code_reward_reads(
    row: dict[str, Any], data: dict[str, Any], wanted: dict[str, str]
) -> None:
    assert found("grpo", row, data=data, reward={"kind": "code"}) == wanted


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ({"prompt": "x", "chosen": "y", "rejected": "z"}, {}),
        ({"chosen": CHAT, "rejected": CHAT}, {"prompt_column": ""}),
        (
            {"question": "x", "chosen_response": "y", "rejected_response": "z"},
            {
                "prompt_column": "question",
                "chosen_column": "chosen_response",
                "rejected_column": "rejected_response",
            },
        ),
    ],
)
def test_both_sides_of_a_pair_are_recognized(row: dict[str, Any], wanted: dict[str, str]) -> None:
    assert found("dpo", row, trainer={"name": "openrlhf"}) == wanted


def test_what_somebody_named_is_never_read_as_another_column() -> None:
    row = {"question": "x", "solution": "y"}

    named = found("grpo", row, data={"prompt_column": "frage"})

    assert named == {"answer_column": "solution"}


def test_nothing_is_recognized_in_columns_that_say_nothing() -> None:
    assert found("grpo", {"a": "x", "b": "y"}) == {}


def test_no_column_is_read_twice() -> None:
    assert found("sft", {"answer": "x"}) == {"response_column": "answer"}


def test_a_mapping_that_was_recognized_is_one_that_reads() -> None:
    rows: list[dict[str, object]] = [
        {"instruction": "Add.", "input": "1 and 1", "output": "2"},
        {"instruction": "Say 3.", "input": "", "output": "3"},
    ]
    spec = parse_spec({"algorithm": "sft"})
    table = Table(columns=("instruction", "input", "output"), train=rows, held_out=[])

    mapped = with_recognized(spec, table)
    first, second = render(mapped, rows, TextModel(BUNDLED / "tiny-word-problems"))

    assert mapping_problem(mapped, table.columns) is None
    assert (first.prompt, second.prompt) == ("Add.\n\n1 and 1", "Say 3.")
    assert in_words(recognized_columns(spec, table.columns, rows)) == (
        "prompt from instruction + input, response from output"
    )


def test_the_messages_of_sharegpt_read_as_any_others() -> None:
    spec = parse_spec({"algorithm": "sft", "data": {"messages_column": "c"}})
    text = TextModel(BUNDLED / "tiny-word-problems")

    (theirs,) = render(spec, [{"c": SHARED}], text)
    (ours,) = render(spec, [{"c": CHAT}], text)

    assert theirs == ours


def test_joined_columns_that_are_not_all_there_are_a_problem_of_the_mapping() -> None:
    spec = parse_spec({"algorithm": "sft", "data": {"prompt_column": "instruction + input"}})

    problem = mapping_problem(spec, ["instruction", "response"])

    assert problem is not None
    assert problem.field == "data.prompt_column"
    assert column_value({"instruction": "a", "input": None}, "instruction + input") == "a"
