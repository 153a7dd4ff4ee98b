"""An algorithm of the user's own: the Python file of the spec, in place of the formulas of the run's algorithm.

It is executed in the driver and in each rank that learns, with their rights. What it raises and what it returns wrongly
is told with its line, as a problem of the knob that holds it.
"""

import linecache
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from jobs.catalog.algorithm import expand
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Estimates, PolicyOutputs, load_algorithm
from jobs.engine.batch import Batch
from jobs.engine.problem import RunProblem, first_sentence

FIELD = "knobs.algorithm.source"
FILE = "algorithm.py"
_MODULE = "own_algorithm"
_OPTIONAL = ("policy_loss", "advantages", "value_loss", "score_loss", "rewards")
_MOST_CHARS = 500  # of what an exception says


def algorithm_of(spec: RunSpec) -> Algorithm:
    """Return the formulas that a run learns by: those of its own file where it has one, else its algorithm's.

    Raises: RunProblem of the knob, naming the file's line, where it cannot be loaded or is not made for this run.
    """
    base = load_algorithm(spec.algorithm)
    source = str(spec.knob("algorithm.source") or "")
    return _checked(_execute(source), spec, base) if source.strip() else base


def _execute(source: str) -> ModuleType:
    module = ModuleType(_MODULE)
    module.__file__ = FILE
    sys.modules[_MODULE] = module  # where dataclasses and pickle look their own module up
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    try:
        exec(compile(source, FILE, "exec"), module.__dict__)  # noqa: S102  the user's own code, in the user's own run
    except (Exception, SystemExit) as error:
        raise _raised(error, "while it was loaded") from error
    return module


def _checked(module: ModuleType, spec: RunSpec, base: Algorithm) -> Algorithm:
    """Return the file's algorithm, its functions watched. It has each formula that its base has, and no other."""
    made_for, own = getattr(module, "BASE", None), getattr(module, "PLUGIN", None)
    try:
        allowed = expand([made_for] if isinstance(made_for, str) else [])
    except ValueError as error:
        raise RunProblem(FIELD, f"{FILE} names its base {made_for!r}. {error}") from error
    if not allowed:
        raise RunProblem(FIELD, f'{FILE} has no BASE. Name the algorithm or family it is made for, as BASE = "grpo".')
    if spec.algorithm not in allowed:
        text = f"{FILE} is made for {made_for}, and this run trains {spec.algorithm}. Use one of {', '.join(allowed)}."
        raise RunProblem(FIELD, text)
    if not isinstance(own, Algorithm):
        raise RunProblem(FIELD, f"{FILE} has no PLUGIN = Algorithm(...) of jobs.engine.algorithm. Add it.")
    for name in _OPTIONAL:
        if (getattr(own, name) is None) != (getattr(base, name) is None):
            wrong = "lacks" if getattr(own, name) is None else "has"
            verb = "has" if wrong == "lacks" else "has not got"
            raise RunProblem(FIELD, f"The PLUGIN of {FILE} {wrong} {name}, which {spec.algorithm} {verb}.")
    return replace(
        own,
        policy_loss=_watched(own.policy_loss, "policy_loss", _loss_problem),
        advantages=_watched(own.advantages, "advantages", _estimates_problem),
        value_loss=_watched(own.value_loss, "value_loss", _loss_problem),
        score_loss=_watched(own.score_loss, "score_loss", _loss_problem),
        rewards=_watched(own.rewards, "rewards", _rewards_problem),
        needs_old_logprobs=_watched(own.needs_old_logprobs, "needs_old_logprobs", _bool_problem),
    )


def _watched(function: Callable[..., Any] | None, name: str, problem_of: Callable[..., str]) -> Any:
    """Return the function with what it raises, and what it returns wrongly, as a problem that names its line."""
    if function is None:
        return None

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            returned = function(*arguments)
        except (MemoryError, torch.OutOfMemoryError):
            raise  # the device's, and told as that
        except Exception as error:
            raise _raised(error, f"in {name}") from error
        if problem := problem_of(returned, *arguments):
            raise RunProblem(FIELD, f"The {name} of {FILE} returned {problem}")
        return returned

    return call


def _loss_problem(returned: object, _batch: Batch, now: PolicyOutputs | Tensor, *_: object) -> str:
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[1], dict):
        return f"{type(returned).__name__}. Return the loss and a dict of metrics."
    loss, metrics = returned
    if not _is_scalar(loss):
        return f"{_shown(loss)} as its loss. Return a tensor of one number."
    learned_BL = now.logprobs_BL if isinstance(now, PolicyOutputs) else now
    if learned_BL.requires_grad and torch.is_grad_enabled() and not loss.requires_grad:
        return "a loss without a gradient. Make it of the log-probabilities, values or scores that it is given."
    for name, value in metrics.items():
        if not _is_scalar(value) or value.requires_grad:
            return f"{_shown(value)} as {name!r}. Return tensors of one number, without gradients (.detach())."
    return ""


def _estimates_problem(returned: object, batch: Batch, spec: RunSpec) -> str:
    if not isinstance(returned, Estimates):
        return f"{type(returned).__name__}. Return Estimates of jobs.engine.algorithm."
    for name in ("advantages_BL", "returns_BL") if spec.needs("critic") else ("advantages_BL",):
        value = getattr(returned, name)
        if not isinstance(value, Tensor) or value.shape != batch.mask_BL.shape or value.dtype != torch.float32:
            return f"{_shown(value)} as {name}. Return float32 of {tuple(batch.mask_BL.shape)}."
        if bool(value[~batch.mask_BL].any()):
            return f"{name} that are not 0 outside of the mask. Use over_tokens, or torch.where with batch.mask_BL."
    return ""


def _rewards_problem(returned: object, batch: Batch, *_: object) -> str:
    if not isinstance(returned, Tensor) or returned.shape != (batch.num_sequences,):
        return f"{_shown(returned)}. Return a tensor of ({batch.num_sequences},)."
    return ""


def _bool_problem(returned: object, _: RunSpec) -> str:
    return "" if isinstance(returned, bool) else f"{type(returned).__name__}. Return True or False."


def _is_scalar(value: object) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def _shown(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__


def _raised(error: BaseException, when: str) -> RunProblem:
    """Return what the file raised, at the innermost of its lines."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    line = own[-1].lineno if own else (error.lineno if isinstance(error, SyntaxError) else None)
    where = f" line {line}" if line else ""
    said = f"{type(error).__name__}: {first_sentence(error)}"[:_MOST_CHARS]
    return RunProblem(FIELD, f"{FILE}{where} raised {when}: {said}")
