"""The form of the New run page: its inputs are named like the spec's fields, their values are text.

It only translates; what is allowed is `parse_spec`'s business. A form is read against its base, the spec it was opened
with (the defaults, a cloned run, an import): a knob that still has the base's value keeps its origin, any other is the
person's.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, get_args

from jobs.catalog.knob import applicable, knobs
from jobs.catalog.runspec import RunSpec, SpecInvalid, parse_spec, to_json
from jobs.catalog.sections import SECTIONS, Algorithm
from jobs.catalog.spelling import spell
from jobs.catalog.value import Value

BY_KIND = ("model", "data")
"""Sections whose `id` has one input per `kind` (`data.id.path`), so that looking at another kind loses nothing."""


def default_spec(algorithm: str = "grpo") -> RunSpec:
    """Return the spec a fresh form opens with."""
    return parse_spec({"algorithm": algorithm})


def base_of(text: str) -> RunSpec:
    """Return the base that a form carries in its hidden input; the defaults if there is none or it is damaged."""
    try:
        return parse_spec(json.loads(text)) if text else default_spec()
    except (ValueError, RecursionError, SpecInvalid):
        return default_spec()


def spec_to_form(spec: RunSpec) -> dict[str, str]:
    """Return every input's text, by the input's name."""
    values = {"name": spec.name, "algorithm": spec.algorithm}
    for section, cls in SECTIONS.items():
        source = getattr(spec, section)
        for f in dataclasses.fields(cls):
            is_by_kind = section in BY_KIND and f.name == "id"
            name = f"{section}.id.{source.kind}" if is_by_kind else f"{section}.{f.name}"
            values[name] = show(getattr(source, f.name))
    for knob_id, chosen in spec.knobs.items():
        values[f"knobs.{knob_id}"] = show(chosen.value)
    return values


def form_to_raw(form: Mapping[str, str], base: RunSpec) -> dict[str, Any]:
    """Return the plain JSON that `parse_spec` takes; inputs that are not in `form` keep the base's value.

    Text that is no number stays text, so that the validator can refuse it in its own words. Knobs that do not apply to
    the chosen algorithm are left out: the form holds those of both.
    """
    raw: dict[str, Any] = {"version": base.version, "name": form.get("name", base.name)}
    raw["algorithm"] = algorithm = form.get("algorithm", base.algorithm)
    for section, cls in SECTIONS.items():
        source = getattr(base, section)
        values = {f.name: getattr(source, f.name) for f in dataclasses.fields(cls)}
        for f in dataclasses.fields(cls):
            given = form.get(f"{section}.{f.name}")
            if given is not None:
                values[f.name] = _number(given) if f.type in (int, float) else _lines(given)
        if section in BY_KIND:
            values["id"] = form.get(f"{section}.id.{values['kind']}", values["id"])
        raw[section] = values
    raw["knobs"] = _raw_knobs(form, base, algorithm)
    return raw


def baseline(base: RunSpec, algorithm: str) -> dict[str, dict[str, Any]]:
    """Return what each knob of `algorithm` starts from: `{"value", "origin"}` by id.

    A knob that the base left at its default starts from the default of the algorithm now chosen.
    """
    found: dict[str, dict[str, Any]] = {}
    for knob_id, knob in applicable(algorithm, base.trainer.name).items():
        chosen = base.knobs.get(knob_id)
        if chosen is None or (chosen.origin == "default" and algorithm != base.algorithm):
            found[knob_id] = {"value": knob.default_for(algorithm), "origin": "default"}
        else:
            found[knob_id] = {"value": chosen.value, "origin": chosen.origin}
    return found


def changes(spec: RunSpec, base: RunSpec) -> list[tuple[str, str]]:
    """Return what differs from the base, its name apart, as (input name, the base's text), in the order of the form."""
    start = spec_to_form(base)
    start |= {f"knobs.{k}": show(v["value"]) for k, v in baseline(base, spec.algorithm).items()}
    return [
        (name, start.get(name, ""))
        for name, text in spec_to_form(spec).items()
        if name != "name" and text != start.get(name)
    ]


def minimal(spec: RunSpec) -> dict[str, Any]:
    """Return the shortest JSON that `parse_spec` reads as this very spec: what is default is left out."""
    default, given = to_json(default_spec(spec.algorithm)), to_json(spec)
    short: dict[str, Any] = {"algorithm": spec.algorithm}
    if spec.name:
        short = {"name": spec.name, **short}
    for section in SECTIONS:
        differing = {k: v for k, v in given[section].items() if v != default[section][k]}
        if differing:
            short[section] = differing
    chosen = {k: v for k, v in given["knobs"].items() if v != default["knobs"][k]}
    if chosen:
        short["knobs"] = {k: v["value"] if v["origin"] == "you" else v for k, v in chosen.items()}
    return short


def show(value: Value) -> str:
    """Return a value as people type it; reading it back gives the same value."""
    return spell(value)


def _raw_knobs(form: Mapping[str, str], base: RunSpec, algorithm: str) -> dict[str, Any]:
    if algorithm not in get_args(Algorithm):
        return {}
    start = baseline(base, algorithm)
    raw: dict[str, Any] = {}
    for name, text in form.items():
        knob_id = name.removeprefix("knobs.")
        if name.startswith("knobs.") and knob_id not in knobs():
            raw[knob_id] = text  # refused by name
    for knob_id, begun in start.items():
        text = form.get(f"knobs.{knob_id}", show(begun["value"]))
        knob = knobs()[knob_id]
        if _same(text, show(begun["value"])):
            raw[knob_id] = begun
        elif _same(text, show(knob.default_for(algorithm))):
            raw[knob_id] = {"value": knob.default_for(algorithm), "origin": "default"}
        else:
            raw[knob_id] = {"value": text.strip(), "origin": "you"}
    return raw


def _same(text: str, other: str) -> bool:
    """True if both say the same value: 0.0003 is 3e-4, and 1,000 is 1000."""
    text, other = text.strip().replace(",", ""), other.replace(",", "")
    try:
        return text == other or float(text) == float(other)
    except ValueError:
        return False


def _number(text: str) -> float | int | str:
    plain = text.strip().replace(",", "")
    for kind in (int, float):
        try:
            return kind(plain)
        except ValueError:
            continue
    return text


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n")  # what browsers send for the line ends of a textarea
