"""The one validator of run specs: form, API and command line all call `parse_spec`.

The models of `runspec.py` check fields, the catalog checks knobs, `contradictions.py` what fields say against each
other. Every refusal is a sentence for people that names field, value and what is allowed.
"""

import difflib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, cast, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from jobs.catalog.algorithm import algorithms
from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, default_values, knobs, number_from
from jobs.catalog.sentence import Sentence, sentence_of
from jobs.catalog.spec.contradictions import contradictions
from jobs.catalog.spec.runspec import (
    MAX_REWARD_PARTS,
    RANGES,
    SECTIONS,
    SPEC_VERSION,
    KnobValue,
    Origin,
    ProfileConfig,
    RewardPart,
    RunSpec,
    SpecPart,
    Trainer,
    choices_of,
)
from jobs.catalog.spec.template_variables import MAX_BYTES, MAX_DEPTH, TAKEN
from jobs.catalog.trainer import trainers
from jobs.catalog.value import shown
from profiling.recorders.recorder import shown_by

MAX_STRANGERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a spec: the dotted field (as the form names its input), and a sentence for people."""

    field: str
    message: str


class SpecInvalid(ValueError):
    """The spec cannot be launched; `problems` says why, field by field."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(f"{p.field}: {p.message}" for p in problems))


def parse_spec(raw: object, *, origin: Origin = "you", device: str = "auto") -> RunSpec:
    """Return the complete, checked RunSpec of plain JSON values.

    Missing fields and knobs take their defaults; knobs may be bare values (then they are `origin`'s) or
    {"value": ..., "origin": ...}. `device` is that of the spec where it names none: defaults differ by it. Raises
    SpecInvalid with every problem found, not only the first.
    """
    if not isinstance(raw, Mapping):
        message = Sentence("A run spec is a JSON object, not {kind}.", kind=type(raw).__name__)
        raise SpecInvalid([Problem(field="spec", message=message)])
    problems: list[Problem] = []
    fields = _parse_fields(raw, problems)
    if not isinstance(hardware := raw.get("hardware", {}), Mapping) or "device" not in hardware:
        fields = fields.model_copy(update={"hardware": fields.hardware.model_copy(update={"device": device})})
    trainer = _parse_trainer(fields.trainer, fields.algorithm, problems)
    spec = fields.model_copy(
        update={
            "trainer": trainer,
            "profile": _parse_profile(fields.profile, raw.get("profile")),
            "knobs": _parse_knobs(raw.get("knobs", {}), fields, trainer, origin, problems),
        }
    )
    if not problems:
        problems += [Problem(field=name, message=message) for name, message in contradictions(spec)]
    if problems:
        raise SpecInvalid(problems)
    return spec


def strangers(raw: Mapping[Any, Any], allowed: Container[Any]) -> list[Any]:
    """Return the first keys that are not known: who sends a million gets no sentence, and no search, for each."""
    return list(islice((key for key in raw if key not in allowed), MAX_STRANGERS))


def _parse_fields(raw: Mapping[Any, Any], problems: list[Problem]) -> RunSpec:
    """Return the spec without its knobs; a field that is refused has its default."""
    fields_of_spec = _known_fields(raw, RunSpec, "", problems)
    fields_of_spec.pop("knobs", None)
    sections = {
        section: _known_fields(part, cls, f"{section}.", problems)
        for section, cls in SECTIONS.items()
        if isinstance(part := fields_of_spec.get(section), Mapping)
    }
    fields_of_spec |= sections
    try:
        return RunSpec.model_validate(fields_of_spec)
    except ValidationError as refused:
        errors = refused.errors(include_url=False)
    for error in errors:
        *outer, name = place = [str(part) for part in error["loc"]]
        problems.append(Problem(field=".".join(place), message=_SENTENCES[error["type"]](error)))
        held = sections.get(outer[0], fields_of_spec) if outer else fields_of_spec
        held.pop(place[1] if outer else name, None)
    return RunSpec.model_validate(fields_of_spec)


def _known_fields(
    raw: Mapping[Any, Any], cls: type[SpecPart], prefix: str, problems: list[Problem]
) -> dict[str, object]:
    """Return the fields that a model has; the others are refused by the name that is nearest."""
    allowed = cls.model_fields
    for key in strangers(raw, allowed):
        problems.append(Problem(field=f"{prefix}{key}", message=_unknown(Sentence("field"), str(key), list(allowed))))
    return {name: raw[name] for name in allowed if name in raw}


def _parse_profile(profile: ProfileConfig, raw: object) -> ProfileConfig:
    """Return the profile with what its tool is best at, where a tool alone is named: so do specs of before `what`."""
    if profile.tool == "none" or (isinstance(raw, Mapping) and "what" in raw):
        return profile
    return profile.model_copy(update={"what": shown_by(profile.tool)[0]})


def _parse_trainer(trainer: Trainer, algorithm: str, problems: list[Problem]) -> Trainer:
    """Return the trainer with its version filled in; the newest known one where none is named."""
    info = trainers()[trainer.name]
    version = trainer.version or info.versions[0]
    if version not in info.versions:
        words = {"version": shown(trainer.version), "trainer": Sentence(info.label)}
        if any(info.versions):
            versions = ", ".join(info.versions)
            text = Sentence("Version {version} of {trainer} is not known. Use {known}.", **words, known=versions)
        else:
            text = Sentence("{trainer} has no version {version}. Leave it out.", **words)
        problems.append(Problem(field="trainer.version", message=text))
        version = info.versions[0]
    elif not info.offers(algorithm, version):
        *first, last = [t.label for t in trainers().values() if t.offers(algorithm, t.versions[0])]
        text = Sentence(
            "{algorithm} is not trained by {trainer}. Use {others} for it.",
            algorithm=Sentence(algorithms()[algorithm].label),
            trainer=info.called(version),
            others=Sentence("{some} or {last}", some=", ".join(first), last=last) if first else last,
        )
        problems.append(Problem(field="algorithm", message=text))
    return Trainer(name=trainer.name, version=version)


def _parse_knobs(
    raw: object, fields: RunSpec, trainer: Trainer, origin: Origin, problems: list[Problem]
) -> dict[str, KnobValue]:
    """Return every knob that applies; `fields` is the spec without them."""
    algorithm = fields.algorithm
    if not isinstance(raw, Mapping):
        text = Sentence("knobs is an object of knob ids and values, not {value}.", value=shown(raw))
        problems.append(Problem(field="knobs", message=text))
        raw = {}
    catalogue = knobs()
    here = applicable(algorithm, trainer.name, trainer.version)
    for knob_id in strangers(raw, catalogue):
        problems.append(
            Problem(field=f"knobs.{knob_id}", message=_unknown(Sentence("knob"), str(knob_id), list(catalogue)))
        )
    for knob_id in raw:
        if knob_id in catalogue and knob_id not in here:
            value = _bare(raw[knob_id], origin)[0]
            if value != catalogue[knob_id].default_for(algorithm):
                message = Sentence(
                    "{label} does not apply to {algorithm} with {trainer}. Leave it out.",
                    label=Sentence(catalogue[knob_id].label),
                    algorithm=Sentence(algorithms()[algorithm].label),
                    trainer=trainers()[trainer.name].called(trainer.version),
                )
                problems.append(Problem(field=f"knobs.{knob_id}", message=message))
    parsed = dict(_default_knobs(algorithm, trainer, fields.hardware.device))
    for knob_id, knob in here.items():
        if knob_id in raw:
            parsed[knob_id] = _parse_knob(knob, raw[knob_id], origin, problems)
    return parsed


@cache
def _default_knobs(algorithm: str, trainer: Trainer, device: str) -> Mapping[str, KnobValue]:
    defaults = default_values(algorithm, trainer.name, trainer.version, device)
    return {knob_id: KnobValue(value=value) for knob_id, value in defaults.items()}


def _bare(raw: object, origin: Origin) -> tuple[object, object]:
    if isinstance(raw, Mapping):
        return raw.get("value"), raw.get("origin", origin)
    return raw, origin


def _parse_knob(knob: Knob, raw: object, origin: Origin, problems: list[Problem]) -> KnobValue:
    name = f"knobs.{knob.id}"
    if isinstance(raw, Mapping):
        _known_fields(raw, KnobValue, f"{name}.", problems)
    value, given_origin = _bare(raw, origin)
    if given_origin not in get_args(Origin):
        words = {"value": shown(given_origin), "allowed": ", ".join(get_args(Origin))}
        text = Sentence("Origin {value} is not allowed. Use one of {allowed}.", **words)
        problems.append(Problem(field=name, message=text))
        given_origin = origin
    try:
        return KnobValue(value=knob.check(value), origin=cast(Origin, given_origin))
    except KnobValueInvalid as error:
        problems.append(Problem(field=name, message=sentence_of(error)))
        return KnobValue(value=knob.default)


def _unknown(what: Sentence, wrong: str, choices: list[str]) -> Sentence:
    near = [name for name in choices if _initials(name) == wrong.rpartition(".")[2]]  # "lr" means learning_rate
    near = near or difflib.get_close_matches(wrong[:200], choices, n=1, cutoff=0.5)
    words = {"what": what, "given": shown(wrong)}
    if near:
        return Sentence("There is no {what} {given}. Did you mean {near}?", **words, near=near[0])
    some = f"{', '.join(sorted(choices)[:12])}{', …' * (len(choices) > 12)}"
    return Sentence("There is no {what} {given}. Known: {known}.", **words, known=some)


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.rpartition(".")[2].split("_"))


def _unknown_version(error: ErrorDetails) -> Sentence:
    version = shown(error["input"])
    return Sentence("Version {version} is not known. Use {known}.", version=version, known=SPEC_VERSION)


def _not_an_object(error: ErrorDetails) -> Sentence:
    return Sentence("{name} is an object of fields, not {value}.", name=error["loc"][-1], value=shown(error["input"]))


def _not_a_choice(error: ErrorDetails) -> Sentence:
    return _not_allowed(error, Sentence("one of {choices}", choices=", ".join(choices_of(_field(error)))))


def _not_in_range(error: ErrorDetails) -> Sentence:
    section, *_, name = error["loc"]  # of a part in a list as of the section itself
    low, high = RANGES[f"{section}.{name}"]
    is_int = _field(error).annotation is int
    return _not_allowed(error, number_from(f"{low:,.15g}", f"{high:,.15g}", is_int=is_int))


def _field(error: ErrorDetails) -> FieldInfo:
    *outer, name = map(str, error["loc"])
    return (SECTIONS[outer[0]] if outer else RunSpec).model_fields[name]


def _not_allowed(error: ErrorDetails, allowed: Sentence) -> Sentence:
    return Sentence("{value} is not allowed. Use {allowed}.", value=shown(error["input"]), allowed=allowed)


def _not_text(error: ErrorDetails) -> Sentence:
    return Sentence("{value} is not text.", value=shown(error["input"]))


def _not_storable(error: ErrorDetails) -> Sentence:
    value = shown(error["input"])
    return Sentence("{value} holds a character that cannot be stored. Type it again.", value=value)


def _not_a_name(error: ErrorDetails) -> Sentence:
    value = shown(error["input"])
    return Sentence("{value} is not a name. Use up to 120 characters on one line.", value=value)


def _not_rule_ids(error: ErrorDetails) -> Sentence:
    return Sentence("{value} is not a list of rules' ids.", value=shown(error["input"]))


def _not_variables(error: ErrorDetails) -> Sentence:
    value = shown(error["input"])
    return Sentence("{value} is not a JSON object. Use one such as {example}.", value=value, example=_VARIABLES)


def _not_a_variable(error: ErrorDetails) -> Sentence:
    return Sentence(
        "{name} cannot be a variable of a chat template. Use names of letters, digits and _, but no argument of "
        "apply_chat_template: {taken}.",
        name=error["ctx"]["name"],
        taken=", ".join(TAKEN),
    )


def _not_json(error: ErrorDetails) -> Sentence:
    return Sentence(
        "The value of {name} cannot be kept as JSON. Use text, true, false, null, numbers up to 2^53, and lists and "
        "objects of these, at most {depth} in each other.",
        name=error["ctx"]["name"],
        depth=MAX_DEPTH,
    )


def _not_objects(error: ErrorDetails) -> Sentence:
    return Sentence("{name} is a list of objects, not {value}.", **error["ctx"])


def _variables_too_large(error: ErrorDetails) -> Sentence:
    name = error["loc"][-1]
    return Sentence("{name} is larger than {most} KiB. Put what belongs to rows into the data.", name=name, most=_MOST)


def _not_parts(error: ErrorDetails) -> Sentence:
    return Sentence(
        "{value} is not a list of further rewards. Use at most {most} objects such as {example}.",
        value=shown(error["input"]),
        most=MAX_REWARD_PARTS - 1,
        example=_PART,
    )


def _unknown_of_part(error: ErrorDetails) -> Sentence:
    return _unknown(Sentence("field"), str(error["loc"][-1]), list(RewardPart.model_fields))


def _part_refused(error: ErrorDetails) -> Sentence:
    return Sentence("{place} is {value}. Use {allowed}.", **error["ctx"])


def _not_variables_of_run(error: ErrorDetails) -> Sentence:  # noqa: ARG001 (what was given may hold a secret)
    return Sentence("Environment variables are lines of NAME=value, in JSON an object of names and texts.")


def _not_secret_names(error: ErrorDetails) -> Sentence:  # noqa: ARG001 (the same)
    return Sentence("Secrets are named here, in JSON as a list of names. Their values are given with the launch.")


def _variable_refused(error: ErrorDetails) -> Sentence:
    return Sentence("{name} cannot be given to a run: {why}.", **error["ctx"])


_PART = '{"kind": "format", "weight": 0.2}'
_VARIABLES = '{"enable_thinking": false}'
_MOST = MAX_BYTES // 1024
_SENTENCES: Mapping[str, Callable[[ErrorDetails], Sentence]] = {
    "model_type": _not_an_object,
    "literal_error": _not_a_choice,
    "string_unicode": _not_a_choice,
    "int_type": _not_in_range,
    "float_type": _not_in_range,
    "greater_than_equal": _not_in_range,
    "less_than_equal": _not_in_range,
    "string_type": _not_text,
    "not_storable": _not_storable,
    "not_a_name": _not_a_name,
    "not_rule_ids": _not_rule_ids,
    "unknown_version": _unknown_version,
    "not_variables": _not_variables,
    "not_a_variable": _not_a_variable,
    "not_json": _not_json,
    "not_objects": _not_objects,
    "part_refused": _part_refused,
    "variables_too_large": _variables_too_large,
    "not_parts": _not_parts,
    "not_variables_of_run": _not_variables_of_run,
    "not_secret_names": _not_secret_names,
    "variable_refused": _variable_refused,
    "not_finite": _not_in_range,
    "extra_forbidden": _unknown_of_part,
}
"""Type of pydantic's or our own error -> what people read of it."""
