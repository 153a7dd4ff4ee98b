"""Lay out what the console holds as files that another trainer reads: `python -m jobs.engine.data.materialize RUN_DIR`.

Reads `spec.json` and writes the files that `jobs/adapters/inputs.py` names: the bundled model, and bundled or uploaded
data. Started by the runner before the trainer. Exit code 2 and one JSON line `{"field", "message"}` if the spec's data
are not what the trainer needs. Imports no torch.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.inputs import Format, inputs_of
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.dataset import Row, load_table
from jobs.engine.data.labels import label_of
from jobs.engine.data.model_files import model_folder
from jobs.engine.problem import RunProblem

REFUSED = 2


def materialize_inputs(spec: RunSpec, run_dir: Path) -> list[str]:
    """Write the inputs below the run directory; return their names. Nothing is written for paths and hub ids.

    Raises: RunProblem naming the field whose value cannot be used; OSError if the disk does not take the files.
    """
    inputs = run_dir / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    written = []
    if spec.model.kind == "bundled":
        shutil.copytree(model_folder(spec.model), inputs / "model", dirs_exist_ok=True)
        written.append("model")
    if spec.data.kind not in ("bundled", "upload"):
        return written
    table = load_table(spec.data, inputs_dir=inputs)
    if spec.data.eval_share and not table.held_out:
        share = f"{spec.data.eval_share:g} of {table.num_rows} rows is no row"
        raise RunProblem("data.eval_share", f"{share}. Raise the share, or set it to 0.")
    parts: dict[str, Sequence[Row]] = {"train": table.train, "eval": table.held_out}
    for part, rows in parts.items():
        if rows:
            written.append(_write(_fitted(spec, rows), inputs / part, inputs_of(spec).suffix))
    return written


def _fitted(spec: RunSpec, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the columns that the trainer reads."""
    _require(spec, rows)
    if is_in(spec.algorithm, "labeled") and (column := spec.data.label_column):
        rows = [{**row, column: label_of(row[column], column=column, number=i)} for i, row in enumerate(rows)]
    return inputs_of(spec).rows(spec, rows)


def _require(spec: RunSpec, rows: Sequence[Row]) -> None:
    data = spec.data
    if is_in(spec.algorithm, "answers") and data.messages_column:
        needed = {"data.messages_column": data.messages_column}
    elif is_in(spec.algorithm, "answers"):
        needed = {"data.prompt_column": data.prompt_column, "data.response_column": data.response_column}
    elif is_in(spec.algorithm, "labeled") and data.label_column:
        needed = {
            "data.prompt_column": data.prompt_column,
            "data.response_column": data.response_column,
            "data.label_column": data.label_column,
        }
    elif is_in(spec.algorithm, "pairs") or is_in(spec.algorithm, "labeled"):
        needed = {"data.chosen_column": data.chosen_column, "data.rejected_column": data.rejected_column}
    else:
        needed = {"data.prompt_column": data.prompt_column}
    for field, column in needed.items():
        for number, row in enumerate(rows, start=1):
            if column not in row:
                have = ", ".join(sorted(row))
                raise RunProblem(field, f"Row {number} of the data has no column {column!r}. It has: {have}.")


def _write(rows: Iterable[Mapping[str, Any]], stem: Path, suffix: Format) -> str:
    path = stem.with_suffix(f".{suffix}")
    if suffix == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    else:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return path.name


def main(arguments: Sequence[str]) -> int:
    """Lay out the inputs of the run directory that is named; return the exit code."""
    run_dir = Path(arguments[0])
    try:
        print(
            json.dumps(materialize_inputs(parse_spec(json.loads((run_dir / "spec.json").read_text("utf-8"))), run_dir))
        )
    except RunProblem as problem:
        print(json.dumps({"field": problem.field, "message": problem.message}))
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
