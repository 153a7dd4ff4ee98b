"""The rows that TRL reads, as JSON lines: conversations under its own names of columns.

Source: TRL data_utils.py and docs/dataset_formats.md. A conversation goes through the model's chat template, a text
does not: rows of Pitwall are questions and answers, so that they are laid out as conversations.
"""

from collections.abc import Sequence

from jobs.adapters.inputs import Format, Inputs, Row
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import DataSource, RunSpec


class TrlInputs:
    """`messages` or prompt and completion, pairs, labeled completions, and prompts with their answer."""

    suffix: Format = "jsonl"

    def rows(self, spec: RunSpec, rows: Sequence[Row]) -> list[Row]:
        """See Inputs."""
        data = spec.data
        if is_in(spec.algorithm, "answers"):
            return [_example(data, row) for row in rows]
        if is_in(spec.algorithm, "pairs"):
            return [_pair(data, row) for row in rows]
        if is_in(spec.algorithm, "labeled"):
            return _labeled(data, rows)
        return [{"prompt": _prompt(data, row), "answer": str(row.get(data.answer_column, ""))} for row in rows]


def _example(data: DataSource, row: Row) -> Row:
    if data.messages_column:
        return {"messages": row[data.messages_column]}
    return {"prompt": _prompt(data, row), "completion": _answer(row[data.response_column])}


def _pair(data: DataSource, row: Row) -> Row:
    pair: Row = {"chosen": _answer(row[data.chosen_column]), "rejected": _answer(row[data.rejected_column])}
    return pair if data.prompt_column not in row else {"prompt": _prompt(data, row), **pair}


def _labeled(data: DataSource, rows: Sequence[Row]) -> list[Row]:
    """Return labeled completions; of pairs both, in turn.

    TRL takes KTO's rows in their order and estimates the divergence from a prompt with the completion of the row
    before it in its micro-batch. So the rejected answer that follows a chosen one is that of a pair far away: answers
    to one prompt side by side would be no mismatch.
    """
    if data.label_column:
        return [
            {
                "prompt": _prompt(data, row),
                "completion": _answer(row[data.response_column]),
                "label": row[data.label_column],
            }
            for row in rows
        ]
    away = len(rows) // 2
    both: list[Row] = []
    for chosen, rejected in zip(rows, (*rows[away:], *rows[:away]), strict=True):
        for row, column, label in ((chosen, data.chosen_column, True), (rejected, data.rejected_column, False)):
            both.append({"prompt": _prompt(data, row), "completion": _answer(row[column]), "label": label})
    return both


def _prompt(data: DataSource, row: Row) -> object:
    text = row[data.prompt_column]
    if isinstance(text, list):
        return text
    system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    return [*system, {"role": "user", "content": str(text)}]


def _answer(part: object) -> object:
    return part if isinstance(part, list) else [{"role": "assistant", "content": str(part)}]


PLUGIN: Inputs = TrlInputs()
