"""Rows to examples: the column mapping, the chat template, the loss mask, the length limits. Imports no torch."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.reward_parts import COMPARING, TESTING
from jobs.catalog.spec.runspec import DataSource, RunSpec
from jobs.engine.data.dataset import Row
from jobs.engine.data.labels import label_of, split_pair
from jobs.engine.data.messages import Message, as_messages, kind_of, take_flags
from jobs.engine.data.pairs import conversation_of, margin_of, shared_messages, tokenized, without_shared_turns
from jobs.engine.data.text import TextModel, TextSegment
from jobs.engine.problem import RunProblem

_MISSING = object()
JOINED = " + "
"""Between the names of columns whose texts are read as one, a blank line between them: `instruction + input`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One row, ready: `tokens`, and `is_trained` per token (all false in a prompt to continue).

    `prompt` and `answer` are the raw texts, for rewards and pages; `row` is its number among the rows it came from. Of
    a pair it is the chosen response, and `rejected` the other one; `margin` is by how much it is to score higher.
    `is_desirable` is the label of a single response.
    """

    row: int
    prompt: str
    answer: str
    segments: tuple[TextSegment, ...]
    tokens: tuple[int, ...]
    is_trained: tuple[bool, ...]
    rejected: "Example | None" = None
    margin: float = 0.0
    is_desirable: bool | None = None


def mapping_problem(spec: RunSpec, columns: Sequence[str]) -> RunProblem | None:
    """Return which mapped column the data does not have, or None. A dot looks inside a column:
    `reward_model.ground_truth`.
    """
    for field in (*mapped_fields(spec), *_named_beside(spec.data)):
        column = str(getattr(spec.data, field))
        if column and not has_column(column, columns):
            there = ", ".join(columns) or "none"
            return RunProblem(f"data.{field}", f"The data has no column {column!r}. It has: {there}.")
    return None


def has_column(column: str, columns: Sequence[str]) -> bool:
    """Return True if the data have this column; of a nested one the outermost, of joined ones each."""
    parts = [column] if column in columns else column.split(JOINED)
    return all(part in columns or part.split(".")[0] in columns for part in parts)


def mapped_fields(spec: RunSpec) -> tuple[str, ...]:
    """Return the fields of `data` whose column this spec reads."""
    if is_in(spec.algorithm, "answers"):
        return ("messages_column",) if spec.data.messages_column else ("prompt_column", "response_column")
    if is_in(spec.algorithm, "labeled") and spec.data.label_column:
        return ("prompt_column", "response_column", "label_column")
    if is_in(spec.algorithm, "pairs") or is_in(spec.algorithm, "labeled"):
        return ("prompt_column", "chosen_column", "rejected_column")
    needs_answer = any(part.kind in (*COMPARING, *TESTING) for part in spec.reward.parts)
    return ("prompt_column", "answer_column") if needs_answer else ("prompt_column",)


def _named_beside(data: DataSource) -> tuple[str, ...]:
    """Return the fields of columns that need not be there, unless somebody names another one than the usual."""
    return ("tools_column",) if data.tools_column != DataSource().tools_column else ()


def render(spec: RunSpec, rows: Sequence[Row], text: TextModel) -> list[Example]:
    """Return every row as an example, in order, uncut; a pair whose labels are learned as two.

    Raises: RunProblem naming the column and row whose value is missing or of the wrong type.
    """
    if is_in(spec.algorithm, "pairs"):
        return _render_pairs(spec, rows, text)
    if is_in(spec.algorithm, "labeled"):
        if spec.data.label_column:
            return _render_labeled(spec, rows, text)
        return [single for pair in _render_pairs(spec, rows, text) for single in split_pair(pair)]
    shown = [_messages(spec, row, number) for number, row in enumerate(rows)]
    segments = [
        tuple(_segments(spec, messages, row, number, text))
        for number, (row, messages) in enumerate(zip(rows, shown, strict=True))
    ]
    return [
        Example(
            row=number,
            prompt=next((m["content"] for m in reversed(messages) if m["role"] == "user"), ""),
            answer=answer_text(spec, row),
            segments=parts,
            tokens=tokenized.tokens,
            is_trained=tokenized.is_trained,
        )
        for number, (row, messages, parts, tokenized) in enumerate(
            zip(rows, shown, segments, text.tokenize(segments), strict=True)
        )
    ]


def _render_pairs(spec: RunSpec, rows: Sequence[Row], text: TextModel) -> list[Example]:
    """Return the chosen response of each row with the rejected one beside it; turns that both share do not count."""
    sides = [_pair_messages(spec.data, row, number) for number, row in enumerate(rows)]
    variables = [template_variables(spec.data, row, number) for number, row in enumerate(rows)]
    chosen, rejected = (tokenized([pair[k] for pair in sides], variables, text) for k in (0, 1))
    examples = []
    for number, (pair, (segments, first), (others, second)) in enumerate(zip(sides, chosen, rejected, strict=True)):
        first, second = without_shared_turns(first, second)
        prompt = next((str(m["content"]) for m in reversed(shared_messages(*pair)) if m["role"] == "user"), "")
        one, other = (
            Example(
                row=number,
                prompt=prompt,
                answer=str(messages[-1]["content"] or ""),
                segments=parts,
                tokens=side.tokens,
                is_trained=side.is_trained,
                margin=margin_of(spec, rows[number], number),
            )
            for messages, parts, side in zip(pair, (segments, others), (first, second), strict=True)
        )
        examples.append(replace(one, rejected=other))
    return examples


def _render_labeled(spec: RunSpec, rows: Sequence[Row], text: TextModel) -> list[Example]:
    """Return the labeled response of each row; of its conversation that response alone counts."""
    data = spec.data
    labels = [
        label_of(column_value(row, data.label_column), column=data.label_column, number=number)
        for number, row in enumerate(rows)
    ]
    answers = [_answer_messages(data, row, "response_column", number) for number, row in enumerate(rows)]
    shown: list[list[Message]] = []
    segments = []
    for number, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        brings_prompt = answer[0]["role"] != "assistant"
        prompt = [] if brings_prompt and not data.prompt_column else with_system(_prompt(data, row, number), data)
        messages = with_system(conversation_of(prompt, answer), data)
        last_user = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
        first = last_user if brings_prompt else len(prompt)
        trained = [i >= first and m["role"] == "assistant" for i, m in enumerate(messages)]
        shown.append(messages)
        segments.append(tuple(text.conversation(messages, template_variables(data, row, number), trained=trained)))
    return [
        Example(
            row=number,
            prompt=next((str(m["content"]) for m in reversed(messages) if m["role"] == "user"), ""),
            answer=str(messages[-1]["content"] or ""),
            segments=parts,
            tokens=tokenized.tokens,
            is_trained=tokenized.is_trained,
            is_desirable=label,
        )
        for number, (messages, parts, tokenized, label) in enumerate(
            zip(shown, segments, text.tokenize(segments), labels, strict=True)
        )
    ]


def _segments(
    spec: RunSpec, messages: list[dict[str, Any]], row: Row, number: int, text: TextModel
) -> list[TextSegment]:
    variables = template_variables(spec.data, row, number)
    if not is_in(spec.algorithm, "answers"):
        return text.prompt(messages, variables)
    chosen = spec.knobs.get("data.trained_turns")  # other trainers have no such knob
    which = str(chosen.value) if chosen is not None else "all"
    field = "messages_column" if spec.data.messages_column else "prompt_column"
    trained = take_flags(messages, which=which, field=field, number=number)
    return text.conversation(messages, variables, trained=trained)


def usable(spec: RunSpec, examples: Sequence[Example]) -> list[Example]:
    """Return the examples as they are trained on.

    GRPO leaves out prompts longer than `rollout.max_prompt_tokens`. SFT cuts at `train.max_sequence_tokens` and leaves
    out what has no trained token left; so it does with a pair of which one response has none.
    """
    if is_in(spec.algorithm, "rl"):
        return [e for e in examples if 0 < len(e.tokens) <= token_limit(spec)]
    cut = [_cut(example, token_limit(spec)) for example in examples]
    return [e for e in cut if all(any(side.is_trained[1:]) for side in sides_of(e))]


def sides_of(example: Example) -> tuple[Example, ...]:
    """Return what an example gives to a batch: itself, or the chosen response and the rejected one."""
    return (example,) if example.rejected is None else (example, example.rejected)


def token_limit(spec: RunSpec) -> int:
    """Return the longest prompt (GRPO) or sample (SFT) in tokens."""
    return spec.int_knob("rollout.max_prompt_tokens" if is_in(spec.algorithm, "rl") else "train.max_sequence_tokens")


def _cut(example: Example, limit: int) -> Example:
    return replace(
        example,
        tokens=example.tokens[:limit],
        is_trained=example.is_trained[:limit],
        rejected=None if example.rejected is None else _cut(example.rejected, limit),
    )


def in_order(num_examples: int, *, seed: int, start: int = 0) -> Iterator[int]:
    """Yield example numbers for ever: each pass is a new shuffle of all; `start` skips what an earlier attempt
    consumed.
    """
    epoch, offset = divmod(start, num_examples)
    while True:
        numbers = list(range(num_examples))
        random.Random(f"{seed}/{epoch}").shuffle(numbers)
        yield from numbers[offset:]
        epoch, offset = epoch + 1, 0


def column_value(row: Row, column: str) -> object:
    """Return the value of `column`, which may reach into nested objects with dots, or join the texts of several; None
    if it is not there.
    """
    if column in row:
        return row[column]
    if JOINED in column:
        texts = [value for part in column.split(JOINED) if (value := column_value(row, part)) not in (None, "")]
        return "\n\n".join(map(str, texts)) or None
    inner: object = row
    for part in column.split("."):
        inner = inner.get(part, _MISSING) if isinstance(inner, dict) else _MISSING
    return None if inner is _MISSING else inner


def _messages(spec: RunSpec, row: Row, number: int) -> list[dict[str, Any]]:
    data = spec.data
    if is_in(spec.algorithm, "answers") and data.messages_column:
        messages = as_messages(column_value(row, data.messages_column), "messages_column", data.messages_column, number)
        if not any(m["role"] == "assistant" for m in messages):
            raise RunProblem("data.messages_column", f"Row {number + 1} has no assistant message to learn from.")
        return with_system(messages, data)
    messages = with_system(_prompt(data, row, number), data)
    if is_in(spec.algorithm, "answers"):
        response = column_value(row, data.response_column)
        if not isinstance(response, str):
            raise RunProblem(
                "data.response_column",
                f"Row {number + 1} has no text in column {data.response_column!r}, but {kind_of(response)}.",
            )
        messages.append({"role": "assistant", "content": response})
    return messages


def _prompt(data: DataSource, row: Row, number: int) -> list[dict[str, Any]]:
    prompt = column_value(row, data.prompt_column)
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return as_messages(prompt, "prompt_column", data.prompt_column, number)


def _pair_messages(data: DataSource, row: Row, number: int) -> tuple[list[Message], list[Message]]:
    """Return the conversations with the chosen and the rejected response of a row: texts, or lists of messages, which
    may bring the prompt along. Raises: RunProblem naming the column.
    """
    answers = [_answer_messages(data, row, field, number) for field in ("chosen_column", "rejected_column")]
    bring_prompt = all(answer[0]["role"] != "assistant" for answer in answers)
    prompt = [] if bring_prompt and not data.prompt_column else _prompt(data, row, number)
    first, second = (conversation_of(with_system(prompt, data), answer) for answer in answers)
    return with_system(first, data), with_system(second, data)


def _answer_messages(data: DataSource, row: Row, field: str, number: int) -> list[dict[str, Any]]:
    column = str(getattr(data, field))
    value = column_value(row, column)
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    messages = as_messages(value, field, column, number)
    if messages[-1]["role"] != "assistant":
        raise RunProblem(f"data.{field}", f"Row {number + 1} has a conversation in {column!r} that ends unanswered.")
    return messages


def with_system(messages: list[dict[str, Any]], data: DataSource) -> list[dict[str, Any]]:
    """Return the messages behind the spec's system prompt, if there is one and they bring none."""
    if data.system_prompt and not any(m["role"] == "system" for m in messages):
        return [{"role": "system", "content": data.system_prompt}, *messages]
    return messages


def template_variables(data: DataSource, row: Row, number: int) -> dict[str, Any]:
    """Return the template's variables: the spec's, and what the row brings along."""
    variables = dict(data.chat_template_kwargs)
    if data.tools_column and (tools := column_value(row, data.tools_column)) not in (None, ""):
        variables["tools"] = _as_tools(tools, data.tools_column, number)
    documents = row.get("documents")
    if _is_list_of_objects(documents):
        variables["documents"] = documents
    return variables


def _as_tools(value: object, column: str, number: int) -> object:
    tools = value
    if isinstance(value, str):
        try:
            tools = json.loads(value)
        except (ValueError, RecursionError):
            tools = None
    if not _is_list_of_objects(tools):
        raise RunProblem(
            "data.tools_column",
            f"Row {number + 1} holds {kind_of(value)} in column {column!r}. It must be a list of tools, each a JSON "
            "schema, or such a list as JSON text. Leave the field empty if the column holds something else.",
        )
    return tools


def _is_list_of_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def answer_text(spec: RunSpec, row: Row) -> str:
    """Return what a reward gets as the answer of a row; lists and objects as JSON, "" where there is none."""
    value = column_value(row, spec.data.answer_column) if spec.data.answer_column else None
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)
