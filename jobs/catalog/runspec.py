"""RunSpec: everything that makes a run, frozen, versioned, JSON both ways, and the one validator of it.

Form, API and command line all call `parse_spec`; the OpenAPI schema is made from these dataclasses. The same spec
launched twice is the same run. Standard library only.
"""

import dataclasses
import difflib
import json
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast, get_args

from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.contradictions import contradictions
from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, knobs, number_from
from jobs.catalog.placement import placement_of
from jobs.catalog.sections import (
    RANGES,
    SECTIONS,
    Algorithm,
    DataSource,
    Hardware,
    KnobValue,
    ModelSource,
    Origin,
    RewardSource,
    RunPolicy,
    Trainer,
)
from jobs.catalog.sentence import Sentence, told
from jobs.catalog.storable import is_storable
from jobs.catalog.trainer import trainers
from jobs.catalog.value import Value
from profiling.captures.tool_selection import shown_by
from profiling.config import ProfileConfig

SPEC_VERSION = 1

MAX_STRANGERS = 20
MAX_OVERRIDDEN = 200


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run, complete. `knobs` holds every knob that applies to the algorithm and trainer, by id.

    `overridden` names the rules whose findings of this spec a person has read and put aside.
    """

    version: int = SPEC_VERSION
    name: str = ""
    algorithm: Algorithm = "grpo"
    trainer: Trainer = field(default_factory=Trainer)
    model: ModelSource = field(default_factory=ModelSource)
    data: DataSource = field(default_factory=DataSource)
    reward: RewardSource = field(default_factory=RewardSource)
    hardware: Hardware = field(default_factory=Hardware)
    profile: ProfileConfig = field(default_factory=ProfileConfig)
    policy: RunPolicy = field(default_factory=RunPolicy)
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    overridden: tuple[str, ...] = ()

    def knob(self, knob_id: str) -> Any:
        """Return the value of a knob; KeyError if it does not apply to this run."""
        return self.knobs[knob_id].value

    def int_knob(self, knob_id: str) -> int:
        """Return an integer knob."""
        return int(self.knob(knob_id))

    def float_knob(self, knob_id: str) -> float:
        """Return a number knob."""
        return float(self.knob(knob_id))

    @property
    def is_native(self) -> bool:
        """True if the built-in trainer runs it."""
        return self.trainer.name == "native"

    @property
    def needs_reference(self) -> bool:
        """True if the algorithm compares with a frozen reference: reinforcement learning with a KL coefficient."""
        return is_in(self.algorithm, "rl") and self.float_knob("algorithm.kl_coefficient") > 0

    @property
    def num_workers(self) -> int:
        """Devices of all its pools, each of which may hold several roles."""
        return sum(placement_of(self).pools(self).values())

    @property
    def workers(self) -> dict[str, int]:
        """Role -> how many ranks of it the run has; a rollout engine is one rank, however many workers it is spread."""
        return placement_of(self).workers(self)

    @property
    def num_steps(self) -> int:
        """Optimizer-visible steps: one rollout and its update in RL, else one batch; 0 where only the data decides."""
        chosen = self.knobs.get("train.num_steps")
        return int(chosen.value or 0) if chosen is not None else 0

    def values(self) -> dict[str, Any]:
        """Return knob id -> value, and under reward.model_path the reward model that the section reward names."""
        found = {knob_id: chosen.value for knob_id, chosen in self.knobs.items()}
        if self.reward.kind == "model":
            found["reward.model_path"] = self.reward.location
        return found


def to_json(spec: RunSpec) -> dict[str, Any]:
    """Return the spec as plain JSON values; `parse_spec` of it gives the same spec."""
    return dataclasses.asdict(spec) | {"overridden": list(spec.overridden)}


def to_text(spec: RunSpec) -> str:
    """Return the spec as readable JSON with sorted keys."""
    return json.dumps(to_json(spec), indent=2, sort_keys=True, ensure_ascii=False)


def differing(spec: RunSpec) -> dict[str, KnobValue]:
    """Return the knobs whose value is not the catalogue's default for this algorithm and trainer."""
    return {k: v for k, v in spec.knobs.items() if v.value != default_of(spec, knobs()[k])}


def default_of(spec: RunSpec, knob: Knob) -> Value:
    """Return what the knob would be in this run if nobody had chosen it."""
    return knob.default_for(spec.algorithm, spec.trainer.name, spec.trainer.version)


def parse_spec(raw: object, *, origin: Origin = "you") -> RunSpec:
    """Return the complete, checked RunSpec of plain JSON values.

    Missing fields and knobs take their defaults; knobs may be bare values (then they are `origin`'s) or
    {"value": ..., "origin": ...}. Raises SpecInvalid with every problem found, not only the first.
    """
    problems: list[Problem] = []
    if not isinstance(raw, Mapping):
        raise SpecInvalid(
            [
                Problem(
                    field="spec", message=Sentence("A run spec is a JSON object, not {kind}.", kind=type(raw).__name__)
                )
            ]
        )
    _refuse_unknown(raw, RunSpec, "", problems)
    values: dict[str, Any] = {}
    version = raw.get("version", SPEC_VERSION)
    if version != SPEC_VERSION or isinstance(version, bool):
        text = Sentence("Version {version} is not known. Use {known}.", version=repr(version), known=SPEC_VERSION)
        problems.append(Problem(field="version", message=text))
    values["name"] = _parse_name(raw.get("name", ""), problems)
    values["algorithm"] = _parse_scalar("algorithm", raw.get("algorithm", "grpo"), Algorithm, "grpo", problems)
    for section, cls in SECTIONS.items():
        values[section] = _parse_section(section, cls, raw.get(section, {}), problems)
    values["profile"] = _parse_profile(values["profile"], raw.get("profile", {}))
    values["trainer"] = _parse_trainer(values["trainer"], values["algorithm"], problems)
    values["knobs"] = _parse_knobs(raw.get("knobs", {}), values["algorithm"], values["trainer"], origin, problems)
    values["overridden"] = _parse_overridden(raw.get("overridden", ()), problems)
    spec = RunSpec(**values)
    if not problems:
        problems += [Problem(field=name, message=message) for name, message in contradictions(spec)]
    if problems:
        raise SpecInvalid(problems)
    return spec


def _parse_profile(given: ProfileConfig, raw: object) -> ProfileConfig:
    """Return the profile with what its tool is best at, where a tool alone is named: so do specs of before `what`."""
    if given.tool == "none" or (isinstance(raw, Mapping) and "what" in raw):
        return given
    return dataclasses.replace(given, what=shown_by(given.tool)[0])


def _parse_trainer(given: Trainer, algorithm: str, problems: list[Problem]) -> Trainer:
    """Return the trainer with its version filled in; the newest known one where none is named."""
    info = trainers()[given.name]
    version = given.version or info.versions[0]
    if version not in info.versions:
        words = {"version": repr(given.version), "trainer": Sentence(info.label)}
        if any(info.versions):
            known = ", ".join(info.versions)
            text = Sentence("Version {version} of {trainer} is not known. Use {known}.", **words, known=known)
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
    return Trainer(name=given.name, version=version)


def _parse_overridden(raw: object, problems: list[Problem]) -> tuple[str, ...]:
    is_list = isinstance(raw, (list, tuple)) and len(raw) <= MAX_OVERRIDDEN
    if is_list and all(
        isinstance(rule, str) and is_storable(rule) and len(rule) <= 100 for rule in cast(list[Any], raw)
    ):
        return tuple(dict.fromkeys(cast(list[str], raw)))
    problems.append(
        Problem(field="overridden", message=Sentence("{value} is not a list of rules' ids.", value=repr(raw)))
    )
    return ()


def _parse_name(raw: object, problems: list[Problem]) -> str:
    name = raw.strip() if isinstance(raw, str) else raw
    if not isinstance(name, str) or len(name) > 120 or any(ord(c) < 32 for c in name) or not is_storable(name):
        text = Sentence("{value} is not a name. Use up to 120 characters on one line.", value=repr(raw))
        problems.append(Problem(field="name", message=text))
        return ""
    return name


def _refuse_unknown(raw: Mapping[Any, Any], cls: type[Any], prefix: str, problems: list[Problem]) -> None:
    known = [f.name for f in dataclasses.fields(cls)]
    for key in strangers(raw, known):
        problems.append(Problem(field=f"{prefix}{key}", message=_unknown(Sentence("field"), str(key), known)))


def strangers(raw: Mapping[Any, Any], known: Container[Any]) -> list[Any]:
    """Return the first keys that are not known: who sends a million gets no sentence, and no search, for each."""
    return list(islice((key for key in raw if key not in known), MAX_STRANGERS))


def _unknown(what: Sentence, given: str, known: list[str]) -> Sentence:
    near = [name for name in known if _initials(name) == given.rpartition(".")[2]]  # "lr" means learning_rate
    near = near or difflib.get_close_matches(given[:200], known, n=1, cutoff=0.5)
    words = {"what": what, "given": repr(given)}
    if near:
        return Sentence("There is no {what} {given}. Did you mean {near}?", **words, near=near[0])
    some = f"{', '.join(sorted(known)[:12])}{', …' * (len(known) > 12)}"
    return Sentence("There is no {what} {given}. Known: {known}.", **words, known=some)


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.rpartition(".")[2].split("_"))


def _parse_section(section: str, cls: type[Any], raw: object, problems: list[Problem]) -> Any:
    if not isinstance(raw, Mapping):
        text = Sentence("{name} is an object of fields, not {value}.", name=section, value=repr(raw))
        problems.append(Problem(field=section, message=text))
        return cls()
    _refuse_unknown(raw, cls, f"{section}.", problems)
    default = cls()
    values = {}
    for f in dataclasses.fields(cls):
        given = raw.get(f.name, getattr(default, f.name))
        values[f.name] = _parse_scalar(f"{section}.{f.name}", given, f.type, getattr(default, f.name), problems)
    return cls(**values)


def _parse_scalar(name: str, raw: object, kind: Any, default: Any, problems: list[Problem]) -> Any:
    choices = get_args(kind)
    if choices:
        if raw in choices and isinstance(raw, str):
            return raw
        problems.append(
            Problem(field=name, message=_not_allowed(raw, Sentence("one of {choices}", choices=", ".join(choices))))
        )
    elif kind is str:
        if isinstance(raw, str) and is_storable(raw):
            return raw
        text = (
            Sentence("{value} holds a character that cannot be stored. Type it again.", value=repr(raw))
            if isinstance(raw, str)
            else Sentence("{value} is not text.", value=repr(raw))
        )
        problems.append(Problem(field=name, message=text))
    elif kind in (int, float):
        low, high = RANGES[name]
        is_number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
        # The range first: it is finite, and an integer of a thousand digits fits no float.
        if is_number and low <= cast(float, raw) <= high and (kind is float or float(cast(float, raw)).is_integer()):
            return kind(raw)
        allowed = number_from(f"{low:,.15g}", f"{high:,.15g}", is_int=kind is int)
        problems.append(Problem(field=name, message=_not_allowed(raw, allowed)))
    else:
        raise AssertionError(f"{name} has a type the validator does not know: {kind}")
    return default


def _not_allowed(raw: object, allowed: Sentence) -> Sentence:
    return Sentence("{value} is not allowed. Use {allowed}.", value=repr(raw), allowed=allowed)


def _parse_knobs(
    raw: object, algorithm: str, trainer: Trainer, origin: Origin, problems: list[Problem]
) -> dict[str, KnobValue]:
    if not isinstance(raw, Mapping):
        text = Sentence("knobs is an object of knob ids and values, not {value}.", value=repr(raw))
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
            given = _bare(raw[knob_id], origin)[0]
            if given != catalogue[knob_id].default_for(algorithm):
                message = Sentence(
                    "{label} does not apply to {algorithm} with {trainer}. Leave it out.",
                    label=Sentence(catalogue[knob_id].label),
                    algorithm=Sentence(algorithms()[algorithm].label),
                    trainer=trainers()[trainer.name].called(trainer.version),
                )
                problems.append(Problem(field=f"knobs.{knob_id}", message=message))
    parsed = {}
    for knob_id, knob in here.items():
        if knob_id in raw:
            parsed[knob_id] = _parse_knob(knob, raw[knob_id], origin, problems)
        else:
            parsed[knob_id] = KnobValue(value=knob.default_for(algorithm, trainer.name, trainer.version))
    return parsed


def _bare(raw: object, origin: Origin) -> tuple[object, object]:
    if isinstance(raw, Mapping):
        return raw.get("value"), raw.get("origin", origin)
    return raw, origin


def _parse_knob(knob: Knob, raw: object, origin: Origin, problems: list[Problem]) -> KnobValue:
    name = f"knobs.{knob.id}"
    if isinstance(raw, Mapping):
        _refuse_unknown(raw, KnobValue, f"{name}.", problems)
    value, given_origin = _bare(raw, origin)
    if given_origin not in get_args(Origin):
        words = {"value": repr(given_origin), "allowed": ", ".join(get_args(Origin))}
        text = Sentence("Origin {value} is not allowed. Use one of {allowed}.", **words)
        problems.append(Problem(field=name, message=text))
        given_origin = origin
    try:
        return KnobValue(value=knob.check(value), origin=cast(Origin, given_origin))
    except KnobValueInvalid as error:
        problems.append(Problem(field=name, message=told(error)))
        return KnobValue(value=knob.default)
