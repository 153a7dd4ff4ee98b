"""What of other trainers needs a GPU, as the catalog has it: algorithms, engines, rules, recipes."""

import re
from collections.abc import Collection, Iterator

from jobs.catalog.algorithm import algorithms
from jobs.catalog.knob import applicable
from jobs.catalog.recipe import recipes
from jobs.catalog.rules.rule import rules
from jobs.catalog.trainer import BUILT_IN, TrainerInfo, trainers

ENGINES = ("parallel.engine", "rollout.backend")


def needs_gpu_lines(names: Collection[str]) -> list[str]:
    """Return a section of Markdown: what `make proof-trainers` does not run, whose runs are called `names`."""
    lines = [
        "## What cannot run here",
        "",
        "The runs above were made without a GPU. By the catalog the following needs one, or is of a version that is",
        "not installed here; its commands are held against the trainers' own parsers and compositions",
        "(`tests/conformance/`), and nothing of it was trained.",
        "",
    ]
    for info in trainers().values():
        if info.id != BUILT_IN and info.package:
            lines += [f"- **{info.label} {info.versions[0]}**: {'; '.join(_of_trainer(info, names))}."]
    return lines


def _of_trainer(info: TrainerInfo, names: Collection[str]) -> Iterator[str]:
    if info.needs_gpu:
        engines = " and ".join(f"`{knob}` {', '.join(choices)}" for knob, choices in _engines(info).items())
        yield _labels(info.needs_gpu) + (f", and with them {engines}" if engines else "")
    for rule in rules().values():
        is_own = info.id in rule.trainers and rule.holds_at(info.versions[0])
        if is_own and rule.level == "error" and any("hardware.device" in fix for fix in rule.fixes):
            yield re.split("[,.]", rule.message)[0]
    if left := [name for name in info.algorithms if name not in info.needs_gpu and f"{info.id} {name}" not in names]:
        yield f"{_labels(left)} could run, and is not among the runs above"
    if older := info.versions[1:]:
        yield f"of {', '.join(older)} nothing is run here"
    own = [one for one in recipes().values() if one.spec.trainer.name == info.id and one.accelerators]
    yield f"{len(own)} recipes are for GPUs"


def _engines(info: TrainerInfo) -> dict[str, tuple[str, ...]]:
    """Return the engines among which the trainer has a choice in what needs GPUs."""
    here = applicable(info.needs_gpu[0], info.id)
    return {name: here[name].choices for name in ENGINES if name in here}


def _labels(names: Collection[str]) -> str:
    return ", ".join(algorithms()[name].label for name in names)
