"""Pairs as a person looks at them before launch: prompt and chosen response, prompt and rejected response."""

from collections.abc import Sequence
from typing import Any

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.dataset import Row
from jobs.engine.data.examples import Example, column_value, template_variables, with_system
from jobs.engine.data.materialize import with_pair
from jobs.engine.data.messages import as_messages, kind_of
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem

Messages = list[dict[str, Any]]


def render_pairs(spec: RunSpec, rows: Sequence[Row], text: TextModel) -> list[tuple[Example, Example]]:
    """Return the chosen and the rejected side of each row, uncut; what each says in answer is trained.

    A side is a text, the messages of an answer, or a whole conversation that brings its prompt along.
    Raises: RunProblem naming the column and row whose value is missing or of the wrong type.
    """
    if spec.data.kind == "bundled":
        rows = [with_pair(row, number) for number, row in enumerate(rows)]
    chosen, rejected = (_side(spec, rows, text, field) for field in ("chosen_column", "rejected_column"))
    return list(zip(chosen, rejected, strict=True))


def _side(spec: RunSpec, rows: Sequence[Row], text: TextModel, field: str) -> list[Example]:
    shown = [_messages(spec, row, field, number) for number, row in enumerate(rows)]
    segments = []
    for number, (row, messages) in enumerate(zip(rows, shown, strict=True)):
        is_answer = [i == len(messages) - 1 for i in range(len(messages))]
        variables = template_variables(spec.data, row, number)
        segments.append(tuple(text.conversation(messages, variables, trained=is_answer)))
    return [
        Example(
            row=number,
            prompt=next((str(m["content"]) for m in reversed(messages) if m["role"] == "user"), ""),
            answer="",
            segments=parts,
            tokens=tokenized.tokens,
            is_trained=tokenized.is_trained,
        )
        for number, (messages, parts, tokenized) in enumerate(
            zip(shown, segments, text.tokenize(segments), strict=True)
        )
    ]


def _messages(spec: RunSpec, row: Row, field: str, number: int) -> Messages:
    column = str(getattr(spec.data, field))
    value = column_value(row, column)
    said = (
        [{"role": "assistant", "content": value}]
        if isinstance(value, str)
        else as_messages(value, field, column, number)
    )
    if said[-1]["role"] != "assistant":
        raise RunProblem(f"data.{field}", f"Row {number + 1} has a conversation in {column!r} that ends unanswered.")
    if len(said) > 1:
        return with_system(said, spec.data)
    prompt = column_value(row, spec.data.prompt_column) if spec.data.prompt_column else None
    if isinstance(prompt, list):
        question = as_messages(prompt, "prompt_column", spec.data.prompt_column, number)
    elif isinstance(prompt, str):
        question = [{"role": "user", "content": prompt}]
    else:
        raise RunProblem(
            "data.prompt_column",
            f"Row {number + 1} has no prompt in column {spec.data.prompt_column!r}, but {kind_of(prompt)}.",
        )
    return with_system([*question, *said], spec.data)
