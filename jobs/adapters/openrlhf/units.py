"""Conversions of knobs whose unit differs between trainers. Pure functions; a flag names one by its `form`.

| form | ours | theirs |
|---|---|---|
| `samples_per_update` | optimizer steps per rollout | samples per optimizer step: prompts x samples / steps |
| `total_length` | the longest prompt | prompt and answer together |
| `off_is_minus_one` | 0 is never | -1 is never |
| `launcher` | processes, or nodes | an option of the launcher, not of the trainer |
| `correction_type` | which correction, or off | a bare option that switches it on, and one that says which |
| `wandb_key` | on or off | a key, for which a stand-in is written: the real one is in the environment |
"""

from collections.abc import Sequence

from jobs.adapters.command_line.options import Conversion, Values, whole
from jobs.catalog.sentence import Sentence
from jobs.catalog.value import Scalar, Value, value_text

PROMPTS = "rollout.prompts_per_step"
SAMPLES = "rollout.samples_per_prompt"
ANSWER = "rollout.max_new_tokens"
NO_KEY = "WANDB_API_KEY"
"""What stands for W&B's key on a command line: any text switches W&B on, and the key is taken from that variable."""


def _int(values: Values, knob_id: str, default: int) -> int:
    value = values.get(knob_id)
    return default if value is None else int(value)


def _write_samples_per_update(values: Values, value: Value) -> Scalar:
    samples = _int(values, PROMPTS, 1) * _int(values, SAMPLES, 1)
    return max(samples // int(value or 1), 1)  # a spec whose updates do not divide its samples is refused elsewhere


def _read_samples_per_update(values: Values, theirs: str) -> Value:
    samples, size = _int(values, PROMPTS, 1) * _int(values, SAMPLES, 1), whole(theirs)
    if size < 1 or samples % size:
        raise ValueError(
            Sentence(
                "{update} samples per update do not divide the {samples} samples of a rollout. "
                "Here a rollout is used in a whole number of updates.",
                update=theirs,
                samples=samples,
            )
        )
    return samples // size


def _write_total_length(values: Values, value: Value) -> Scalar:
    return int(value or 0) + _int(values, ANSWER, 0)


def _read_total_length(values: Values, theirs: str) -> Value:
    total, answer = whole(theirs), _int(values, ANSWER, 0)
    if total <= answer:
        text = "{total} tokens for prompt and response together are not more than the {answer} for the response."
        raise ValueError(Sentence(text, total=total, answer=answer))
    return total - answer


def _write_off_is_minus_one(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001 (a conversion's signature)
    return None if value is None else int(value) or -1


def _read_off_is_minus_one(values: Values, theirs: str) -> Value:  # noqa: ARG001
    return max(whole(theirs), 0)


def _write_as_it_is(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return value


def _read_count(values: Values, theirs: str) -> Value:  # noqa: ARG001
    return whole(theirs)


def _write_unless_off(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return None if value in (None, "off") else value


def _write_stand_in(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return NO_KEY if value else None


def _read_given(values: Values, theirs: str) -> Value:  # noqa: ARG001
    return bool(theirs)


def _read_word(values: Values, theirs: str) -> Value:  # noqa: ARG001
    return theirs


SAMPLES_PER_UPDATE = Conversion(write=_write_samples_per_update, read=_read_samples_per_update)
TOTAL_LENGTH = Conversion(write=_write_total_length, read=_read_total_length)
OFF_IS_MINUS_ONE = Conversion(write=_write_off_is_minus_one, read=_read_off_is_minus_one)
LAUNCHER = Conversion(write=_write_as_it_is, read=_read_count)
WANDB_KEY = Conversion(write=_write_stand_in, read=_read_given)
CORRECTION_TYPE = Conversion(write=_write_unless_off, read=_read_word)


def plain_number(value: Scalar) -> str:
    """Return a value as a word that argparse takes for one: it reads -1e-05 as an option, -0.00001 as a number."""
    text = value_text(value)
    if isinstance(value, float) and value < 0 and "e" in text:
        mantissa, _, exponent = text.partition("e")
        return _shifted(mantissa.lstrip("-"), int(exponent))
    return text


def _shifted(digits: str, exponent: int) -> str:
    """Return -digits * 10**exponent without an exponent, every digit kept."""
    whole_part, _, fraction = digits.partition(".")
    figures, point = whole_part + fraction, len(whole_part) + exponent
    if point <= 0:
        return f"-0.{'0' * -point}{figures}"
    padded = figures.ljust(point, "0")
    return f"-{padded[:point]}" + (f".{padded[point:]}" if padded[point:] else "")


def listed(value: Scalar) -> Sequence[str]:
    """Return the words of a knob that holds several, separated by commas."""
    return [part.strip() for part in str(value).split(",") if part.strip()]
