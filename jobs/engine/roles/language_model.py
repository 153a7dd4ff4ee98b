"""Load a causal language model for training or for scoring."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.batch import Batch
from jobs.engine.problem import RunProblem
from jobs.engine.roles.head import score_counted_tokens
from jobs.engine.roles.packed_attention import why_not
from jobs.engine.roles.sharded_load import restore_tables, whole_while_used
from profiling.process_memory import resident_bytes, return_freed_memory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EXPORT_BYTES = 1 << 30
"""The weights of an exported model in one file, at most, and in one message."""


def temperature_of(spec: RunSpec) -> float:
    """Return the temperature at which the run's tokens count: the one they were drawn at; 1 where none are drawn."""
    return spec.float_knob("rollout.temperature") if is_in(spec.algorithm, "rl") else 1.0


def memory_before_model() -> dict[str, float]:
    """Return what is resident before this process loads a model, libraries included, as a reading; {} if not known."""
    from transformers import AutoModelForCausalLM  # noqa: F401  # or the import would count as the model's

    return_freed_memory()
    resident = resident_bytes()
    return {"memory_baseline_bytes": float(resident)} if resident >= 0 else {}


def load_model(
    folder: Path,
    *,
    precision: str,
    is_packed: bool = False,
    sharding: contextlib.AbstractContextManager[None] | None = None,
    with_entropy_gradient: bool = False,
) -> torch.nn.Module:
    """Return the model of a Hugging Face folder in `precision`, dropout off, ready to score counted tokens; made inside
    `sharding` (`sharded_load.divided`), if that is given.

    Dropout would make the ratio of new to old policy noisy even where the weights are the same. With `is_packed` it
    computes nothing for padding, unless its sequences cannot be packed: `model.packing_problem` says why, or "".
    Raises: RunProblem naming `model.id`.
    """
    from transformers import AutoModelForCausalLM

    model, _ = read_model(AutoModelForCausalLM, folder, precision=precision, sharding=sharding, field="model.id")
    with whole_while_used(model) if sharding is not None else contextlib.nullcontext():
        problem = why_not(model) if is_packed else ""
        score_counted_tokens(model, is_packed=is_packed and not problem, with_entropy_gradient=with_entropy_gradient)
    model.packing_problem = problem
    return model


def read_model(
    auto_class: Any,
    folder: Path,
    *,
    precision: str,
    sharding: contextlib.AbstractContextManager[None] | None,
    field: str,
    **changes: Any,
) -> tuple[Any, list[str]]:
    """Return the model that one of transformers' `Auto` classes makes of a folder, dropout off, and the names of the
    weights that the folder does not have; `changes` go into its configuration.

    Raises: RunProblem naming `field`.
    """
    try:
        with sharding if sharding is not None else contextlib.nullcontext():
            model, loaded = auto_class.from_pretrained(
                folder,
                dtype=DTYPES[precision],
                attn_implementation="sdpa",
                use_safetensors=True,  # never a pickle, nor code that comes with the model
                trust_remote_code=False,
                output_loading_info=True,
                **changes,
            )
    except Exception as error:  # transformers raises whatever its model files raise; all mean that it cannot be loaded
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunProblem(field, f"The model {folder.name!r} cannot be loaded: {reason}") from error
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0
    if sharding is not None:
        restore_tables(model)
    return model, sorted(loaded["missing_keys"])


@torch.no_grad()
def score(model: Any, batch: Batch, *, micros: Sequence[Tensor], temperature: float, device: str) -> Tensor:
    """Return the log-probability of each counted token of the batch, 0 elsewhere, on the CPU: [B, L].

    Of a model that `score_counted_tokens` has prepared. `micros`: which sequences to take together (see Cut). Sequences
    are padded on the right and have no mask of attention: a causal model's tokens do not see what comes after them.
    """
    logprobs_BL = torch.zeros(batch.tokens_BL.shape)
    for rows in micros:
        here = batch.rows(rows).to(device)
        part_bL, _ = model(here.tokens_BL, here.mask_BL, temperature, here.lengths_B)
        logprobs_BL[rows, : part_bL.shape[1]] = part_bL.cpu()
    return logprobs_BL


def buckets(sizes: list[int], limit_bytes: int) -> Iterator[list[int]]:
    """Yield runs of positions whose `sizes` sum to at most `limit_bytes` (or one position that alone is larger)."""
    run: list[int] = []
    total = 0
    for position, size in enumerate(sizes):
        if run and total + size > limit_bytes:
            yield run
            run, total = [], 0
        run.append(position)
        total += size
    if run:
        yield run


@contextlib.contextmanager
def gathered(parameters: list[Any], *, is_sharded: bool) -> Iterator[None]:
    """Hold the whole values of ZeRO-3 parameters inside the block; a collective, so every rank must enter. Else
    nothing.
    """
    if not is_sharded:
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(parameters):
        yield
