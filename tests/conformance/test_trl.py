"""TRL takes what we write and means by it what we mean: its own parsers and configurations say so."""

import json
import os
from collections.abc import Iterator

import pytest

from jobs.adapters.trl.options import PER_NODE, SCRIPTS, TRAINER, defaults_of, knob_options
from jobs.catalog.knob import knob_flags
from jobs.catalog.recipe import recipes
from tests.conformance.specs import coverage
from tests.conformance.trl_checks import TrlParsers, differences, errors_of, is_same, objections, refusal
from tests.conformance.trl_rejected import rejected
from tests.conformance.trl_specs import VERSIONS, reachable, specs_of
from tests.conformance.write_trl_options import text_of
from tests.versions import newest_first

NUMBER = int(os.environ.get("PITWALL_CONFORMANCE_SPECS", "48"))


@pytest.fixture(scope="module", params=newest_first(VERSIONS))
def parsers(request: pytest.FixtureRequest) -> Iterator[TrlParsers]:
    running = TrlParsers(request.param)
    yield running
    running.close()


@pytest.mark.proof
def test_the_known_options_are_those_of_the_wheel(parsers: TrlParsers) -> None:
    tables = {script: defaults_of(algorithm, parsers.version) for algorithm, script in SCRIPTS.items()}

    assert json.dumps(tables, indent=1, sort_keys=True) + "\n" == text_of(parsers.options)


@pytest.mark.parametrize("algorithm", SCRIPTS)
def test_every_flag_has_the_scripts_own_default_and_takes_what_it_takes(algorithm: str, parsers: TrlParsers) -> None:
    options = parsers.options[SCRIPTS[algorithm]]
    wrong = []
    for knob, flag in knob_flags(algorithm, TRAINER, parsers.version).values():
        for name in flag.names if flag.form != "launcher" else ():
            option = options[name]
            if flag.default is not None and not is_same(option["default"], flag.default):
                wrong.append(f"{knob.id} {name}: {flag.default} instead of {option['default']}")
            for choice in knob.choices if flag.form == "value" and option["choices"] is not None else ():
                if flag.values.get(choice, choice) not in option["choices"]:
                    wrong.append(f"{knob.id} {name}: {choice} is no choice")
    assert wrong == []


def test_the_real_program_takes_every_command_as_it_is_meant_and_it_reads_back_as_the_spec(
    parsers: TrlParsers,
) -> None:
    for spec in specs_of(parsers.version, NUMBER):
        assert objections(parsers, spec) == []
        assert errors_of(spec) == []
        assert differences(spec) == []


@pytest.mark.parametrize("recipe", [name for name in recipes() if name.startswith("trl-")])
def test_the_real_program_takes_every_recipe(recipe: str, parsers: TrlParsers) -> None:
    assert objections(parsers, recipes()[recipe].spec) == []


def test_what_trl_itself_refuses_is_refused_here_at_the_right_field(parsers: TrlParsers) -> None:
    for each in rejected(parsers.version):
        assert each.says in refusal(parsers, each.spec), each.rule
        assert each.is_refused_here, each.rule


@pytest.mark.parametrize("version", VERSIONS)
def test_the_specs_set_every_knob(version: str) -> None:
    seen = coverage(specs_of(version, max(NUMBER, 120)))
    knobs = {knob.id: knob for name in SCRIPTS for knob, _ in knob_flags(name, TRAINER, version).values()}

    assert [k for k, knob in knobs.items() if not seen[k] and reachable(knob)] == []
    assert set(PER_NODE) & {name for p in SCRIPTS for name in knob_options(p, version)} == set()
