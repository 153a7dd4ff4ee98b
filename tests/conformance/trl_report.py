"""TRL's part of docs/proofs/conformance.md."""

import time

from jobs.adapters.trl.options import SCRIPTS, TRAINER, defaults_of, knob_options, why_not
from jobs.catalog.knob import knob_flags
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.report import Part, refused_table, table
from tests.conformance.specs import coverage
from tests.conformance.trl_checks import TrlParsers, differences, errors_of, objections, refusal
from tests.conformance.trl_rejected import rejected
from tests.conformance.trl_specs import VERSIONS, reachable, specs_of

INTRODUCTION = """\
The commands are parsed by TRL's own `scripts/sft.py`, `dpo.py`, `kto.py`, `reward.py`, `grpo.py` and `rloo.py`, out of
the wheels that `requirements/frameworks.txt` pins by hash, beside the Transformers that is installed: their dataclasses
check themselves as they do before a run, on one process and on CPU. Not asked are DeepSpeed's configuration, which has
to be a file, and what TRL says only once it has a model or data. Accepted means: nothing of this objects, every value
arrives as it was meant, and every option that was not written has TRL's default. Read back means: the spec that the
adapter reads from the command is the spec the command was written from. Refused here are specs that Pitwall's own
rules call an error although TRL takes them."""


def report(number: int) -> Part:
    """Run twice `number` specs per version, every recipe and every rejection; fewer leave a value of a knob out."""
    failures: list[str] = []
    texts, rows = [], []
    for version in VERSIONS:
        parsers = TrlParsers(version)
        try:
            specs = specs_of(version, 2 * number)
            rows.append(_version(version, specs, parsers, failures))
            texts += [_covered(version, specs, failures), _recipes(version, parsers, failures)]
            texts.append(_refused(version, parsers, failures))
        finally:
            parsers.close()
    head = (
        "version",
        "options",
        "of them knobs",
        "specs",
        "accepted",
        "read back",
        "refused here",
        "ms per command",
    )
    return Part(title="TRL", text="\n\n".join([INTRODUCTION, table(head, rows), *texts]), failures=tuple(failures))


def _version(version: str, specs: list[RunSpec], parsers: TrlParsers, failures: list[str]) -> tuple[object, ...]:
    tables = parsers.options  # whose first use waits for imports
    options = set().union(*tables.values())
    accepted = read = false = 0
    seconds = 0.0
    for place, spec in enumerate(specs):
        begin = time.perf_counter()
        wrong = objections(parsers, spec)
        seconds += time.perf_counter() - begin
        different, alarms = differences(spec), errors_of(spec)
        accepted += not wrong
        read += not different
        false += bool(alarms)
        why = (*wrong, *different, *alarms)
        failures += [f"TRL {version}, spec {place} ({spec.algorithm}): {each}" for each in why]
    named = set().union(*(knob_options(algorithm, version) for algorithm in SCRIPTS))
    milliseconds = f"{seconds * 1e3 / max(len(specs), 1):.1f}"
    return version, len(options), len(named & options), len(specs), accepted, read, false, milliseconds


def _covered(version: str, specs: list[RunSpec], failures: list[str]) -> str:
    """Return the coverage in words, and note knobs that were set too seldom."""
    knobs = {knob_id: knob for name in SCRIPTS for knob_id, (knob, _) in knob_flags(name, TRAINER, version).items()}
    seen = coverage(specs)
    few = {k: seen[k] for k, knob in knobs.items() if seen[k] < reachable(knob)}
    failures += [f"TRL {version}: {k} was set to {n} values that are not its default" for k, n in few.items()]
    two = sum(seen[k] >= 2 for k in knobs)
    told = {
        name
        for algorithm in SCRIPTS
        for name in defaults_of(algorithm, version)
        if name not in knob_options(algorithm, version) and why_not(name) != why_not("")
    }
    return (
        f"The specs of {version} set {len(knobs) - len(few)} of {len(knobs)} knobs to every value that coverage asks "
        f"for: {two} to two values or more that are not the default, {len(knobs) - two - len(few)} that have only one "
        f"other to that one. Options that are nobody's, each with a reason of its own: {', '.join(sorted(told))}."
    )


def _recipes(version: str, parsers: TrlParsers, failures: list[str]) -> str:
    specs = {name: recipe.spec for name, recipe in recipes().items()}
    kept = {n: s for n, s in specs.items() if s.trainer.name == "trl" and s.trainer.version == version}
    for name, spec in kept.items():
        failures += [f"Recipe {name}: {why}" for why in (*objections(parsers, spec), *differences(spec))]
    return f"The {len(kept)} recipes for TRL were held against it in the same way: {', '.join(kept)}."


def _refused(version: str, parsers: TrlParsers, failures: list[str]) -> str:
    """Return the table of what TRL refuses, and how much of it we refuse too, at the right field."""
    for each in rejected(version):
        said = refusal(parsers, each.spec)
        if each.says not in said:
            failures.append(f"{each.rule} in {version}: TRL does not say {each.says!r} but {said!r}")
        if not each.is_refused_here:
            failures.append(f"{each.rule} in {version} is not refused here")
    return (
        "Specs that TRL's own configuration refuses, and how many of them Pitwall refuses at the right field:\n\n"
        + refused_table(rejected(version))
    )
