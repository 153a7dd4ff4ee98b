"""The form of the New run page: its inputs are named like the spec's fields, their values are text.

It only translates; what is allowed is `parse_spec`'s business. A form is read against its base, the spec it was opened
with (the defaults, a cloned run, an import): a knob that still has the base's value keeps its origin, any other is the
person's.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, get_origin

from pydantic.fields import FieldInfo

from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, knobs
from jobs.catalog.spec.environment import names_text, read_names, read_variables, variables_text
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.catalog.spec.runspec import SECTIONS, RunSpec, to_json
from jobs.catalog.trainer import BUILT_IN, trainers
from jobs.catalog.value import Value, plain_number, value_text

SECRET = "secret."  # noqa: S105 (the beginning of a name)
"""How the inputs of secrets' values are named: `secret.HF_TOKEN`. They are no part of the spec, nor of a draft."""
BY_KIND = ("model", "data")
"""Sections whose `id` has one input per `kind` (`data.id.path`), so that looking at another kind loses nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """What decides which knobs there are, an algorithm under a version of a trainer, and what they are: the device."""

    algorithm: str = "grpo"
    trainer: str = BUILT_IN
    version: str = ""
    device: str = "auto"

    def knobs(self) -> Mapping[str, Knob]:
        """Return its knobs by id; none where there is no such trainer, version or algorithm."""
        if self.trainer not in trainers() or self.version not in trainers()[self.trainer].versions:
            return {}
        return applicable(self.algorithm, self.trainer, self.version)

    def default_of(self, knob: Knob) -> Value:
        """Return what the knob is where nobody chose it."""
        return knob.default_for(self.algorithm, self.trainer, self.version, self.device)


class _Written(NamedTuple):
    """How a field is written that is neither a value nor JSON."""

    text: Callable[[Any], str]
    read: Callable[[str], object]


_WRITTEN = {
    "environment.variables": _Written(variables_text, read_variables),
    "environment.secrets": _Written(names_text, read_names),
}


def secrets_in(form: Mapping[str, str], spec: RunSpec) -> dict[str, str]:
    """Return the values that were typed of the secrets that the spec names; one left empty is the project's."""
    return {name: text for name in spec.environment.secrets if (text := form.get(f"{SECRET}{name}", ""))}


def without_secrets(form: Mapping[str, str]) -> dict[str, str]:
    """Return a form's texts as they may be shown again."""
    return {name: str(text) for name, text in form.items() if not name.startswith(SECRET)}


def combination_of(spec: RunSpec) -> Combination:
    """Return the combination of a spec."""
    return Combination(
        algorithm=spec.algorithm,
        trainer=spec.trainer.name,
        version=spec.trainer.version,
        device=spec.hardware.device,
    )


def nearest(*, algorithm: str, trainer: str, version: str, device: str = "auto") -> Combination:
    """Return the combination that was asked for, made possible: the trainer counts most, then version and algorithm.

    Without a trainer, it is the first one that offers the algorithm.
    """
    able = [info for info in trainers().values() if info.offers(algorithm, info.versions[0])]
    info = trainers().get(trainer) or next(iter(able), trainers()[BUILT_IN])
    version = version if version in info.versions else info.versions[0]
    offered = [a for a in info.algorithms if info.offers(a, version)]
    algorithm = algorithm if algorithm in offered else offered[0]
    return Combination(algorithm=algorithm, trainer=info.id, version=version, device=device)


def chosen_in(form: Mapping[str, str], base: RunSpec) -> Combination:
    """Return the combination that a form's inputs name, as they name it; what is missing is the base's.

    Another trainer without a version is meant in its newest.
    """
    trainer = form.get("trainer.name", base.trainer.name)
    version = form.get("trainer.version", base.trainer.version if trainer == base.trainer.name else "")
    if not version and trainer in trainers():
        version = trainers()[trainer].versions[0]
    return Combination(
        algorithm=form.get("algorithm", base.algorithm),
        trainer=trainer,
        version=version,
        device=form.get("hardware.device", base.hardware.device),
    )


@cache
def default_spec(algorithm: str = "grpo", trainer: str = BUILT_IN, version: str = "", device: str = "auto") -> RunSpec:
    """Return the spec a fresh form opens with. Raises: SpecInvalid if there is no such combination."""
    return parse_spec(
        {"algorithm": algorithm, "trainer": {"name": trainer, "version": version}, "hardware": {"device": device}}
    )


def base_of(text: str) -> RunSpec:
    """Return the base that a form carries in its hidden input; the defaults if there is none or it is damaged."""
    try:
        return parse_spec(json.loads(text)) if text else default_spec()
    except (ValueError, RecursionError, SpecInvalid):
        return default_spec()


def spec_to_form(spec: RunSpec) -> dict[str, str]:
    """Return every input's text, by the input's name."""
    values = {"name": spec.name, "algorithm": spec.algorithm, "overridden": " ".join(spec.overridden)}
    for section, cls in SECTIONS.items():
        source = getattr(spec, section)
        for field in cls.model_fields:
            is_by_kind = section in BY_KIND and field == "id"
            name = f"{section}.id.{source.kind}" if is_by_kind else f"{section}.{field}"
            written = _WRITTEN.get(f"{section}.{field}")
            values[name] = written.text(getattr(source, field)) if written else show(getattr(source, field))
    for knob_id, chosen in spec.knobs.items():
        values[f"knobs.{knob_id}"] = show(chosen.value)
    return values


def form_to_raw(form: Mapping[str, str], base: RunSpec) -> dict[str, object]:
    """Return the plain JSON that `parse_spec` takes; inputs that are not in `form` keep the base's value.

    Text that is no number stays text, so that the validator can refuse it in its own words. Knobs that do not apply to
    the chosen algorithm and trainer are left out: a page that is just changing them still holds the earlier ones.
    """
    chosen = chosen_in(form, base)
    raw: dict[str, object] = {
        "version": base.version,
        "name": form.get("name", base.name),
        "algorithm": chosen.algorithm,
    }
    for section, cls in SECTIONS.items():
        values = getattr(base, section).model_dump()
        for name, field in cls.model_fields.items():
            text = form.get(f"{section}.{name}")
            if text is not None:
                written = _WRITTEN.get(f"{section}.{name}")
                values[name] = written.read(text) if written else _from_text(text, field)
        if section in BY_KIND:
            values["id"] = form.get(f"{section}.id.{values['kind']}", values["id"])
        if section == "trainer":
            values["version"] = chosen.version
        raw[section] = values
    raw["knobs"] = _raw_knobs(form, base, chosen)
    raw["overridden"] = form["overridden"].split() if "overridden" in form else list(base.overridden)
    return raw


def baseline(base: RunSpec, chosen: Combination) -> dict[str, dict[str, Value]]:
    """Return what each knob of a combination starts from: `{"value", "origin"}` by id.

    Of another combination than the base's, a knob starts from what somebody chose in the base if it takes that, else
    from its default.
    """
    is_same = chosen == combination_of(base)
    start: dict[str, dict[str, Value]] = {}
    for knob_id, knob in chosen.knobs().items():
        in_base = base.knobs.get(knob_id)
        if in_base is not None and (is_same or (in_base.origin != "default" and _takes(knob, in_base.value))):
            start[knob_id] = {"value": in_base.value, "origin": in_base.origin}
        else:
            start[knob_id] = {"value": chosen.default_of(knob), "origin": "default"}
    return start


def _takes(knob: Knob, value: Value) -> bool:
    try:
        knob.check(value)
    except KnobValueInvalid:
        return False
    return True


def changes(spec: RunSpec, base: RunSpec) -> list[tuple[str, str]]:
    """Return what differs from the base, its name apart, as (input name, the base's text), in the order of the form."""
    start = spec_to_form(base)
    start |= {f"knobs.{k}": show(v["value"]) for k, v in baseline(base, combination_of(spec)).items()}
    return [
        (name, start.get(name, ""))
        for name, text in spec_to_form(spec).items()
        if name not in ("name", "overridden") and text != start.get(name)
    ]


def minimal(spec: RunSpec) -> dict[str, object]:
    """Return the shortest JSON that `parse_spec` reads as this very spec: what is default is left out."""
    here = combination_of(spec)
    default = to_json(default_spec(here.algorithm, here.trainer, here.version))
    usual = to_json(default_spec(here.algorithm, here.trainer, here.version, here.device))["knobs"]
    whole = to_json(spec)
    short: dict[str, object] = {"algorithm": spec.algorithm}
    if spec.name:
        short = {"name": spec.name, **short}
    if not spec.is_native:
        short["trainer"] = whole["trainer"]
    for section in SECTIONS:
        differing = {k: v for k, v in whole[section].items() if v != default[section][k]}
        if differing:
            short[section] = differing
    chosen = {k: v for k, v in whole["knobs"].items() if v != usual[k]}
    if chosen:
        short["knobs"] = {k: v["value"] if v["origin"] == "you" else v for k, v in chosen.items()}
    if spec.overridden:
        short["overridden"] = whole["overridden"]
    return short


def show(value: Value | Mapping[str, object] | Sequence[Iterable[Any]]) -> str:
    """Return a value as people type it; reading it back gives the same value."""
    return value_text(value)


def _raw_knobs(form: Mapping[str, str], base: RunSpec, chosen: Combination) -> dict[str, object]:
    here = chosen.knobs()
    if not here:
        return {}
    raw: dict[str, object] = {}
    for name, text in form.items():
        knob_id = name.removeprefix("knobs.")
        if name.startswith("knobs.") and knob_id not in knobs():
            raw[knob_id] = text  # refused by name
    for knob_id, begun in baseline(base, chosen).items():
        text = _lines(form.get(f"knobs.{knob_id}", show(begun["value"])))
        default = chosen.default_of(here[knob_id])
        if here[knob_id].type == "text":  # white space at its ends may be meant, in a template
            raw[knob_id] = _text_chosen(text, begun, default)
        elif _same(text, show(begun["value"])):
            raw[knob_id] = begun
        elif _same(text, show(default)):
            raw[knob_id] = {"value": default, "origin": "default"}
        else:
            raw[knob_id] = {"value": text.strip(), "origin": "you"}
    return raw


def _text_chosen(text: str, begun: dict[str, Value], default: Value) -> dict[str, Value]:
    if text == show(begun["value"]):
        return begun
    if text == show(default):
        return {"value": default, "origin": "default"}
    return {"value": text, "origin": "you"}


def _same(text: str, other: str) -> bool:
    """True if both say the same value: 0.0003 is 3e-4, and 1,000 is 1000."""
    text, other = plain_number(text), plain_number(other)
    try:
        return text == other or float(text) == float(other)
    except ValueError:
        return False


def _from_text(text: str, field: FieldInfo) -> object:
    """Return what an input of a section means; text that means nothing stays text, for the validator to refuse."""
    if field.annotation in (int, float):
        return _number(text)
    if get_origin(field.annotation) in (Mapping, tuple):
        return _object(text, empty={} if get_origin(field.annotation) is Mapping else [])
    return _lines(text)


def _object(text: str, *, empty: object) -> object:
    try:
        return json.loads(text) if text.strip() else empty
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float | int | str:
    plain = plain_number(text)
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return text


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")  # what browsers send for the line ends of a textarea
