"""RunSpec: everything that makes a run, frozen, versioned, JSON both ways, and the one validator of it.

Form, API and command line all call `parse_spec`; the OpenAPI schema is made from these dataclasses. The same spec
launched twice is the same run. Standard library only.
"""

import dataclasses
import difflib
import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast, get_args

from jobs.catalog.knob import Knob, KnobValueInvalid, applicable, knobs
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
from jobs.catalog.storable import is_storable
from profiling.config import ProfileConfig, names_of, ranks_of

SPEC_VERSION = 1

MAX_REWARD_SOURCE_BYTES = 64 * 1024
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run, complete. `knobs` holds every knob that applies to the algorithm and trainer, by id."""

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

    def knob(self, knob_id: str) -> Any:
        """Return the value of a knob; KeyError if it does not apply to this run."""
        return self.knobs[knob_id].value

    def int_knob(self, knob_id: str) -> int:
        """Return an integer knob."""
        return int(self.knobs[knob_id].value)

    def float_knob(self, knob_id: str) -> float:
        """Return a number knob."""
        return float(self.knobs[knob_id].value)

    @property
    def needs_reference(self) -> bool:
        """True if the algorithm compares with a frozen reference: GRPO with a KL coefficient above zero."""
        return self.algorithm == "grpo" and self.float_knob("algorithm.kl_coefficient") > 0

    @property
    def num_workers(self) -> int:
        """Actors that the run places: policy ranks, rollout engine workers, and one reference where it needs one."""
        if self.algorithm == "sft":
            return self.hardware.policy_ranks
        engines = self.hardware.rollout_engines * self.hardware.tensor_parallel_size
        return self.hardware.policy_ranks + engines + int(self.needs_reference)

    @property
    def workers(self) -> dict[str, int]:
        """Role -> how many ranks of it the run has; a rollout engine is one rank, however many workers it is spread."""
        found = {"policy": self.hardware.policy_ranks}
        if self.algorithm != "sft":
            found["vllm"] = self.hardware.rollout_engines
        return found | ({"reference": 1} if self.needs_reference else {})

    @property
    def num_steps(self) -> int:
        """Optimizer-visible steps: one rollout and its update in GRPO, one batch in SFT."""
        return self.int_knob("train.num_steps")


def to_json(spec: RunSpec) -> dict[str, Any]:
    """Return the spec as plain JSON values; `parse_spec` of it gives the same spec."""
    return dataclasses.asdict(spec)


def to_text(spec: RunSpec) -> str:
    """Return the spec as readable JSON with sorted keys."""
    return json.dumps(to_json(spec), indent=2, sort_keys=True, ensure_ascii=False)


def differing(spec: RunSpec) -> dict[str, KnobValue]:
    """Return the knobs whose value is not the catalogue's default for this algorithm."""
    return {k: v for k, v in spec.knobs.items() if v.value != knobs()[k].default_for(spec.algorithm)}


_WHAT_ID_MEANS = {
    "path": "a path on the cluster",
    "hub": "a hub id such as org/name",
    "upload": "upload a file",
    "bundled": "pick one of the list",
}


def parse_spec(raw: object, *, origin: Origin = "you") -> RunSpec:
    """Return the complete, checked RunSpec of plain JSON values.

    Missing fields and knobs take their defaults; knobs may be bare values (then they are `origin`'s) or
    {"value": ..., "origin": ...}. Raises SpecInvalid with every problem found, not only the first.
    """
    problems: list[Problem] = []
    if not isinstance(raw, Mapping):
        raise SpecInvalid([Problem(field="spec", message=f"A run spec is a JSON object, not {type(raw).__name__}.")])
    _refuse_unknown(raw, RunSpec, "", problems)
    values: dict[str, Any] = {}
    version = raw.get("version", SPEC_VERSION)
    if version != SPEC_VERSION or isinstance(version, bool):
        problems.append(Problem(field="version", message=f"Version {version!r} is not known. Use {SPEC_VERSION}."))
    values["name"] = _parse_name(raw.get("name", ""), problems)
    values["algorithm"] = _parse_scalar("algorithm", raw.get("algorithm", "grpo"), Algorithm, "grpo", problems)
    for section, cls in SECTIONS.items():
        values[section] = _parse_section(section, cls, raw.get(section, {}), problems)
    values["knobs"] = _parse_knobs(raw.get("knobs", {}), values["algorithm"], values["trainer"].name, origin, problems)
    spec = RunSpec(**values)
    if not problems:
        _check_together(spec, problems)
    if problems:
        raise SpecInvalid(problems)
    return spec


def _parse_name(raw: object, problems: list[Problem]) -> str:
    name = raw.strip() if isinstance(raw, str) else raw
    if not isinstance(name, str) or len(name) > 120 or any(ord(c) < 32 for c in name) or not is_storable(name):
        problems.append(Problem(field="name", message=f"{raw!r} is not a name. Use up to 120 characters on one line."))
        return ""
    return name


def _refuse_unknown(raw: Mapping[Any, Any], cls: type[Any], prefix: str, problems: list[Problem]) -> None:
    known = [f.name for f in dataclasses.fields(cls)]
    for key in strangers(raw, known):
        problems.append(Problem(field=f"{prefix}{key}", message=_unknown("field", str(key), known)))


def strangers(raw: Mapping[Any, Any], known: Container[Any]) -> list[Any]:
    """Return the first keys that are not known: who sends a million gets no sentence, and no search, for each."""
    return list(islice((key for key in raw if key not in known), MAX_STRANGERS))


def _unknown(what: str, given: str, known: list[str]) -> str:
    near = [name for name in known if _initials(name) == given.rpartition(".")[2]]  # "lr" means learning_rate
    near = near or difflib.get_close_matches(given[:200], known, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known)[:12])}{', …' * (len(known) > 12)}."
    return f"There is no {what} {given!r}. {hint}"


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.rpartition(".")[2].split("_"))


def _parse_section(section: str, cls: type[Any], raw: object, problems: list[Problem]) -> Any:
    if not isinstance(raw, Mapping):
        problems.append(Problem(field=section, message=f"{section} is an object of fields, not {raw!r}."))
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
        problems.append(Problem(field=name, message=f"{raw!r} is not allowed. Use one of {', '.join(choices)}."))
    elif kind is str:
        if isinstance(raw, str) and is_storable(raw):
            return raw
        what = "holds a character that cannot be stored. Type it again" if isinstance(raw, str) else "is not text"
        problems.append(Problem(field=name, message=f"{raw!r} {what}."))
    elif kind in (int, float):
        low, high = RANGES[name]
        is_number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
        # The range first: it is finite, and an integer of a thousand digits fits no float.
        if is_number and low <= cast(float, raw) <= high and (kind is float or float(cast(float, raw)).is_integer()):
            return kind(raw)
        what = "a whole number" if kind is int else "a number"
        allowed = f"{what} from {low:,.15g} to {high:,.15g}"
        problems.append(Problem(field=name, message=f"{raw!r} is not allowed. Use {allowed}."))
    else:
        raise AssertionError(f"{name} has a type the validator does not know: {kind}")
    return default


def _parse_knobs(
    raw: object, algorithm: str, trainer: str, origin: Origin, problems: list[Problem]
) -> dict[str, KnobValue]:
    if not isinstance(raw, Mapping):
        problems.append(Problem(field="knobs", message=f"knobs is an object of knob ids and values, not {raw!r}."))
        raw = {}
    catalogue = knobs()
    here = applicable(algorithm, trainer)
    for knob_id in strangers(raw, catalogue):
        problems.append(Problem(field=f"knobs.{knob_id}", message=_unknown("knob", str(knob_id), list(catalogue))))
    for knob_id in raw:
        if knob_id in catalogue and knob_id not in here:
            given = _bare(raw[knob_id], origin)[0]
            if given != catalogue[knob_id].default_for(algorithm):
                where = f"{algorithm.upper()} with the {trainer} trainer"
                message = f"{catalogue[knob_id].label} does not apply to {where}. Leave it out."
                problems.append(Problem(field=f"knobs.{knob_id}", message=message))
    parsed = {}
    for knob_id, knob in here.items():
        if knob_id in raw:
            parsed[knob_id] = _parse_knob(knob, raw[knob_id], algorithm, origin, problems)
        else:
            parsed[knob_id] = KnobValue(value=knob.default_for(algorithm))
    return parsed


def _bare(raw: object, origin: Origin) -> tuple[object, object]:
    if isinstance(raw, Mapping):
        return raw.get("value"), raw.get("origin", origin)
    return raw, origin


def _parse_knob(knob: Knob, raw: object, algorithm: str, origin: Origin, problems: list[Problem]) -> KnobValue:
    name = f"knobs.{knob.id}"
    if isinstance(raw, Mapping):
        _refuse_unknown(raw, KnobValue, f"{name}.", problems)
    value, given_origin = _bare(raw, origin)
    if given_origin not in get_args(Origin):
        allowed = ", ".join(get_args(Origin))
        problems.append(Problem(field=name, message=f"Origin {given_origin!r} is not allowed. Use one of {allowed}."))
        given_origin = origin
    try:
        return KnobValue(value=knob.check(value), origin=cast(Origin, given_origin))
    except KnobValueInvalid as error:
        problems.append(Problem(field=name, message=str(error)))
        return KnobValue(value=knob.default_for(algorithm))


Refuse = Callable[[str, str], None]  # field, sentence


def _check_together(spec: RunSpec, problems: list[Problem]) -> None:
    """Check what no field can check alone. Rules of taste are not here: these specs cannot run at all."""

    def refuse(name: str, message: str) -> None:
        problems.append(Problem(field=name, message=message))

    for section, source in (("model", spec.model), ("data", spec.data)):
        if not source.id.strip():
            refuse(f"{section}.id", f"Name the {section}: {_WHAT_ID_MEANS[source.kind]}.")
    if spec.data.kind == "path" and not spec.data.id.lower().endswith((".jsonl", ".json", ".parquet")):
        refuse("data.id", f"{spec.data.id!r} is neither JSONL nor Parquet. Use a path that ends in .jsonl or .parquet.")
    if spec.data.kind == "upload" and not _is_upload_id(spec.data.id):
        refuse("data.id", f"{spec.data.id!r} is not an uploaded file. Upload it again.")
    if spec.policy.retries and spec.policy.retry_on == "never":
        refuse(
            "policy.retry_on",
            f"{spec.policy.retries} retries are asked for, and after no failure. Use cluster or any, or 0 retries.",
        )
    if spec.algorithm == "grpo":
        if not spec.data.prompt_column.strip():
            refuse("data.prompt_column", "Name the column that holds the prompt.")
        _check_reward(spec, refuse)
        _check_grpo_batches(spec, refuse)
    else:
        has_pair = spec.data.prompt_column.strip() and spec.data.response_column.strip()
        if not spec.data.messages_column.strip() and not has_pair:
            refuse("data.response_column", "SFT needs a prompt and a response column, or a messages column.")
        _check_divides(spec, "train.batch_size", spec.int_knob("train.batch_size"), refuse)
    _check_profile(spec, refuse)


def _check_profile(spec: RunSpec, refuse: Refuse) -> None:
    wanted, workers = spec.profile, spec.workers
    if wanted.tool == "none":
        return
    roles = names_of(wanted.roles) or list(workers)
    unknown = [role for role in roles if role not in workers]
    if unknown:
        refuse("profile.roles", f"This run has no role {unknown[0]!r}. Use {', '.join(workers)}, or nothing for all.")
    try:
        most = max((workers[role] for role in roles if role in workers), default=0)
        too_high = [rank for rank in ranks_of(wanted.ranks) if rank >= most]
        if too_high and most:
            refuse("profile.ranks", f"There is no rank {too_high[0]}. Use 0 to {most - 1}, or nothing for all.")
    except ValueError as error:
        refuse("profile.ranks", str(error))
    last = wanted.first_step + wanted.num_steps - 1
    if last > spec.num_steps:
        text = f"Steps {wanted.first_step} to {last} go past the end: the run has {spec.num_steps}."
        refuse("profile.first_step", f"{text} Record earlier or fewer steps.")


def _is_upload_id(text: str) -> bool:
    digest = text.removeprefix("upload:")
    return text.startswith("upload:") and len(digest) == 64 and all(c in "0123456789abcdef" for c in digest)


def _check_reward(spec: RunSpec, refuse: Refuse) -> None:
    if spec.reward.kind == "custom" and not spec.reward.source.strip():
        refuse(
            "reward.source",
            "A custom reward needs its Python file: define reward(prompt, completion, answer) -> float.",
        )
    if len(spec.reward.source.encode()) > MAX_REWARD_SOURCE_BYTES:
        refuse(
            "reward.source",
            f"The reward file is larger than {MAX_REWARD_SOURCE_BYTES // 1024} KiB. Shorten it or import a package.",
        )
    if spec.reward.kind in ("math", "exact_match") and not spec.data.answer_column.strip():
        refuse(
            "data.answer_column",
            f"The {spec.reward.kind} reward compares with an answer. Name the column that holds it.",
        )


def _check_grpo_batches(spec: RunSpec, refuse: Refuse) -> None:
    samples = spec.int_knob("rollout.prompts_per_step") * spec.int_knob("rollout.samples_per_prompt")
    updates = spec.int_knob("train.updates_per_rollout")
    if samples % updates:
        refuse(
            "knobs.train.updates_per_rollout",
            f"{updates} updates do not divide the {samples} samples of a step. Use a divisor.",
        )
    else:
        _check_divides(spec, "rollout.prompts_per_step", samples // updates, refuse)


def _check_divides(spec: RunSpec, knob_id: str, samples: int, refuse: Refuse) -> None:
    """Every rank gets the same number of samples per update, else collectives would wait for ever."""
    ranks = spec.hardware.policy_ranks
    if samples % ranks:
        refuse(
            f"knobs.{knob_id}",
            f"{samples} samples per update do not divide by {ranks} policy ranks. Use a multiple of {ranks}.",
        )
