"""Where a trainer that knows nothing of Pitwall finds its model and its data.

Paths on the cluster and hub ids are the trainer's own affair and are handed on as they are. What the console holds
(bundled models and data, uploads) is written below the run directory before the trainer starts, by
`python -m jobs.engine.data.materialize RUN_DIR`: the model as `inputs/model`, a Hugging Face folder; training and
held-out rows as `inputs/train` and `inputs/eval` with the suffix of the format that the trainer reads. Paths are
relative to the run directory, which is the trainer's working directory.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from jobs.catalog.spec.runspec import RunSpec
from jobs.catalog.trainer import part

Row = dict[str, object]
Format = Literal["jsonl", "parquet"]

MODEL = "inputs/model"
MATERIALIZED = ("bundled", "upload")
"""The kinds of data source that are written as files."""


class Inputs(Protocol):
    """The format in which a trainer reads rows: `inputs.py` of its folder."""

    @property
    def suffix(self) -> Format:
        """The format's name, and the ending of its files."""
        ...

    def rows(self, spec: RunSpec, rows: Sequence[Row]) -> list[Row]:
        """Return rows of the run's data source with the columns that the trainer reads."""
        ...


class PlainInputs:
    """JSON lines with the columns of the source under their own names."""

    suffix: Format = "jsonl"

    def rows(self, spec: RunSpec, rows: Sequence[Row]) -> list[Row]:  # noqa: ARG002
        """See Inputs."""
        return list(rows)


def inputs_of(spec: RunSpec) -> Inputs:
    """Return how the run's trainer reads rows."""
    loaded: Inputs = part(spec.trainer.name, "inputs")
    return loaded


def model_path(spec: RunSpec) -> str:
    """Return what the trainer is told as its model: a folder, or a hub id."""
    return MODEL if spec.model.kind == "bundled" else spec.model.id


def train_path(spec: RunSpec) -> str:
    """Return what the trainer is told as its training data: a file, or a hub id."""
    return _materialized(spec, "train") if spec.data.kind in MATERIALIZED else spec.data.id


def eval_path(spec: RunSpec) -> str:
    """Return what the trainer is told as its held-out data; "" where there is none."""
    if spec.data.kind not in MATERIALIZED:
        return spec.data.eval_id
    return _materialized(spec, "eval") if spec.data.eval_share > 0 else ""


def _materialized(spec: RunSpec, part: str) -> str:
    return f"inputs/{part}.{inputs_of(spec).suffix}"
