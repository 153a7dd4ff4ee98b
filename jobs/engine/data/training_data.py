"""What a run's spec says of its training data, read: in memory or as a stream, alone or mixed with others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.data_parts import COLUMNS
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.columns import in_words, recognized_columns, with_recognized
from jobs.engine.data.dataset import Row, Table, load_table
from jobs.engine.data.examples import Example, mapping_problem, render, token_limit, usable
from jobs.engine.data.labels import balance_note
from jobs.engine.data.sources import ExamplesInMemory, ExampleSource, TrainingData
from jobs.engine.data.stream import Stream, columns_of, head, numbered_held_out, open_rows
from jobs.engine.data.text import TextModel
from jobs.engine.problem import RunProblem

STREAMING, BLOCK = "data.streaming", "data.shuffle_rows"
FIRST = "data"
"""The name of the run's first source, beside which those of `data.mixture` have their own."""
HEAD_ROWS = 20_000
"""Of a stream, the rows that are looked at before it is read: for columns, held-out rows and lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadData:
    """Training data, ready: `examples` are all of the first source, of a stream its first block; `notes` for people."""

    data: TrainingData
    examples: Sequence[Example]
    held_out: Sequence[Example]
    notes: Sequence[str]


def is_streamed(spec: RunSpec) -> bool:
    """Return True if rows are read as they are needed."""
    return STREAMING in spec.knobs and bool(spec.knob(STREAMING))


def first_table(spec: RunSpec, *, inputs_dir: Path) -> Table:
    """Return the rows of the first source; of a stream those at its beginning. Raises: RunProblem."""
    data = spec.data
    if not is_streamed(spec):
        return load_table(data, inputs_dir=inputs_dir)
    rows = head(data, data.split, HEAD_ROWS, inputs_dir=inputs_dir)
    if not rows:
        raise RunProblem("data.id", f"{data.id!r} has no rows.")
    train, held_out = (rows, []) if data.eval_split else numbered_held_out(rows, data.eval_share)
    if data.eval_split:
        held_out = head(data, data.eval_split, HEAD_ROWS, inputs_dir=inputs_dir)
    return Table(columns=columns_of(rows[:100]), train=train, held_out=held_out)


def read_training_data(spec: RunSpec, text: TextModel, *, inputs_dir: Path) -> ReadData:
    """Return the run's training data and its own held-out rows. Raises: RunProblem naming what cannot be used."""
    table = first_table(spec, inputs_dir=inputs_dir)
    first, notes = _mapped(spec, table)
    source, examples, num_left_out = _source(first, table, text, inputs_dir=inputs_dir)
    if num_left_out:
        among = f"the first {len(table.train)}" if is_streamed(spec) else f"{len(table.train)}"
        notes.append(f"{num_left_out} of {among} training rows were left out: longer than {token_limit(spec)} tokens.")
    if is_in(spec.algorithm, "labeled") and (note := balance_note(first, examples)):
        notes.append(note)
    sources: dict[str, ExampleSource] = {FIRST: source}
    for name, part in spec.data.mixture.items():
        sources[name] = _part(spec, name, part, text, inputs_dir=inputs_dir)
    weights = [spec.data.weight, *(float(part.get("weight", 1.0)) for part in spec.data.mixture.values())]
    held_out = usable(first, render(first, table.held_out[: spec.int_knob("eval.num_prompts")], text))
    data = TrainingData(sources, weights=weights, seed=spec.int_knob("train.seed"))
    return ReadData(data=data, examples=examples, held_out=held_out, notes=notes)


def _mapped(spec: RunSpec, table: Table) -> tuple[RunSpec, list[str]]:
    recognized = recognized_columns(spec, table.columns, table.train)
    mapped = with_recognized(spec, table)
    problem = mapping_problem(mapped, table.columns)
    if problem is not None:
        raise problem
    return mapped, [f"The columns of the data were recognized: {in_words(recognized)}."] if recognized else []


def _source(
    spec: RunSpec, table: Table, text: TextModel, *, inputs_dir: Path
) -> tuple[ExampleSource, list[Example], int]:
    """Return the source, its examples (of a stream those of its first rows), and how many rows are none."""

    def make(rows: Sequence[Row]) -> list[Example]:
        return usable(spec, render(spec, rows, text))

    rows, seed = table.train, spec.int_knob("train.seed")
    if not is_streamed(spec):
        examples = make(rows)
        _require_some(spec, examples, rows)
        return ExamplesInMemory(examples, seed=seed), examples, _num_unused(rows, examples)
    block = spec.int_knob(BLOCK)
    examples = make(rows[:block])
    _require_some(spec, examples, rows[:block])
    share = 0.0 if spec.data.eval_split else spec.data.eval_share
    files = open_rows(spec.data, spec.data.split, inputs_dir=inputs_dir)
    stream = Stream(files, make=make, block_rows=block, seed=seed, held_out_share=share)
    return stream, examples, _num_unused(rows[:block], examples)


def _num_unused(rows: Sequence[Row], examples: Sequence[Example]) -> int:
    """Return how many rows give no example; one may give two."""
    return len(rows) - len({example.row for example in examples})


def _require_some(spec: RunSpec, examples: Sequence[Example], rows: Sequence[Row]) -> None:
    if not examples:
        name = "rollout.max_prompt_tokens" if "rollout.max_prompt_tokens" in spec.knobs else "train.max_sequence_tokens"
        raise RunProblem(
            f"knobs.{name}",
            f"None of the {len(rows)} training rows is usable within {token_limit(spec)} tokens. Raise the limit.",
        )


def _part(spec: RunSpec, name: str, part: Mapping[str, Any], text: TextModel, *, inputs_dir: Path) -> ExampleSource:
    columns = {key: part[key] for key in COLUMNS if key in part}
    source = {"kind": part.get("kind", "path"), "id": part["id"], "split": part.get("split", spec.data.split)}
    own = spec.data.model_copy(update={**source, **columns, "eval_split": "", "eval_share": 0.0})
    here = spec.model_copy(update={"data": own})
    try:
        table = first_table(here, inputs_dir=inputs_dir)
        return _source(_mapped(here, table)[0], table, text, inputs_dir=inputs_dir)[0]
    except RunProblem as problem:
        raise RunProblem("data.mixture", f"The data {name}: {problem.message}") from problem
