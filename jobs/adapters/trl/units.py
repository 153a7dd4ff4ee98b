"""Conversions of knobs whose unit is another in TRL. Pure functions; a flag names one by its `form`.

A rollout of Pitwall is `generation_batch_size` samples; TRL counts optimizer steps, of which a rollout has
updates x epochs, and micro-batches of every process, which it accumulates.

| form | ours | theirs |
|---|---|---|
| `rollouts` | steps, each a rollout and its updates | optimizer steps |
| `rollouts_or_never` | the same; 0 is never | the option is left out, or the word `no` |
| `rollouts_or_unset` | the same, or not set | -1 is not set |
| `accumulated_batch` | samples of a batch | micro-batches of a process: batch / (micro-batch x processes) |
| `accumulated_update` | updates of a rollout | micro-batches of a process in one update |
| `samples_per_generation` | prompts of a rollout | samples of a rollout |
| `window` | the longest prompt | prompt and answer together, the window of vLLM |
| `adapter_rank` | 0 is no adapter | the option is left out |
| `zero_config` | ZeRO stage | the file of that stage, below the run directory |
| `mixed_precision` | bfloat16, float16, float32 | one of two switches |
| `lowest_rate` | share of the peak | JSON for the schedule |
| `launcher` | processes | an option of torchrun |
| `services` | services beside ours | ours and these, written together by command.py |
"""

import json
import re

from jobs.adapters.command_line.options import Conversion, Conversions, Values, whole
from jobs.adapters.trl.options import PROCESSES
from jobs.catalog.sentence import Sentence
from jobs.catalog.value import Scalar, Value

MICRO = "train.micro_batch_size"
PROMPTS = "rollout.prompts_per_step"
SAMPLES = "rollout.samples_per_prompt"
ANSWER = "rollout.max_new_tokens"
UPDATES = "train.updates_per_rollout"
EPOCHS = "train.epochs_per_rollout"
NEVER = "no"
_ZERO = re.compile(r"(?:.*[/_])?zero[-_]?([0-3])(?:\.(?:json|ya?ml))?")


def _int(values: Values, knob_id: str, default: int = 1) -> int:
    return max(int(values.get(knob_id) or default), 1)


def optimizer_steps(values: Values) -> int:
    """Return how many optimizer steps one step of Pitwall has: 1 in supervised training."""
    return _int(values, UPDATES) * _int(values, EPOCHS)


def _at_once(values: Values) -> int:
    """Return the samples that all processes take at once."""
    return _int(values, MICRO) * _int(values, PROCESSES)


def _samples(values: Values) -> int:
    return _int(values, PROMPTS) * _int(values, SAMPLES)


def _write_rollouts(values: Values, value: Value) -> Scalar:
    return int(value or 0) * optimizer_steps(values)


def _read_rollouts(values: Values, theirs: str) -> Value:
    steps, each = whole(theirs), optimizer_steps(values)
    if steps % each:
        text = "{steps} optimizer steps are no whole number of rollouts, each of which has {each}."
        raise ValueError(Sentence(text, steps=steps, each=each))
    return steps // each


def _write_unset(values: Values, value: Value) -> Scalar | None:
    return None if value is None else _write_rollouts(values, value)


def _read_unset(values: Values, theirs: str) -> Value:
    return None if whole(theirs) < 0 else _read_rollouts(values, theirs)


def _write_never(values: Values, value: Value) -> Scalar:
    return _write_rollouts(values, value) or NEVER


def _read_never(values: Values, theirs: str) -> Value:
    return 0 if theirs == NEVER else _read_rollouts(values, theirs)


def _write_batch(values: Values, value: Value) -> Scalar:
    return max(int(value or 0) // _at_once(values), 1)  # one that does not come out even is refused elsewhere


def _read_batch(values: Values, theirs: str) -> Value:
    return whole(theirs) * _at_once(values)


def _write_update(values: Values, value: Value) -> Scalar:
    return max(_samples(values) // int(value or 1) // _at_once(values), 1)


def _read_update(values: Values, theirs: str) -> Value:
    samples, update = _samples(values), whole(theirs) * _at_once(values)
    if update < 1 or samples % update:
        text = "Updates of {update} samples do not divide the {samples} samples of a rollout."
        raise ValueError(Sentence(text, update=update, samples=samples))
    return samples // update


def _write_generation(values: Values, value: Value) -> Scalar:
    return int(value or 0) * _int(values, SAMPLES)


def _read_generation(values: Values, theirs: str) -> Value:
    samples, each = whole(theirs), _int(values, SAMPLES)
    if samples < 1 or samples % each:
        text = "{samples} samples of a rollout are no whole number of prompts with {each} each."
        raise ValueError(Sentence(text, samples=samples, each=each))
    return samples // each


def _write_window(values: Values, value: Value) -> Scalar:
    return int(value or 0) + _int(values, ANSWER)


def _read_window(values: Values, theirs: str) -> Value:
    total, answer = whole(theirs), _int(values, ANSWER)
    if total <= answer:
        text = "{total} tokens for prompt and response together are not more than the {answer} for the response."
        raise ValueError(Sentence(text, total=total, answer=answer))
    return total - answer


def _write_rank(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001 (a conversion's signature)
    return int(value or 0) or None


def _read_count(values: Values, theirs: str) -> Value:  # noqa: ARG001
    return whole(theirs)


def zero_file(stage: str) -> str:
    """Return where DeepSpeed's configuration of a stage lies below the run directory; its name tells a reader."""
    return f"inputs/zero{stage}.json"


def _write_zero(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return None if value in (None, "0") else zero_file(str(value))


def _read_zero(values: Values, theirs: str) -> Value:  # noqa: ARG001
    match = _ZERO.fullmatch(theirs)
    if match is None:
        text = "What {file} says is not at hand here. Choose the ZeRO stage."
        raise ValueError(Sentence(text, file=repr(theirs)))
    return match[1]


def _write_precision(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return None if value in (None, "bfloat16") else value  # which is on where nothing else is


def _read_word(values: Values, theirs: str) -> Value:  # noqa: ARG001
    return theirs


def _write_lowest(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return None if value is None else json.dumps({"min_lr_rate": value})


def _read_lowest(values: Values, theirs: str) -> Value:  # noqa: ARG001
    try:
        table = json.loads(theirs)
    except ValueError:
        table = None
    if not isinstance(table, dict) or set(table) != {"min_lr_rate"}:
        raise ValueError(Sentence("Of these only min_lr_rate has a knob, the lowest rate as a fraction of the peak."))
    number: Value = table["min_lr_rate"]
    return number


def _write_nothing(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return None


def _write_as_it_is(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return value


CONVERSIONS: Conversions = {
    "rollouts": Conversion(write=_write_rollouts, read=_read_rollouts),
    "rollouts_or_never": Conversion(write=_write_never, read=_read_never),
    "rollouts_or_unset": Conversion(write=_write_unset, read=_read_unset),
    "accumulated_batch": Conversion(write=_write_batch, read=_read_batch),
    "accumulated_update": Conversion(write=_write_update, read=_read_update),
    "samples_per_generation": Conversion(write=_write_generation, read=_read_generation),
    "window": Conversion(write=_write_window, read=_read_window),
    "adapter_rank": Conversion(write=_write_rank, read=_read_count),
    "zero_config": Conversion(write=_write_zero, read=_read_zero),
    "mixed_precision": Conversion(write=_write_precision, read=_read_word),
    "lowest_rate": Conversion(write=_write_lowest, read=_read_lowest),
    "launcher": Conversion(write=_write_as_it_is, read=_read_count),
    "services": Conversion(write=_write_nothing, read=_read_word),
}
