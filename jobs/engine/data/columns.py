"""Which columns of the data hold what: recognized by their names and by what is in them. Imports no torch.

A mapping that nobody chose (the field still says what it says in every spec) and that the data do not have is read as
the column that usually holds such a thing: a file with `question` and `solution` needs no mapping. A column that
somebody named is never read as another one.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.reward_parts import TESTING
from jobs.catalog.spec.runspec import DataSource, RunSpec
from jobs.engine.data.dataset import Row, Table
from jobs.engine.data.examples import JOINED, column_value, has_column, mapped_fields
from jobs.engine.data.labels import holds_labels
from jobs.engine.data.messages import is_conversation

_NUM_LOOKED_AT = 50
_USUAL: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "prompt_column": ("prompt", "question", "problem", "instruction", "query", "input", "context", "user", "text"),
        "answer_column": (
            "answer",
            "solution",
            "final_answer",
            "expected_answer",
            "ground_truth",
            "reward_model.ground_truth",
            "target",
            "label",
            "gold",
            "output",
            "response",
        ),
        "response_column": ("response", "output", "completion", "answer", "solution", "target", "assistant", "reply"),
        "label_column": ("label", "desirable", "is_desirable", "is_chosen", "thumbs_up", "liked", "feedback", "vote"),
        "messages_column": ("messages", "conversations", "conversation", "chat", "dialog", "dialogue", "turns"),
        "chosen_column": ("chosen", "chosen_response", "preferred", "better", "winner", "win", "accepted", "good"),
        "rejected_column": (
            "rejected",
            "rejected_response",
            "dispreferred",
            "non_preferred",
            "worse",
            "loser",
            "lose",
            "bad",
        ),
    }
)
"""Names by which data sets call a column, the commonest first; compared without case and punctuation."""
_TESTS = ("tests", "test", "test_list", "test_cases", "unit_tests", "input_output", "private_tests", "public_tests")
"""Names of the answer column where answers are tests of code."""


def recognized_columns(spec: RunSpec, columns: Sequence[str], rows: Sequence[Row]) -> dict[str, str]:
    """Return field of `data` -> column, for the fields that this spec reads and nobody chose, where the data have no
    such column but one that plays its part; {} where the mapping holds as it is.

    `rows` are looked at (the first fifty) to tell a conversation from a text, and whether `input` adds to an
    `instruction`. A prompt column may be "", where each answer of a pair brings its prompt along.
    """
    rows = rows[:_NUM_LOOKED_AT]
    fields = mapped_fields(spec)
    if all(_holds(spec, field, columns) for field in fields):
        return {}
    is_unsaid = is_in(spec.algorithm, "answers") and not spec.data.messages_column
    if is_unsaid and (conversation := _conversation_column(columns, rows)):
        return {"messages_column": conversation}
    if is_in(spec.algorithm, "labeled") and not spec.data.label_column and (label := _label_column(columns, rows)):
        labeled = spec.model_copy(update={"data": spec.data.model_copy(update={"label_column": label})})
        return {"label_column": label} | recognized_columns(labeled, columns, rows)
    chosen: dict[str, str] = {}
    for field in fields:
        if _holds(spec, field, columns) or not _is_untouched(spec.data, field):
            chosen[field] = str(getattr(spec.data, field))
    mapping: dict[str, str] = {}
    for field in fields:
        if field not in chosen:
            names = _TESTS if field == "answer_column" and _has_tests(spec) else _USUAL[field]
            column = _usual_column(names, columns, rows, taken={*chosen.values(), *mapping.values()})
            if column is not None:
                mapping[field] = column
    brings_prompt = is_in(spec.algorithm, "pairs") or is_in(spec.algorithm, "labeled")
    if brings_prompt and "prompt_column" not in {**chosen, **mapping}:
        mapping["prompt_column"] = ""
    if spec.is_native and "prompt_column" in mapping:
        taken = {*chosen.values(), *mapping.values()}
        mapping["prompt_column"] = _with_input(mapping["prompt_column"], columns, rows, taken=taken)
    return mapping


def with_recognized(spec: RunSpec, table: Table) -> RunSpec:
    """Return the spec with the columns that its data were recognized to have."""
    mapping = recognized_columns(spec, table.columns, table.train)
    return spec.model_copy(update={"data": spec.data.model_copy(update=mapping)}) if mapping else spec


def in_words(mapping: Mapping[str, str]) -> str:
    """Return a mapping for a note: `prompt from question, answer from solution`."""
    parts = (f"{field.removesuffix('_column')} from {column}" for field, column in mapping.items() if column)
    return ", ".join(parts)


def _is_untouched(data: DataSource, field: str) -> bool:
    return getattr(data, field) == DataSource.model_fields[field].default


def _conversation_column(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the column that holds whole conversations, a usually named one before any other; "" if none does."""
    usual = [c for name in _USUAL["messages_column"] for c in columns if _plain(c) == _plain(name)]
    for column in (*usual, *(c for c in columns if c not in usual)):
        value = next((row[column] for row in rows if row.get(column)), None)
        if is_conversation(value):
            return column
    return ""


def _holds(spec: RunSpec, field: str, columns: Sequence[str]) -> bool:
    """Return whether a field's column is there; nobody chose `answer` for tests where a column is called tests."""
    if field == "answer_column" and _has_tests(spec) and _is_untouched(spec.data, field):
        return not any(_plain(column) == _plain(name) for name in _TESTS for column in columns) and has_column(
            spec.data.answer_column, columns
        )
    return has_column(str(getattr(spec.data, field)), columns)


def _has_tests(spec: RunSpec) -> bool:
    return any(part.kind in TESTING for part in spec.reward.parts)


def _label_column(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the column with a usual name that holds nothing but labels; "" if none does."""
    usual = {_plain(name) for name in _USUAL["label_column"]}
    return next((c for c in columns if _plain(c) in usual and holds_labels(c, rows)), "")


def _usual_column(names: Sequence[str], columns: Sequence[str], rows: Sequence[Row], *, taken: set[str]) -> str | None:
    for name in names:
        if "." in name and any(column_value(row, name) is not None for row in rows):
            return name
        for column in columns:
            if _plain(column) == _plain(name) and column not in taken:
                return column
    return None


def _with_input(prompt: str, columns: Sequence[str], rows: Sequence[Row], *, taken: set[str]) -> str:
    """Return an instruction together with the input that belongs to it, as Alpaca and its like have them."""
    if _plain(prompt) != "instruction":
        return prompt
    for column in columns:
        if _plain(column) in ("input", "context") and column not in taken and any(row.get(column) for row in rows):
            return f"{prompt}{JOINED}{column}"
    return prompt


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())
