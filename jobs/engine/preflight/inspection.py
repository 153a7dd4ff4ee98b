"""What the New run page shows of data, reward and model before launch, computed by the code that will run. Imports no
torch.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.data.columns import recognized_columns, with_recognized
from jobs.engine.data.dataset import Row, Table
from jobs.engine.data.examples import Example, answer_text, column_value, mapping_problem, render, token_limit, usable
from jobs.engine.data.labels import balance_note
from jobs.engine.data.model_files import architectures, context_tokens, count_parameters, model_folder, read_json
from jobs.engine.data.reward_files import check_reward_model
from jobs.engine.data.teacher_files import check_teacher
from jobs.engine.data.text import TextModel
from jobs.engine.data.training_data import HEAD_ROWS, first_table, is_streamed
from jobs.engine.preflight.pairs import render_pairs
from jobs.engine.problem import RunProblem
from jobs.engine.rollouts.mixed_reward import open_mixed
from jobs.engine.rollouts.reward import Completion, RewardFailed, ScoringLimits, limits_of

MAX_MEASURED = 20_000
NUM_BINS = 20
REWARD_SECONDS = 8.0
TRIED = ("math", "exact_match", "format", "code", "custom")
TRIAL_LIMITS = ScoringLimits(
    timeout_seconds=REWARD_SECONDS, timeout_name="the limit of a trial", load_seconds=REWARD_SECONDS
)
"""Of one completion after the other, in one process: a person waits."""


def preview_data(spec: RunSpec, *, inputs_dir: Path, num_samples: int) -> dict[str, object]:
    """Return columns, counts, rendered samples and the length histogram of a spec's data.

    Lengths are of all rows up to 20,000, of as many evenly spaced ones beyond; `num_measured` says how many.
    `share_truncated` is the share of rows longer than the limit; `num_left_out` are the rows that the run leaves out
    for it: such prompts, such pairs, and answers of which the limit leaves nothing to learn. Columns that nobody chose
    are `recognized`, and read by the built-in trainer. A column that is not there is told in `mapping_problem`, with
    the columns there are, so that the form can still offer them. Raises: RunProblem.
    """
    text = TextModel(model_folder(spec.model, with_weights=False))
    table = first_table(spec, inputs_dir=inputs_dir)
    recognized = recognized_columns(spec, table.columns, table.train)
    if spec.is_native:
        spec = with_recognized(spec, table)
    answer: dict[str, object] = {
        "columns": list(table.columns),
        "num_rows": table.num_rows,
        "num_train": len(table.train),
        "num_eval": len(table.held_out),
        "samples": [],
        "lengths": {"edges": [], "counts": []},
        "num_too_long": 0,
        "share_truncated": 0.0,
        "num_left_out": 0,
        "num_measured": 0,
        "is_beginning": is_streamed(spec) and table.num_rows >= HEAD_ROWS,
        "recognized": {f"data.{field}": column for field, column in recognized.items()},
        "mapping_problem": "",
    }
    try:
        problem = mapping_problem(spec, table.columns)
        if problem is not None:
            raise problem
        measured = _measured(spec, _spread(table.train, MAX_MEASURED), text, num_samples)
    except RunProblem as problem:
        if not problem.field.startswith("data."):
            raise
        return answer | {"mapping_problem": problem.message, "mapping_field": problem.field}
    lengths = measured.lengths
    share = sum(n > token_limit(spec) for n in lengths) / len(lengths)
    return answer | {
        "samples": measured.samples,
        "lengths": histogram(lengths),
        "num_too_long": round(share * len(table.train)),
        "share_truncated": share,
        "num_left_out": round(measured.num_left_out / len(lengths) * len(table.train)),
        "num_measured": len(lengths),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """Rows as they will be trained on: the tokens of each (of a pair, of its longer side)."""

    lengths: Sequence[int]
    num_left_out: int
    samples: Sequence[dict[str, object]]


def _measured(spec: RunSpec, rows: Sequence[Row], text: TextModel, num_samples: int) -> _Measured:
    if is_in(spec.algorithm, "pairs"):
        pairs = render_pairs(spec, rows, text)
        lengths = [max(len(side.tokens) for side in pair) for pair in pairs]
        samples = [
            _sample(chosen)
            | {
                "rejected": [asdict(segment) for segment in rejected.segments],
                "num_rejected_tokens": len(rejected.tokens),
            }
            for chosen, rejected in pairs[:num_samples]
        ]
        num_left_out = sum(n > token_limit(spec) for n in lengths)
        return _Measured(lengths=lengths, num_left_out=num_left_out, samples=samples)
    examples = render(spec, rows, text)
    used = usable(spec, examples)
    if is_in(spec.algorithm, "labeled") and used:
        balance_note(spec, used)  # whose note comes with the run; labels that are all equal are refused here
    return _Measured(
        lengths=[len(e.tokens) for e in examples],
        num_left_out=len(examples) - len(used),
        samples=[_sample(e) for e in examples[:num_samples]],
    )


def _spread(rows: Sequence[Row], limit: int) -> list[Row]:
    if len(rows) <= limit:
        return list(rows)
    return [rows[i * len(rows) // limit] for i in range(limit)]


def _sample(example: Example) -> dict[str, object]:
    return {
        "segments": [asdict(segment) for segment in example.segments],
        "num_tokens": len(example.tokens),
        "prompt": example.prompt,
        "answer": example.answer,
        "label": "" if example.is_desirable is None else "desirable" if example.is_desirable else "undesirable",
    }


def histogram(lengths: Sequence[int]) -> dict[str, list[int]]:
    """Return at most 20 bins of equal whole width: `edges` one more than `counts`; bin i holds edges[i] <= n < edges[i
    + 1].
    """
    low, high = min(lengths), max(lengths)
    width = max(1, -(-(high - low + 1) // NUM_BINS))
    num_bins = -(-(high - low + 1) // width)
    counts = [0] * num_bins
    for length in lengths:
        counts[(length - low) // width] += 1
    return {"edges": [low + i * width for i in range(num_bins + 1)], "counts": counts}


def try_reward(spec: RunSpec, *, inputs_dir: Path, num_samples: int, is_boxed: bool = False) -> dict[str, object]:
    """Return what the reward gives `num_samples` completions made of the data's own rows.

    The completions are, in turn, the row's response where it has one (else its answer), and one that says nothing: a
    reward that gives both the same shows it. Parts that call an address are left out: that is the cluster's business.
    `is_boxed` closes a file of the person's own in further. Raises: RunProblem naming `reward.source`.
    """
    table = first_table(spec, inputs_dir=inputs_dir)
    if spec.is_native:
        spec = with_recognized(spec, table)
    problem = mapping_problem(spec, table.columns)
    if problem is not None:
        raise problem
    completions = _tries(spec, table, num_samples)
    results = []
    try:
        parts = [part for part in spec.reward.parts if part.kind in TRIED]
        reward = open_mixed(spec, _trial_limits(spec, is_boxed=is_boxed), parts=parts)
        try:
            for completion in completions:
                begin = time.perf_counter()
                (score,) = reward.score([completion])
                seconds = time.perf_counter() - begin
                results.append(
                    {
                        "prompt": completion.prompt,
                        "completion": completion.completion,
                        "answer": completion.answer,
                        "reward": score.total,
                        "seconds": seconds,
                    }
                )
        finally:
            reward.close()
    except RewardFailed as error:
        raise RunProblem(error.field, str(error)) from error
    return {"results": results}


def _trial_limits(spec: RunSpec, *, is_boxed: bool) -> ScoringLimits:
    """Return the limits of a trial, with the run's own time for a completion where that is shorter."""
    if "reward.timeout_seconds" not in spec.knobs:  # another trainer's
        return replace(TRIAL_LIMITS, file=replace(TRIAL_LIMITS.file, is_boxed=is_boxed))
    own = limits_of(spec)
    limits = replace(TRIAL_LIMITS, code=own.code, file=replace(own.file, is_boxed=is_boxed))
    if own.timeout_seconds >= TRIAL_LIMITS.timeout_seconds:
        return limits
    return replace(limits, timeout_seconds=own.timeout_seconds, timeout_name=own.timeout_name)


def _tries(spec: RunSpec, table: Table, num_samples: int) -> list[Completion]:
    rows = table.train[: -(-num_samples // 2)]
    tries = []
    for row in rows:
        prompt = column_value(row, spec.data.prompt_column)
        last = prompt[-1] if isinstance(prompt, list) and prompt else {}
        shown = prompt if isinstance(prompt, str) else str(last.get("content") or "")
        answer = answer_text(spec, row)
        response = column_value(row, spec.data.response_column) if spec.data.response_column else None
        good = response if isinstance(response, str) else answer
        tries += [Completion(prompt=shown, completion=c, answer=answer) for c in (good, "I do not know.")]
    return tries[:num_samples]


def describe_model(spec: RunSpec) -> dict[str, object]:
    """Return architecture, parameters, context and number type of a model without loading it. Raises: RunProblem."""
    is_remote = spec.model.kind == "hub"
    folder = model_folder(spec.model, with_weights=not is_remote)
    TextModel(folder)
    check_teacher(spec)
    check_reward_model(spec)
    config = read_json(folder / "config.json", field="model.id")
    num_parameters, dtype = (
        _count_on_hub(spec.model.id, spec.model.revision) if is_remote else count_parameters(folder, spec.model.id)
    )
    return {
        "architecture": architectures(config)[0],
        "num_parameters": num_parameters,
        "context_tokens": context_tokens(config),
        "dtype": dtype,
    }


def _count_on_hub(name: str, revision: str) -> tuple[int, str]:
    """Ask the hub for the headers of the safetensors files: kilobytes instead of the weights."""
    import huggingface_hub

    try:
        metadata = huggingface_hub.get_safetensors_metadata(name, revision=revision or None)
    except Exception as error:  # the hub client raises many unrelated types; all mean that there is nothing to load
        raise RunProblem("model.id", f"The hub model {name!r} has no safetensors weights: {error}") from error
    counts: dict[str, int] = metadata.parameter_count
    kinds = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
    largest = max(counts, key=lambda kind: counts[kind])
    return sum(counts.values()), kinds.get(largest, largest)
