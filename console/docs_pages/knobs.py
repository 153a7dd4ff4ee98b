"""The tables of docs/reference/knobs.md, which `make docs` writes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from console.docs_pages.doc_page import table_row
from jobs.catalog.algorithm import algorithms, is_in
from jobs.catalog.knob import Knob, applicable, knobs
from jobs.catalog.trainer import BUILT_IN, TrainerInfo, trainers
from jobs.catalog.value import Value

_HEAD = ["| knob | takes | default | option | what it does |", "|---|---|---|---|---|"]


def knob_tables() -> str:
    """Return one Markdown table per group; defaults and options are those of each trainer's newest version."""
    parts = []
    for group, members in groupby(knobs().values(), key=lambda knob: knob.group):
        parts.append("\n".join([f"## `{group}`", "", *_HEAD, *(_row(knob) for knob in members)]))
    return "\n\n".join(parts)


def _row(knob: Knob) -> str:
    marks = " **essential**" * knob.is_essential + " **privileged**" * knob.is_privileged
    takes = f"{knob.allowed()} ({knob.unit})" if knob.unit else knob.allowed()
    cells = [
        f"`{knob.id}`{marks}<br>{knob.label}",
        takes,
        "<br>".join(_defaults(knob)),
        "<br>".join(_options(knob)),
        f"{knob.help}{_needs(knob)}",
    ]
    return table_row(cells)


def _places(knob: Knob) -> Iterator[tuple[TrainerInfo, str, list[str]]]:
    """Yield trainer, newest version that has the knob, and the algorithms it is there for."""
    for trainer in trainers().values():
        for version in trainer.versions:
            here = [a for a in trainer.algorithms if knob.id in applicable(a, trainer.id, version)]
            if here:
                yield trainer, version, here
                break


def _defaults(knob: Knob) -> list[str]:
    lines = []
    for trainer, version, here in _places(knob):
        values = {a: _text_of(knob.default_for(a, trainer.id, version)) for a in here}
        lines.append(f"{trainer.label}: {_by_value(values)}")
        on_gpu = {a: _text_of(knob.default_for(a, trainer.id, version, "cuda")) for a in here}
        if on_gpu != values:
            lines.append(f"{trainer.label}, on GPU: {_by_value(on_gpu)}")
    return [lines[0].partition(": ")[2]] if len(lines) == 1 else lines


def _options(knob: Knob) -> list[str]:
    lines = []
    for trainer, version, here in _places(knob):
        if trainer.id == BUILT_IN:
            continue
        names = {}
        for algorithm in here:
            flag = knob.flag(trainer=trainer.id, version=version, algorithm=algorithm)
            assert flag is not None
            names[algorithm] = f"`{flag.name}`" + (f" and {len(flag.names) - 1} more" if len(flag.names) > 1 else "")
        until = f" up to {version}" if version != trainer.versions[0] else ""
        lines.append(f"{trainer.label}{until}: {_by_value(names)}")
    return lines


def _by_value(values: Mapping[str, str]) -> str:
    """Say several algorithms' values: the value where it is one, else each with whose it is."""
    whose: defaultdict[str, list[str]] = defaultdict(list)
    for algorithm, value in values.items():
        whose[value].append(algorithm)
    if len(whose) == 1:
        return next(iter(whose))
    return ", ".join(f"{value} ({_names(members)})" for value, members in whose.items())


def _names(members: Iterable[str]) -> str:
    listed = list(members)
    rl = [algorithm for algorithm in algorithms() if is_in(algorithm, "rl")]
    if len(missing := [algorithm for algorithm in rl if algorithm not in listed]) <= 2 and set(listed) & set(rl):
        rest = [algorithms()[algorithm].label for algorithm in listed if algorithm not in rl]
        without = f" but {' and '.join(algorithms()[algorithm].label for algorithm in missing)}" if missing else ""
        return ", ".join([f"RL{without}", *rest])
    return ", ".join(algorithms()[algorithm].label for algorithm in listed)


def _needs(knob: Knob) -> str:
    sentences = []
    for need in knob.needs:
        what = f"above {need.above:g}" if need.above is not None else " or ".join(_text_of(v) for v in need.values)
        sentences.append(f"`{need.knob}` {what}")
    return f" *Needs {', '.join(sentences)}.*" if sentences else ""


def _text_of(value: Value) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return value.replace("\n", "\\n") or "empty"
    return f"{value:,.10g}" if isinstance(value, int) else f"{value:g}"
