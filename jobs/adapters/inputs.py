"""Where a trainer that knows nothing of Pitwall finds its model and its data.

Paths on the cluster and hub ids are the trainer's own affair and are handed on as they are. What the console holds
(bundled models and data, uploads) is laid out below the run directory before the trainer starts, by
`python -m jobs.engine.data.materialize RUN_DIR`, as files that the trainer reads. Paths are relative to the run
directory, which is the trainer's working directory.

| what | OpenRLHF | verl |
|---|---|---|
| model | `inputs/model`, a Hugging Face folder | the same |
| training rows | `inputs/train.jsonl` | `inputs/train.parquet` |
| held-out rows | `inputs/eval.jsonl` | `inputs/eval.parquet` |

The JSON lines have the columns of the source under their own names; the bundled data also `chosen` and `rejected`. The
Parquet files have what verl expects whatever the source's columns are called: `messages` for SFT; for reinforcement
learning `prompt` (messages), `data_source`, `reward_model.ground_truth` and `extra_info.index`.
"""

from jobs.catalog.runspec import RunSpec

MODEL = "inputs/model"
_SUFFIX = {"openrlhf": "jsonl", "verl": "parquet"}
LAID_OUT = ("bundled", "upload")
"""The kinds of data source that are laid out as files."""


def model_path(spec: RunSpec) -> str:
    """Return what the trainer is told as its model: a folder, or a hub id."""
    return MODEL if spec.model.kind == "bundled" else spec.model.id


def train_path(spec: RunSpec) -> str:
    """Return what the trainer is told as its training data: a file, or a hub id."""
    return _laid_out(spec, "train") if spec.data.kind in LAID_OUT else spec.data.id


def eval_path(spec: RunSpec) -> str:
    """Return what the trainer is told as its held-out data; "" where there is none."""
    if spec.data.kind not in LAID_OUT:
        return spec.data.eval_id
    return _laid_out(spec, "eval") if spec.data.eval_share > 0 else ""


def _laid_out(spec: RunSpec, part: str) -> str:
    return f"inputs/{part}.{_SUFFIX[spec.trainer.name]}"
