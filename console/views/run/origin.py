"""What each attempt of a run was made of: hardware, code, packages, data, seed, and the run that it is a clone of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.translation import gettext as _

from jobs.catalog.spec.runspec import RunSpec
from jobs.comparison.conditions import weight
from jobs.models import Run, RunEvent
from profiling.counted import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """A repository that code was taken from; `diff` is what was changed and not committed, cut if `is_cut`."""

    name: str
    folder: str
    commit: str
    remote: str
    diff: str
    is_cut: bool
    untracked: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOrigin:
    """One attempt: `facts` are label and text, `packages` name and version with those first that count for speed."""

    number: int
    facts: tuple[tuple[str, str], ...]
    packages: tuple[tuple[str, str], ...]
    sources: tuple[SourceRow, ...] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrigin:
    """The run's parent, if it is a clone, its clones, and its attempts as far as they told, the newest first."""

    parent: Run | None
    clones: tuple[Run, ...]
    attempts: tuple[AttemptOrigin, ...]


MOST_CLONES = 20


def origin_of(run: Run, spec: RunSpec) -> RunOrigin:
    """Return where the run comes from and what it was made of."""
    notes: dict[int, dict[str, Any]] = {}
    rows = RunEvent.objects.filter(run=run, verb="note").order_by("pk")
    for number, data in rows.filter(data__has_key="environment").values_list("attempt", "data"):
        if isinstance(data["environment"], Mapping):  # what is told later completes it
            note = notes.setdefault(number, {})
            note["environment"] = {**note.get("environment", {}), **data["environment"]}
    for number, data in rows.filter(data__has_key="data").values_list("attempt", "data"):
        notes.setdefault(number, {})["data"] = data["data"]
    reported = sorted(((n, note) for n, note in notes.items() if "environment" in note), reverse=True)
    visible = run.clones.filter(trashed_at=None).order_by("created_at")[:MOST_CLONES]
    return RunOrigin(
        parent=run.parent if run.parent is not None and run.parent.trashed_at is None else None,
        clones=tuple(visible),
        attempts=tuple(_attempt(number, note, spec) for number, note in reported),
    )


def _attempt(number: int, note: Mapping[str, Any], spec: RunSpec) -> AttemptOrigin:
    environment: Mapping[str, Any] = note["environment"]
    packages = environment.get("packages")
    named = packages if isinstance(packages, Mapping) else {}
    return AttemptOrigin(
        number=number,
        facts=tuple((label, text) for label, text in _facts(environment, note.get("data"), spec) if text),
        packages=tuple((str(name), str(named[name])) for name in sorted(named, key=weight)),
        sources=tuple(_source(each) for each in _objects(environment.get("sources"))),
    )


def _facts(environment: Mapping[str, Any], data: object, spec: RunSpec) -> Iterator[tuple[str, str]]:
    def text(name: str) -> str:
        return str(environment.get(name) or "")

    devices = environment.get("devices")
    listed = [str(each) for each in devices] if isinstance(devices, Sequence) and not isinstance(devices, str) else []
    yield _("Node"), text("node")
    yield _("Devices"), " + ".join(f"{listed.count(name)} × {name}" for name in dict.fromkeys(listed))
    yield _("Driver of the devices"), text("driver")
    cores = text("cores")
    of_cpu = counted(_("%(cores)s cores of %(cpu)s") % {"cores": cores, "cpu": text("cpu")})
    yield _("CPU"), of_cpu if cores else text("cpu")
    yield _("System"), ", ".join(part for part in (text("system"), text("kernel")) if part)
    yield _("Container image"), text("image")
    yield _("Python"), text("python")
    yield _("Code of Pitwall on the cluster"), text("code")
    if isinstance(data, Mapping) and "sha256" in data:
        about = {"n": f"{data.get('num_examples', 0):,}", "digest": data["sha256"]}
        yield _("Training data"), counted(_("%(n)s examples, %(digest)s") % about)
    elif isinstance(data, Mapping) and data.get("revision"):
        yield _("Training data"), f"{data.get('hub', '')} {data['revision']}"
    else:
        yield _("Training data"), text("data")
    seeds = [knob_id for knob_id in spec.knobs if knob_id.endswith(".seed")]
    yield _("Seed"), ", ".join(str(spec.knob(knob_id)) for knob_id in seeds if spec.knob(knob_id) is not None)
    variables = environment.get("variables")
    if isinstance(variables, Mapping):
        yield _("Environment variables"), " ".join(f"{name}={value}" for name, value in variables.items())
    secrets = environment.get("secrets")
    if isinstance(secrets, list):
        yield _("Secrets, by name"), " ".join(map(str, secrets))


def _source(tree: Mapping[str, Any]) -> SourceRow:
    untracked = tree.get("untracked")
    return SourceRow(
        name=str(tree.get("name", "")),
        folder=str(tree.get("folder", "")),
        commit=str(tree.get("commit", "")),
        remote=str(tree.get("remote", "")),
        diff=str(tree.get("diff", "")),
        is_cut=bool(tree.get("is_cut")),
        untracked=tuple(map(str, untracked)) if isinstance(untracked, list) else (),
    )


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
