"""Read case files: a table per measured case, in the vocabulary of jobs.planner.job: docs/develop/planner-cases.md.

What a case leaves out comes from its framework's defaults (frameworks.toml, or the file's own `frameworks` table), and
after them from the dataclasses. Nothing is skipped: a case whose model cannot be read stays, with the reason.
"""

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jobs.catalog.accelerator import Accelerator, find_accelerator
from jobs.planner.can_it_run.plans import Demand
from jobs.planner.job import Engine, Fleet, FrozenModel, Job, Layout, Lengths, Offload, Rollouts, Training
from jobs.planner.memory.phases import Counts
from jobs.planner.shapes.model_shape import ModelShape, ShapeUnreadable
from tests.planner_cases.model import UnknownModel, read_model
from tests.planner_cases.split import is_for_fitting
from tests.planner_cases.truth import TRUTH, Truth, TruthInvalid, read_truth

HERE = Path(__file__).parent
Built = TypeVar("Built")

_NF4_BYTES = 4.127 / 8  # with double quantization, bytes per element
_WIDEST_QUANTIZED = 1.25  # 8 bits and their scales

_CASE = {"types", "quality", "source", "text", "framework", "counts", "model", "unsupported", "assumed", "truth"}
_WORK = ("lengths", "micro_batch", "layout", "accelerator")
_FLEET = {
    "accelerator",
    "num_devices",
    "devices_per_node",
    "host_gib",
    "shm_gib",
    "node_gb_per_second",
    "price",
    "currency",
}
_PARTS = {"policy", "critic", "frozen", "engine", "rollouts"}
_JOB = {field.name for field in dataclasses.fields(Job)} - _PARTS - {"fleet"}


class CaseInvalid(ValueError):
    """A case file cannot be read; the text says which case and key, what stands there and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured case. `row` is its line in the table it comes from: SW17a and SW17b are readings of row SW17.

    `counts`: what the truth of memory counts: bytes that tensors hold ("allocated"), that the allocator holds
    ("reserved", and "one_stream" where gradients are made in the stream of all else), or all of a device ("device").
    `job` is None where nothing is trained; `engine` alone is then served. `problem` says why nothing can be computed,
    "" if it can. `method`, `demand`, `is_on_host`: what is asked where the truth is a number of devices; a method is a
    key of jobs.planner.can_it_run.plans.METHODS. `assumed`: what of the work of an update or a scoring pass in a step
    its source does not say.
    """

    id: str
    row: str
    types: tuple[str, ...]
    quality: str
    source: str
    text: str
    framework: str
    counts: Counts
    model: ModelShape | None
    config: Mapping[str, Any]
    fleet: Fleet | None
    job: Job | None
    engine: Engine | None
    rollouts: Rollouts | None
    truth: Truth
    problem: str = ""
    assumed: tuple[str, ...] = ()
    is_ours: bool = True
    method: str = ""
    demand: Demand | None = None
    is_on_host: bool = False

    @property
    def lengths(self) -> Lengths | None:
        """Tokens of prompts and responses, where something is generated."""
        return self.rollouts.lengths if self.rollouts else None

    @property
    def is_for_fitting(self) -> bool:
        """True if constants may be chosen by looking at it; all readings of a row are on the same side. Cases that came
        later only test."""
        return self.is_ours and is_for_fitting(self.row)


def load(path: Path) -> tuple[Case, ...]:
    """Return the cases of a file, or of every *.toml of a folder, in their order. Raises: CaseInvalid."""
    own = HERE / "frameworks.toml"
    known: dict[str, Any] = tomllib.loads(own.read_text(encoding="utf-8"))
    found: list[Case] = []
    path = path.resolve()
    files = [path] if path.is_file() else sorted(path.glob("*.toml"))
    if not files:
        raise CaseInvalid(f"{path}: there is no case file. Give a *.toml file, or a folder of them.")
    for file in (each for each in files if each.name != own.name):
        try:
            tables = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CaseInvalid(f"{file.name}: this is not TOML: {error}.") from error
        frameworks = {**known, **tables.pop("frameworks", {})}
        for id, table in tables.items():
            try:
                found.append(_case(id, table, frameworks, is_ours=HERE in file.parents))
            except (CaseInvalid, TruthInvalid) as error:
                raise CaseInvalid(f"{file.name}, {id}: {error}") from error
    ids = [case.id for case in found]
    if doubled := sorted({id for id in ids if ids.count(id) > 1}):
        raise CaseInvalid(f"{path}: {doubled[0]} stands in two files. Give every case an id of its own.")
    return tuple(found)


def _case(id: str, table: object, frameworks: Mapping[str, Any], *, is_ours: bool) -> Case:
    if not isinstance(table, dict):
        raise CaseInvalid(f"a case is a table, not {table!r}.")
    _refuse_unknown(table, _CASE | _FLEET | _JOB | _PARTS, "")
    name = table.get("framework", "")
    given = _merged(_defaults(name, frameworks), table) if name else dict(table)
    _refuse_unknown(given, _CASE | _FLEET | _JOB | _PARTS | {"like", "about"}, f"framework {name}: ")
    truth = read_truth(_table(given, "truth", ""))
    model: ModelShape | None = None
    config: Mapping[str, Any] = {}
    fleet: Fleet | None = None
    job: Job | None = None
    engine: Engine | None = None
    rollouts: Rollouts | None = None
    problem = str(given.get("unsupported", ""))
    try:
        model, config = read_model(given.get("model"))
        if "rollouts" in given:
            rollouts = _rollouts(_table(given, "rollouts", ""))
        if "accelerator" in given:
            fleet = _fleet(given)
            if "engine" in given:
                engine = _engine(_table(given, "engine", ""), model, _engine_devices(given, fleet))
            if "policy" in given:
                job = _job(given, model, fleet, engine, rollouts)
    except (UnknownModel, ShapeUnreadable) as error:
        problem = problem or str(error)
    return Case(
        id=id,
        row=match[1] if (match := re.fullmatch(r"([A-Z]+\d+)[a-z]", id)) else id,
        types=tuple(_list_of_words(given, "types")),
        quality=_one_of(given, "quality", ("L", "R", "B", "V"), "B"),
        source=str(given.get("source", "")),
        text=str(given.get("text", "")),
        framework=name,
        counts=_one_of(given, "counts", get_args(Counts), "device"),  # type: ignore[arg-type]
        model=model,
        config=config,
        fleet=fleet,
        job=job,
        engine=engine,
        rollouts=rollouts,
        truth=truth,
        problem=problem,
        assumed=_assumed(given, rollouts),
        is_ours=is_ours,
        method=_method(job),
        demand=_demand(job),
        is_on_host=job is not None and job.policy.offload.optimizer > 0,
    )


def _assumed(given: Mapping[str, Any], rollouts: Rollouts | None) -> tuple[str, ...]:
    """Return what of the work of a step is assumed: as the case says, and lengths where it has no mean of responses."""
    words = _list_of_words(given, "assumed")
    for word in words:
        _one_of({"assumed": word}, "assumed", _WORK, word)
    if rollouts is not None and not rollouts.lengths.mean_response and "lengths" not in words:
        words = ["lengths", *words]
    return tuple(words)


def _method(job: Job | None) -> str:
    if job is None:
        return ""
    return job.algorithm + ("" if job.policy.method == "full" else f"-{job.policy.method}")


def _demand(job: Job | None) -> Demand | None:
    if job is None:
        return None
    if job.rollouts is None:
        return Demand(max_prompt=job.policy.sequence // 2, max_response=job.policy.sequence - job.policy.sequence // 2)
    lengths = job.rollouts.lengths
    return Demand(
        max_prompt=lengths.max_prompt,
        max_response=lengths.max_response,
        mean_prompt=lengths.mean_prompt,
        mean_response=lengths.mean_response,
        prompts=job.rollouts.prompts,
        samples_per_prompt=job.rollouts.samples_per_prompt,
    )


def _defaults(name: str, frameworks: Mapping[str, Any]) -> dict[str, Any]:
    if name not in frameworks:
        raise CaseInvalid(f"there is no framework {name!r}.{_nearest(name, frameworks)}")
    table = dict(frameworks[name])
    parent = table.get("like", "")
    return _merged(_defaults(parent, frameworks), table) if parent else table


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `over` laid upon `under`, table by table; a list replaces a list. A model is one thing."""
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        joined = isinstance(value, dict) and isinstance(below, dict) and key not in ("model", "accelerator", "truth")
        both[key] = _merged(below, value) if joined else value  # type: ignore[arg-type]
    return both


def _job(
    given: Mapping[str, Any], model: ModelShape, fleet: Fleet, engine: Engine | None, rollouts: Rollouts | None
) -> Job:
    devices = fleet.num_devices - given.get("engine_devices", 0)
    policy = _training(_table(given, "policy", ""), model, "policy", devices)
    frozen = given.get("frozen", [])
    if not isinstance(frozen, list):
        raise CaseInvalid(f"frozen: {frozen!r} is no list of tables. Write [[ID.frozen]] or frozen = [{{ role = … }}].")
    critic = None
    if "critic" in given:  # trained as the policy is, where it does not say otherwise
        both = _merged(_table(given, "policy", ""), {"objective": "scalar", **_table(given, "critic", "")})
        critic = _training(both, model, "critic", devices)
    more: dict[str, Any] = {"policy": policy, "critic": critic, "fleet": fleet, "engine": engine, "rollouts": rollouts}
    more["frozen"] = tuple(
        _frozen(each, model, policy.layout, policy.sequence, f"frozen[{i}]") for i, each in enumerate(frozen)
    )
    return _build(Job, {key: given[key] for key in _JOB if key in given}, "", more)


def _training(table: Mapping[str, Any], model: ModelShape, where: str, devices: int) -> Training:
    if "model" in table:
        model, _ = read_model(table["model"])
    layout = _build(Layout, {"num_devices": devices, **_table(table, "layout", where)}, f"{where}.layout")
    offload = _build(Offload, _table(table, "offload", where), f"{where}.offload")
    rest = {key: value for key, value in table.items() if key not in ("model", "layout", "offload")}
    if rest.get("method") == "qlora" and rest.get("base_bytes", 2) > _WIDEST_QUANTIZED:
        rest["base_bytes"] = _NF4_BYTES  # a framework's default is that of a base that is not quantized
    return _build(Training, rest, where, {"model": model, "layout": layout, "offload": offload})


def _frozen(table: object, model: ModelShape, layout: Layout, sequence: int, where: str) -> FrozenModel:
    if not isinstance(table, dict):
        raise CaseInvalid(f"{where}: {table!r} is no table.")
    if "model" in table:
        model, _ = read_model(table["model"])
    if "layout" in table:
        devices = {"num_devices": layout.num_devices}
        layout = _build(Layout, devices | _table(table, "layout", where), f"{where}.layout")
    rest = {key: value for key, value in table.items() if key not in ("model", "layout")}
    return _build(FrozenModel, {"sequence": sequence, **rest}, where, {"model": model, "layout": layout})


def _engine(table: Mapping[str, Any], model: ModelShape, devices: int) -> Engine:
    if "model" in table:
        model, _ = read_model(table["model"])
    ranks = table.get("tensor", 1) * table.get("pipeline", 1)
    rest = {"num_engines": max(devices // ranks, 1), **{key: table[key] for key in table if key != "model"}}
    return _build(Engine, rest, "engine", {"model": model})


def _engine_devices(given: Mapping[str, Any], fleet: Fleet) -> int:
    return int(given.get("engine_devices", 0) or fleet.num_devices)


def _rollouts(table: Mapping[str, Any]) -> Rollouts:
    lengths = _build(Lengths, _table(table, "lengths", "rollouts"), "rollouts.lengths")
    rest = {"prompts": 1, "samples_per_prompt": 1} | {key: table[key] for key in table if key != "lengths"}
    return _build(Rollouts, rest, "rollouts", {"lengths": lengths})


def _fleet(given: Mapping[str, Any]) -> Fleet:
    table = {key: given[key] for key in ("num_devices", "devices_per_node", "price", "currency") if key in given}
    for key, field, unit in (
        ("host_gib", "host_bytes", 2**30),
        ("shm_gib", "shm_bytes", 2**30),
        ("node_gb_per_second", "node_bandwidth", 1e9),
    ):
        if key in given:
            number = given[key]
            if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
                raise CaseInvalid(f"{number!r} is not allowed for {key}. Use a number of 0 or more.")
            table[field] = int(number * unit) if field.endswith("bytes") else number * unit
    return _build(Fleet, {"num_devices": 1, **table}, "", {"accelerator": _accelerator(given["accelerator"])})


def _accelerator(given: object) -> Accelerator:
    """Return one of the catalogue, or one `like` it with other numbers: memory_gb, usable_gib, bandwidth_tb, watts."""
    if isinstance(given, str):
        try:
            return find_accelerator(given)
        except LookupError as error:
            raise CaseInvalid(f"accelerator: {error.args[0]}") from error
    if not isinstance(given, dict) or "like" not in given:
        raise CaseInvalid(f"accelerator: {given!r} is neither an id nor a table with `like`.")
    units = {"memory_gb": ("memory_bytes", 1e9), "usable_gib": ("usable_bytes", 2**30), "watts": ("watts", 1.0)}
    units |= {"bandwidth_tb_per_second": ("bandwidth", 1e12), "link_gb_per_second": ("link_bandwidth", 1e9)}
    _refuse_unknown(given, {"like", "label", *units}, "accelerator: ")
    base = _accelerator(given["like"])
    changed: dict[str, Any] = {"label": given.get("label", base.label)}
    for key, (field, unit) in units.items():
        if key in given:
            number = given[key] * unit
            changed[field] = round(number) if field.endswith("bytes") else number
    if "memory_bytes" in changed and "usable_bytes" not in changed:  # the same share of the label is usable
        changed["usable_bytes"] = round(base.usable_bytes * changed["memory_bytes"] / base.memory_bytes)
    return dataclasses.replace(base, **changed)


def _build(kind: type[Built], table: Mapping[str, Any], where: str, more: Mapping[str, Any] | None = None) -> Built:
    """Return a dataclass made of a table; `more` are fields that are no plain values. Raises: CaseInvalid."""
    more = more or {}
    prefix = f"{where}." if where else ""
    hints = get_type_hints(kind)
    _refuse_unknown(table, hints.keys() - more.keys(), prefix)
    values = {key: _value(hints[key], value, f"{prefix}{key}") for key, value in table.items()}
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    if missing := [name for name in needed if name not in values and name not in more]:
        raise CaseInvalid(f"{prefix}{missing[0]} is missing.")
    return kind(**values, **more)


def _value(hint: Any, value: object, where: str) -> Any:
    if get_origin(hint) in (Union, UnionType):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise CaseInvalid(f"{value!r} is not allowed for {where}. Use {', '.join(map(str, get_args(hint)))}.")
        return value
    if get_origin(hint) is tuple:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise CaseInvalid(f"{value!r} is not allowed for {where}. Use a list of words.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number and value >= 0:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    if hint is int and is_number and isinstance(value, int) and value >= 0:
        return value
    if hint in (bool, str) and isinstance(value, hint):
        return value
    words = {float: "a number of 0 or more", int: "a whole number of 0 or more", bool: "true or false", str: "a text"}
    raise CaseInvalid(f"{value!r} is not allowed for {where}. Use {words.get(hint, hint)}.")


def _table(given: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    table = given.get(key, {})
    if not isinstance(table, dict):
        raise CaseInvalid(f"{where}{'.' if where else ''}{key}: {table!r} is no table.")
    return table


def _one_of(given: Mapping[str, Any], key: str, allowed: Iterable[str], default: str) -> str:
    value = given.get(key, default)
    if value not in allowed:
        raise CaseInvalid(f"{value!r} is not allowed for {key}. Use {', '.join(allowed)}.")
    return str(value)


def _list_of_words(given: Mapping[str, Any], key: str) -> list[str]:
    value = given.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise CaseInvalid(f'{value!r} is not allowed for {key}. Use a list of letters, such as ["A", "C"].')
    return value


def _refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = set(known)
    if strange := [key for key in table if key not in known]:
        raise CaseInvalid(f"there is no key {where}{strange[0]}.{_nearest(strange[0], known)}")


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, [*known], n=1, cutoff=0.5)
    return f" Did you mean {near[0]}?" if near else f" Known: {', '.join(sorted(known))}."


__all__ = ["TRUTH", "Case", "CaseInvalid", "load"]
