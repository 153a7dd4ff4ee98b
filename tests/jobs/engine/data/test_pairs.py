"""Rows of pairs, and of labeled responses, to examples: templated once, and only what answers the question counts."""

from typing import Any

import pytest

from jobs.catalog.label import as_label
from jobs.catalog.spec.parse import parse_spec
from jobs.engine.data.examples import Example, render, usable
from jobs.engine.data.labels import balance_note
from jobs.engine.data.model_files import model_folder
from jobs.engine.data.text import TextModel
from jobs.engine.mismatches import mismatched
from jobs.engine.problem import RunProblem
from jobs.engine.rollouts.held_out_pairs import batch_of

QUESTION = "Ana has 3 pens and gets 4 more. How many pens now?"
GOOD, BAD = "3+4=7, 0+0=0. #### 7", "3+4=8, 0+0=0. #### 8"


@pytest.fixture(scope="module")
def text() -> TextModel:
    return TextModel(model_folder(parse_spec({}).model))


def pair(text: TextModel, row: dict[str, Any], *, knobs: dict[str, Any] | None = None, **data: Any) -> Example:
    spec = parse_spec({"algorithm": "dpo", "data": data, "knobs": knobs or {}})
    (example,) = render(spec, [row], text)
    return example


def counted(text: TextModel, example: Example) -> str:
    return text.decode([t for t, counts in zip(example.tokens, example.is_trained, strict=True) if counts])


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


PLAIN: dict[str, Any] = {"prompt": QUESTION, "chosen": GOOD, "rejected": BAD}
MESSAGES = {
    "prompt": QUESTION,
    "chosen": [said("user", QUESTION), said("assistant", GOOD)],
    "rejected": [said("user", QUESTION), said("assistant", BAD)],
}
ANSWERS = {
    "prompt": [said("user", QUESTION)],
    "chosen": [said("assistant", GOOD)],
    "rejected": [said("assistant", BAD)],
}


@pytest.mark.parametrize("row", [PLAIN, MESSAGES, ANSWERS], ids=["texts", "whole conversations", "answers as messages"])
def test_each_form_of_a_pair_is_the_same_two_conversations(text: TextModel, row: dict[str, Any]) -> None:
    example = pair(text, row)

    assert example.rejected is not None
    assert (counted(text, example), counted(text, example.rejected)) == (GOOD, BAD)
    assert text.decode(example.tokens).count(QUESTION) == 1
    assert (example.prompt, example.answer, example.rejected.answer) == (QUESTION, GOOD, BAD)


def test_conversations_that_bring_their_prompt_need_no_prompt_column(text: TextModel) -> None:
    row = {key: MESSAGES[key] for key in ("chosen", "rejected")}

    assert pair(text, row, prompt_column="") == pair(text, MESSAGES)


def test_turns_that_both_share_do_not_count(text: TextModel) -> None:
    history = [said("user", QUESTION), said("assistant", "7"), said("user", "Show the steps.")]
    row = {side: [*history, said("assistant", answer)] for side, answer in (("chosen", GOOD), ("rejected", BAD))}

    example = pair(text, row, prompt_column="")

    assert example.rejected is not None
    assert (counted(text, example), counted(text, example.rejected)) == (GOOD, BAD)
    assert example.prompt == "Show the steps."


def test_a_system_prompt_comes_once(text: TextModel) -> None:
    example = pair(text, MESSAGES, system_prompt="Be brief.")

    assert text.decode(example.tokens).count("Be brief.") == 1


def test_pairs_that_are_equal_or_cut_before_an_answer_are_left_out(text: TextModel) -> None:
    spec = parse_spec({"algorithm": "dpo", "knobs": {"train.max_sequence_tokens": 8}})
    same: dict[str, Any] = PLAIN | {"rejected": GOOD}

    assert usable(spec, render(spec, [PLAIN], text)) == []
    assert usable(parse_spec({"algorithm": "dpo"}), render(spec, [same], text)) == []


@pytest.mark.parametrize(
    ("row", "field", "words"),
    [
        (PLAIN | {"rejected": 3}, "data.rejected_column", "Row 1 holds int '3' in column 'rejected'"),
        (PLAIN | {"chosen": [said("user", "?")]}, "data.chosen_column", "ends unanswered"),
        ({"chosen": GOOD, "rejected": BAD}, "data.prompt_column", "Row 1 holds nothing in column 'prompt'"),
    ],
)
def test_a_pair_that_is_none_is_named(text: TextModel, row: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(RunProblem) as refused:
        pair(text, row)

    assert refused.value.field == field
    assert words in refused.value.message


def test_a_batch_holds_chosen_and_rejected_in_turn(text: TextModel) -> None:
    example = pair(text, PLAIN)
    assert example.rejected is not None

    batch = batch_of([example, example], pad_id=text.pad_id)

    assert batch.lengths_B.tolist() == [len(example.tokens), len(example.rejected.tokens)] * 2
    assert batch.mask_BL.sum(dim=1).tolist() == [sum(example.is_trained), sum(example.rejected.is_trained)] * 2


def margins_of(text: TextModel, rows: list[dict[str, Any]], *, reads: bool = True) -> object:
    spec = parse_spec({"algorithm": "rm", "knobs": {"pairs.margin": reads}})
    margins_B = batch_of(render(spec, rows, text), pad_id=text.pad_id).margins_B
    return None if margins_B is None else margins_B.tolist()


def test_a_reward_model_reads_the_margin_of_each_pair_where_it_is_asked_to(text: TextModel) -> None:
    rows = [PLAIN | {"margin": 0.5}, PLAIN | {"margin": 2}]

    assert margins_of(text, rows) == [0.5, 0.5, 2.0, 2.0]
    assert margins_of(text, rows, reads=False) is None


@pytest.mark.parametrize("margin", [None, "much", True, float("nan")])
def test_a_pair_whose_margin_is_no_number_is_refused(text: TextModel, margin: object) -> None:
    with pytest.raises(RunProblem, match="Row 1 has no number in column 'margin'") as refused:
        margins_of(text, [PLAIN | {"margin": margin}])

    assert refused.value.field == "knobs.pairs.margin"


LABELED: list[dict[str, Any]] = [
    {"prompt": QUESTION, "completion": GOOD, "label": True},
    {"prompt": QUESTION, "completion": [said("assistant", BAD)], "label": "undesirable"},
]


def labeled(text: TextModel, rows: list[dict[str, Any]], **data: Any) -> list[Example]:
    columns = {"response_column": "completion", "label_column": "label"} if "completion" in rows[0] else {}
    return render(parse_spec({"algorithm": "kto", "data": columns | data}), rows, text)


def test_labeled_responses_are_those_of_a_pair_that_is_split(text: TextModel) -> None:
    apart, split = labeled(text, LABELED), labeled(text, [PLAIN])

    assert [counted(text, example) for example in apart] == [GOOD, BAD]
    assert [example.is_desirable for example in apart] == [True, False]
    for one, other in zip(apart, split, strict=True):
        assert (one.tokens, one.is_trained, one.is_desirable) == (other.tokens, other.is_trained, other.is_desirable)
        assert (one.prompt, one.answer) == (other.prompt, other.answer)


def test_of_a_labeled_conversation_the_last_answer_alone_counts(text: TextModel) -> None:
    history = [said("user", QUESTION), said("assistant", "7"), said("user", "Show the steps.")]
    whole = {"prompt": "", "completion": [*history, said("assistant", GOOD)], "label": 1}
    apart = {"prompt": history, "completion": GOOD, "label": 1}

    (first,), (second,) = labeled(text, [whole], prompt_column=""), labeled(text, [apart])

    assert counted(text, first) == counted(text, second) == GOOD
    assert first.tokens == second.tokens
    assert first.prompt == "Show the steps."


@pytest.mark.parametrize(("value", "label"), [(1, True), (0.0, False), (-1, False), (" True", True), ("no", False)])
def test_labels_are_read_as_data_write_them(value: object, label: bool) -> None:
    assert as_label(value) is label


@pytest.mark.parametrize("value", [None, 2, 0.5, "good", [True]])
def test_what_is_no_label_is_refused(text: TextModel, value: object) -> None:
    with pytest.raises(RunProblem, match=r"Row 1 holds .* in column 'label'\. It must be true or false") as refused:
        labeled(text, [LABELED[0] | {"label": value}])

    assert refused.value.field == "data.label_column"


def test_labels_that_are_all_equal_are_refused_and_those_out_of_balance_noted(text: TextModel) -> None:
    spec = parse_spec({"algorithm": "kto", "data": {"label_column": "label"}})
    good, bad = labeled(text, LABELED)

    assert balance_note(spec, [good] * 4 + [bad] * 3) == ""
    assert "8 of 10 responses are desirable" in (note := balance_note(spec, [good] * 8 + [bad] * 2))
    assert "a weight of undesirable responses from 3 to 4" in note
    assert "a weight of desirable responses from 4 to 5.33" in balance_note(spec, [good] + [bad] * 4)
    with pytest.raises(RunProblem, match="None of the 3 responses is desirable"):
        balance_note(spec, [bad] * 3)


def test_mismatched_responses_stand_under_the_prompt_of_another(text: TextModel) -> None:
    other = PLAIN | {"prompt": "Ben has 9 cups and loses 2. How many cups now?", "chosen": "9-2=7, 0+0=0. #### 7"}
    one, two, three = labeled(text, [PLAIN, other])[:3]

    first, second, third = mismatched([one, two, three], limit=100)

    assert [counted(text, example) for example in (first, second, third)] == [three.answer, three.answer, two.answer]
    for asked, shown in ((one, first), (two, second), (three, third)):
        assert text.decode(shown.tokens).count(asked.prompt) == 1
    assert mismatched([one, two], limit=100) == [two, one]
    (cut, _) = mismatched([one, three], limit=len(one.tokens) - 3)
    assert len(cut.tokens) == len(cut.is_trained) == len(one.tokens) - 3
