"""verl's part of docs/proofs/conformance.md."""

import time

from jobs.adapters.verl.keys import keys_of
from jobs.catalog.algorithm import is_in
from jobs.catalog.spec.runspec import RunSpec
from tests.conformance.report import Part, refused_table, table
from tests.conformance.specs import coverage
from tests.conformance.verl_checks import (
    CHECKED,
    VERSIONS,
    differences,
    knobs_of,
    recipes_of,
    refusals,
    specs_of,
    verdicts,
)
from tests.conformance.verl_rejected import rejected, starts
from tests.conformance.verl_specs import reachable
from tests.journeys.environments import make_environment

INTRODUCTION = """\
The commands are composed by Hydra itself from verl's own config folder, out of the wheels that
`requirements/frameworks.txt` pins by hash; nothing of verl is imported for that. Accepted means: Hydra takes every
word, no mandatory value is missing, and every value arrives with the value and the type that was meant. Read back
means: the spec that the adapter reads from the command is the spec the command was written from. Every key that the
catalogue names stands in the composed config with the default that the catalogue says it has (`test_verl_keys.py`)."""

BEYOND = """\
Hydra refuses unknown keys and nothing else, so verl's own checks are run too, in an environment that has verl
(`make trainer-env TRAINER=verl`): `validate_config`, the dataclasses, the constructor of the trainer and its resource
pools, the policy loss and the rollout correction on four tokens, and those asserts of the workers that read the config
alone. They say yes to {starts} specs and {recipes} recipes; of the following specs they say no."""


def report(number: int) -> Part:
    """Run `number` specs per version, every recipe and every rejection."""
    make_environment("verl")  # what the last table runs in: what may fail, fails first
    failures: list[str] = []
    rows = [_version(version, number, failures) for version in VERSIONS]
    for name, spec in recipes_of().items():
        failures += [f"recipe {name}: {why}" for why in (*refusals(spec, from_files=True), *differences(spec))]
    head = ("version", "keys", "of them knobs", "specs", "accepted", "read back", "ms per command")
    covered = _covered(number, failures)
    recipes = f"All {len(recipes_of())} recipes for verl are accepted and read back."
    text = f"{INTRODUCTION}\n\n{table(head, rows)}\n\n{covered} {recipes}\n\n{refused(failures)}"
    return Part(title="verl", text=text, failures=tuple(failures))


def _version(version: str, number: int, failures: list[str]) -> tuple[object, ...]:
    accepted = read = 0
    seconds = 0.0
    for place, spec in enumerate(specs_of(version, number)):
        begin = time.perf_counter()
        wrong = refusals(spec, from_files=True)
        seconds += time.perf_counter() - begin
        different = differences(spec)
        accepted += not wrong
        read += not different
        failures += [f"verl {version}, spec {place} ({spec.algorithm}): {why}" for why in (*wrong, *different)]
    keys = {*keys_of("main_ppo", version), *keys_of("sft_trainer", version)}
    named = {
        name.lstrip("+")
        for knob in knobs_of(version).values()
        for algorithm in knob.algorithms
        if (flag := knob.flag(trainer="verl", version=version, algorithm=algorithm))
        for name in flag.names
    }
    return version, len(keys), len(named & keys), number, accepted, read, f"{seconds * 1e3 / max(number, 1):.0f}"


def _covered(number: int, failures: list[str]) -> str:
    """Return in words how many knobs the specs set, and note those that were set too seldom."""
    lines = []
    for version in VERSIONS:
        seen, knobs = coverage(specs_of(version, number)), knobs_of(version)
        few = {k: seen.get(k, 0) for k, knob in knobs.items() if seen.get(k, 0) < reachable(knob)}
        two = sum(seen.get(k, 0) >= 2 for k in knobs)
        failures += [f"verl {version}: {k} was set to {n} values that are not its default" for k, n in few.items()]
        lines.append(
            f"The specs of {version} set {len(knobs) - len(few)} of {len(knobs)} knobs to every value that coverage "
            f"asks for: {two} to two values or more that are not the default, {len(knobs) - two - len(few)} that have "
            "only one other (switches) to that one."
        )
    return " ".join(lines)


def refused(failures: list[str]) -> str:
    """Return the table of what verl refuses, and how much of it we refuse too; note where verl says otherwise."""
    valid, broken = list(starts(CHECKED)), list(rejected(CHECKED))
    recipes = {name: spec for name, spec in recipes_of().items() if is_checked(spec)}
    said = verdicts([*valid, *recipes.values(), *(each.spec for each in broken)])
    names = [f"{spec.algorithm}, unbroken" for spec in valid] + [f"recipe {name}" for name in recipes]
    for name, answer in zip(names, said, strict=False):
        if not answer["accepted"]:
            failures.append(f"{name}: verl says {answer['kind']}: {answer['text']}")
    for each, answer in zip(broken, said[len(names) :], strict=True):
        what = f"{answer['kind']}: {answer['text']}"
        if answer["accepted"] or each.says not in what:
            failures.append(f"{each.rule} for {each.spec.algorithm}: verl does not say {each.says!r} but {what!r}")
    text = BEYOND.format(starts=len(valid), recipes=len(recipes))
    return f"{text}\n\n" + refused_table(broken)


def is_checked(spec: RunSpec) -> bool:
    """Return True if verl's checks can be run here: LoRA asks vLLM's package, Megatron has one of its own."""
    lora = spec.knobs.get("lora.rank")
    is_plain = spec.trainer.version == CHECKED and is_in(spec.algorithm, "rl")
    return is_plain and not (lora is not None and lora.value) and spec.knob("parallel.engine") == "fsdp"
