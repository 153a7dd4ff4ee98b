"""OpenRLHF's part of docs/proofs/conformance.md."""

import time
from collections.abc import Mapping

from jobs.adapters.openrlhf.options import PROGRAMS, algorithms_of, not_offered, options_of
from jobs.catalog.knob import applicable
from jobs.catalog.recipe import recipes
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.openrlhf_checks import differences, errors_of, verdict, wrong_values
from tests.conformance.openrlhf_parsers import RELEASES, Parsers, real_parsers
from tests.conformance.openrlhf_rejected import rejected
from tests.conformance.openrlhf_specs import VERSIONS, reachable, specs_of
from tests.conformance.report import Part, refused_table, table
from tests.conformance.specs import coverage

INTRODUCTION = """\
The commands are run through OpenRLHF's own `cli/train_*.py`, executed as `__main__` out of the wheels that
`requirements/frameworks.txt` pins by hash, with stubs for what is not in the standard library. `train()` of
`train_ppo_ray` runs too, for its checks of the placement; then the constructors of OpenRLHF's strategy and loss, the
check of its penalties, its distribution of scoring batches, and DeepSpeed's division of the batch, each cut out of the
real source. Accepted means: nothing of this objects, every option stands in the parser under its exact name, every
value arrives as it was meant, every option that was not written has the value that the catalogue says it has, and the
GPUs that `train()` asks Ray for are as many as the run is shown to need. Read back means: the spec that the adapter
reads from the command is the spec the command was written from. Refused here are specs that Pitwall's own rules call
an error although OpenRLHF takes them."""


def report(number: int) -> Part:
    """Run `number` specs per version and every rejection."""
    failures: list[str] = []
    specs: list[RunSpec] = []
    with real_parsers() as parsers:
        versions = [_version(version, number, parsers, specs, failures) for version in VERSIONS]
        refused = _refused(parsers, failures)
        kept = _recipes(parsers, failures)
    covered, few = _covered(specs)
    failures += [f"{knob} was set to {count} values that are not its default" for knob, count in few.items()]
    head = (
        "version",
        "wheel",
        "options",
        "of them knobs",
        "specs",
        "accepted",
        "read back",
        "refused here",
        "ms per command",
    )
    text = f"{INTRODUCTION}\n\n{table(head, versions)}\n\n{kept}\n\n{covered}\n\n{refused}"
    return Part(title="OpenRLHF", text=text, failures=tuple(failures))


def _version(
    version: str, number: int, parsers: Parsers, specs: list[RunSpec], failures: list[str]
) -> tuple[object, ...]:
    drawn = specs_of(version, number)
    specs += drawn
    accepted = read = false = 0
    seconds = 0.0
    for place, spec in enumerate(drawn):
        begin = time.perf_counter()
        found = verdict(parsers, spec)
        seconds += time.perf_counter() - begin
        wrong = [found.text] if not found.accepted else wrong_values(parsers, spec, found)
        wrong += [f"{word} is no whole option" for word in found.inexact]
        accepted += not wrong
        different = differences(spec)
        read += not different
        alarms = errors_of(spec)
        false += bool(alarms)
        wrong += different + alarms
        failures += [f"OpenRLHF {version}, spec {place} ({spec.algorithm}): {why}" for why in wrong]
    options = set().union(*(options_of(program, version) for program in PROGRAMS))
    named = {
        name
        for program in PROGRAMS
        for algorithm in algorithms_of(program)
        for knob in applicable(algorithm, "openrlhf", version).values()
        if (flag := knob.flag(trainer="openrlhf", version=version, algorithm=algorithm)) and flag.form != "launcher"
        for name in flag.names
    }
    wheel, milliseconds = f"openrlhf {RELEASES[version]}", f"{seconds * 1e3 / max(number, 1):.1f}"
    return version, wheel, len(options), len(named), number, accepted, read, false, milliseconds


def _recipes(parsers: Parsers, failures: list[str]) -> str:
    names = [name for name, recipe in recipes().items() if recipe.spec.trainer.name == "openrlhf"]
    for name in names:
        spec = recipes()[name].spec
        found = verdict(parsers, spec)
        wrong = wrong_values(parsers, spec, found) + differences(spec) if found.accepted else [found.text]
        failures += [f"Recipe {name}: {why}" for why in wrong]
    return f"The {len(names)} recipes for OpenRLHF were held against it in the same way: {', '.join(names)}."


def _covered(specs: list[RunSpec]) -> tuple[str, Mapping[str, int]]:
    """Return the coverage in words, and the knobs that were set too seldom."""
    knobs = {
        knob_id: knob
        for version in VERSIONS
        for program in PROGRAMS
        for algorithm in algorithms_of(program)
        for knob_id, knob in applicable(algorithm, "openrlhf", version).items()
    }
    seen = coverage(specs)
    few = {k: seen[k] for k, knob in knobs.items() if seen[k] < reachable(knob)}
    two = sum(seen[k] >= 2 for k in knobs)
    text = (
        f"Together the specs set all but {len(few)} of the {len(knobs)} knobs to every value that coverage asks for: "
        f"{two} to two values or more that are not the default, {len(knobs) - two - len(few)} that have only one other "
        "(switches) to that one."
    )
    left_out = sorted({name for program in PROGRAMS for v in VERSIONS for name in not_offered(program, v)})
    return (
        f"{text} Options of at least one program that are not offered, each with its reason: {', '.join(left_out)}.",
        few,
    )


def _refused(parsers: Parsers, failures: list[str]) -> str:
    """Return the table of what OpenRLHF refuses, and how much of it we refuse too, at the right field."""
    for each in rejected():
        found = verdict(parsers, each.spec)
        if found.accepted or each.says not in found.text:
            where = f"{each.rule} in {each.spec.trainer.version} for {each.spec.algorithm}"
            failures.append(f"{where}: OpenRLHF does not say {each.says!r} but {found.text!r}")
        if not each.is_refused_here:
            failures.append(f"{each.rule} in {each.spec.trainer.version} for {each.spec.algorithm} is not refused here")
    return (
        "Specs that OpenRLHF's own code refuses, and how many of them Pitwall refuses at the right field:\n\n"
        + refused_table(rejected())
    )
