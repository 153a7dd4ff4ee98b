"""Conversions between our knobs and verl's keys where unit or shape differ, by the `form` of a flag.

| form | ours | verl's |
|---|---|---|
| `prompts_per_update` | optimizer steps per rollout batch | ppo_mini_batch_size: prompts per optimizer step |
| `off_is_minus_one` | 0 is off | -1 is off |
| `unlimited_is_minus_one` | nothing is no limit | -1 is no limit |
| `run_path` | on or off | a path below the run directory, or null |
| `quoted_bool` | true, false | the texts "true" and "false", which nsys is told |
| `modules` | names separated by commas | one name (a keyword such as all-linear), or a list |
| `engine_options` | `key: value, key: value` | a key of its own for each below engine_kwargs |
| `kl_coefficient`, `kl_in_loss`, `kl_estimator`, `kl_target` | one KL term | written together by verl_words |
| `overlong_buffer`, `overlong_penalty` | a buffer and its penalty | five keys, written together by verl_words |
| `services`, `project` | services, and the project there | verl's loggers after our own; a project's name |
"""

from jobs.adapters.command_line.hydra import Plain, read_value, write
from jobs.adapters.command_line.options import Conversion, Conversions, Values
from jobs.catalog.sentence import Sentence, sentence_of
from jobs.catalog.value import Scalar, Value, value_text

PROMPTS = "rollout.prompts_per_step"
TOGETHER = (
    "kl_coefficient",
    "kl_in_loss",
    "kl_estimator",
    "kl_target",
    "overlong_buffer",
    "overlong_penalty",
    "services",
    "project",
)
"""Forms of knobs that are written and read together, not one by one."""


def _prompts_per_update(values: Values, updates: Value) -> Scalar | None:
    return max(int(values[PROMPTS] or 1) // max(int(updates or 1), 1), 1)


def _updates(values: Values, text: str) -> Value:
    prompts, per_update = int(values[PROMPTS] or 1), _integer(text)
    if per_update < 1 or prompts % per_update:
        raise ValueError(
            Sentence(
                "{update} prompts per update do not divide the {prompts} prompts of a step.",
                update=f"{per_update:,}",
                prompts=f"{prompts:,}",
            )
        )
    return prompts // per_update


def _minus_one(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return int(value) if value else -1


def _zero(values: Values, text: str) -> Value:  # noqa: ARG001
    return max(_integer(text), 0)


def _none(values: Values, text: str) -> Value:  # noqa: ARG001
    number = _integer(text)
    return number if number > 0 else None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(Sentence("{value} is not a whole number.", value=repr(text))) from None


def _is_on(values: Values, text: str) -> Value:  # noqa: ARG001
    return text not in ("", "null", "false")


def _text_bool(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return value_text(bool(value))


def _from_text_bool(values: Values, text: str) -> Value:  # noqa: ARG001
    if text.lower() not in ("true", "false"):
        raise ValueError(Sentence("{value} is neither 'true' nor 'false'.", value=repr(text)))
    return text.lower() == "true"


def _same(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return value


def _as_text(values: Values, text: str) -> Value:  # noqa: ARG001
    return text or None


def _nothing(values: Values, value: Value) -> Scalar | None:  # noqa: ARG001
    return None


def options_of(text: str) -> dict[str, Plain]:
    """Return engine options, `key: value, key: value`, by key. Raises: ValueError with a sentence."""
    try:
        options = read_value("{" + text + "}")
    except ValueError as error:
        text = "Engine options are written as key: value, key: value. {why}"
        raise ValueError(Sentence(text, why=sentence_of(error))) from error
    assert isinstance(options, dict)
    return {str(key): value for key, value in options.items()}


def options_text(options: dict[str, Plain]) -> str:
    """Return engine options as the knob holds them."""
    return ", ".join(f"{key}: {write(value)}" for key, value in options.items())


VERL_CONVERSIONS: Conversions = {
    "prompts_per_update": Conversion(write=_prompts_per_update, read=_updates),
    "off_is_minus_one": Conversion(write=_minus_one, read=_zero),
    "unlimited_is_minus_one": Conversion(write=_minus_one, read=_none),
    "run_path": Conversion(write=lambda values, value: True if value else None, read=_is_on),  # noqa: ARG005
    "quoted_bool": Conversion(write=_text_bool, read=_from_text_bool),
    "modules": Conversion(write=_same, read=_as_text),
    "engine_options": Conversion(write=_same, read=_as_text),
    **{form: Conversion(write=_nothing, read=_as_text) for form in TOGETHER},
}
