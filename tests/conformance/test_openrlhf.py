"""OpenRLHF takes what we write, means by it what we mean, and refuses what we think it does: its own code says so."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from jobs.adapters.openrlhf.options import PROGRAMS, algorithms_of, options_of
from jobs.catalog.flag import Flag
from jobs.catalog.knob import Knob, applicable
from jobs.catalog.recipe import recipes
from tests.conformance.openrlhf_checks import differences, errors_of, verdict, wrong_values
from tests.conformance.openrlhf_parsers import Parsers, real_parsers
from tests.conformance.openrlhf_rejected import rejected
from tests.conformance.openrlhf_specs import VERSIONS, reachable, specs_of
from tests.conformance.specs import coverage
from tests.versions import newest_first


@pytest.fixture(scope="module")
def parsers() -> Iterator[Parsers]:
    with real_parsers() as found:
        yield found


def number_of_specs() -> int:
    """Return how many specs per version: `make proof-conformance` asks for more than `make test`."""
    return int(os.environ.get("PITWALL_CONFORMANCE_SPECS", "40"))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_option_of_the_program_is_known_and_no_other(version: str, program: str, parsers: Parsers) -> None:
    assert sorted(options_of(program, version)) == sorted(set(parsers.options(version, program)) - {"-h", "--help"})


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_flag_has_the_programs_own_default_and_takes_what_it_takes(
    version: str, program: str, parsers: Parsers
) -> None:
    options = parsers.options(version, program)
    wrong = []
    for algorithm in algorithms_of(program):
        for knob in applicable(algorithm, "openrlhf", version).values():
            flag = knob.flag(trainer="openrlhf", version=version, algorithm=algorithm)
            assert flag is not None
            for name in flag.names if flag.form != "launcher" else ():
                wrong += [f"{knob.id} {name}: {why}" for why in _disagreement(knob, flag, options[name])]

    assert wrong == []


def _disagreement(knob: Knob, flag: Flag, option: dict[str, Any]) -> Iterator[str]:
    default = option["default"]
    if flag.form in ("switch", "negated") or option["nargs"] == 0:
        if option["nargs"] != 0:
            yield "it takes a value"
        return
    if flag.form in ("first", "second"):
        default = None if default is None else default[flag.form == "second"]
    if flag.form != "correction_type" and not _is_same(flag.default, default):
        yield f"default {flag.default!r} instead of {default!r}"
    if knob.type == "choice" and option["choices"] is not None and flag.form == "value":
        theirs = {str(flag.values.get(choice, choice)) for choice in knob.choices}
        if theirs - set(option["choices"]):
            yield f"it does not take {', '.join(sorted(theirs - set(option['choices'])))}"
        if missing := set(option["choices"]) - theirs:
            yield f"it also takes {', '.join(sorted(missing))}"
    if knob.type == "float" and option["type"] == "int":
        yield "it takes whole numbers"


def _is_same(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return str(ours) == str(theirs)


@pytest.mark.parametrize("version", newest_first(VERSIONS))
def test_the_real_program_takes_every_command_as_it_is_meant_and_it_reads_back_as_the_spec(
    version: str, parsers: Parsers
) -> None:
    for spec in specs_of(version, number_of_specs()):
        found = verdict(parsers, spec)

        assert found.accepted, f"{spec.algorithm}: {found.kind} {found.text}"
        assert found.inexact == ()
        assert wrong_values(parsers, spec, found) == []
        assert differences(spec) == []
        assert errors_of(spec) == []


@pytest.mark.parametrize("recipe", [r for r in recipes() if r.startswith("openrlhf-")])
def test_the_real_program_takes_every_recipe(recipe: str, parsers: Parsers) -> None:
    spec = recipes()[recipe].spec
    found = verdict(parsers, spec)

    assert found.accepted, f"{found.kind} {found.text}"
    assert found.inexact == ()
    assert wrong_values(parsers, spec, found) == []
    assert differences(spec) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_specs_set_every_knob(version: str, record_property: Callable[[str, object], None]) -> None:
    number = number_of_specs()
    seen = coverage(specs_of(version, number))
    knobs = {
        k: knob for p in PROGRAMS for a in algorithms_of(p) for k, knob in applicable(a, "openrlhf", version).items()
    }
    never = [k for k in knobs if not seen[k]]
    seldom = [k for k, knob in knobs.items() if seen[k] < reachable(knob)]

    text = f"OpenRLHF {version}: {number} specs set {len(knobs) - len(never)} of {len(knobs)} knobs, "
    text += f"{len(knobs) - len(seldom)} to two values that are not the default (a switch has one)"
    print(text)
    record_property("coverage", text)

    if number >= 500:
        assert seldom == []


def test_what_openrlhf_itself_refuses_is_refused_here_at_the_right_field(parsers: Parsers) -> None:
    step = 1 if number_of_specs() >= 500 else 5
    counts: Counter[str] = Counter()

    for each in islice(rejected(), 0, None, step):
        found = verdict(parsers, each.spec)
        counts[each.rule] += 1

        assert not found.accepted, f"{each.rule} {each.spec.trainer.version} {each.spec.algorithm}"
        assert each.says in found.text
        assert each.is_refused_here, f"{each.rule} {each.spec.trainer.version} {each.spec.algorithm}: {each.fields}"

    assert counts.total() >= 120
    assert len(counts) >= 19
