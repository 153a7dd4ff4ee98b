"""The rows that verl reads, from Parquet: `messages` for fine-tuning, prompts with their answer for rollouts.

Source: verl utils/dataset (rl_dataset.py, multiturn_sft_dataset.py) and examples/data_preprocess.
"""

import json
from collections.abc import Sequence
from typing import Any

from jobs.adapters.inputs import Format, Inputs, Row
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import DataSource, RunSpec


class VerlInputs:
    """Rows in verl's own columns, whatever the source's are called."""

    suffix: Format = "parquet"

    def rows(self, spec: RunSpec, rows: Sequence[Row]) -> list[Row]:
        """See Inputs."""
        if is_in(spec.algorithm, "rl"):
            return [_prompt(spec.data, row, number) for number, row in enumerate(rows)]
        return [{"messages": _messages(spec.data, row)} for row in rows]


def _messages(data: DataSource, row: Row) -> Any:
    if data.messages_column:
        return row[data.messages_column]
    return [
        *_system(data),
        {"role": "user", "content": str(row[data.prompt_column])},
        {"role": "assistant", "content": str(row[data.response_column])},
    ]


def _prompt(data: DataSource, row: Row, number: int) -> Row:
    text = row[data.prompt_column]
    prompt = text if isinstance(text, list) else [*_system(data), {"role": "user", "content": str(text)}]
    return {
        "prompt": prompt,
        "data_source": "pitwall",
        "reward_model": {"style": "rule", "ground_truth": str(row.get(data.answer_column, ""))},
        "extra_info": {"index": number, "prompt": text if isinstance(text, str) else json.dumps(text)},
    }


def _system(data: DataSource) -> list[dict[str, str]]:
    return [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []


PLUGIN: Inputs = VerlInputs()
