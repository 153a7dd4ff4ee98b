"""What every rule of configurations promises: one suite for each table of jobs/catalog/rules/*.toml.

Each has an example in `rule_examples.toml`.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jobs.catalog.knob import knobs
from jobs.catalog.rules.expression import parse_expression
from jobs.catalog.rules.rule import KINDS, LEVELS, SpecFinding, changed, findings, rules
from jobs.catalog.spec.derived import DERIVED
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import SECTIONS, RunSpec, to_json

EXAMPLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("rule_examples.toml").read_text(encoding="utf-8")
)
FIELDS = {f"{section}.{field}" for section, cls in SECTIONS.items() for field in cls.model_fields}
NAMES = set(knobs()) | set(DERIVED) | set(RunSpec.model_fields) | FIELDS
REFERENCE = re.compile(r"(R-neg|[A-Z]{1,2}\d{1,2}|guide \d+\.\d+)")

each_rule = pytest.mark.parametrize("rule_id", rules())


def example(rule_id: str) -> RunSpec:
    """Return the run in which a rule finds something."""
    return run_of({key: value for key, value in EXAMPLES[rule_id].items() if key != "clear"})


def run_of(table: Mapping[str, Any]) -> RunSpec:
    given = dict(table)
    trainer = {"name": given.pop("trainer"), "version": given.pop("version", "")}
    return parse_spec({**given, "trainer": trainer})


def errors(found: Iterable[SpecFinding]) -> set[str]:
    return {finding.rule for finding in found if finding.level == "error"}


def test_every_rule_has_an_example_and_every_example_a_rule() -> None:
    assert set(EXAMPLES) == set(rules())


@each_rule
def test_it_has_all_its_parts(rule_id: str) -> None:
    rule = rules()[rule_id]

    assert rule.level in LEVELS
    assert rule.kind in KINDS
    assert rule.source
    assert rule.knobs
    assert rule.message.endswith(".")
    assert rule.why.endswith(".")
    assert [part for part in rule.ref.split(", ") if not REFERENCE.fullmatch(part)] == []


@each_rule
def test_it_names_knobs_and_fields_that_exist(rule_id: str) -> None:
    rule = rules()[rule_id]
    templates = re.findall(r"\{([^{}]+)\}", rule.message + rule.why)
    read = [rule.when, *map(parse_expression, templates), *(value for fix in rule.fixes for value in fix.values())]

    assert {name for expression in read for name in expression.names} <= NAMES
    assert {*rule.knobs, *(name for fix in rule.fixes for name in fix)} <= set(knobs()) | FIELDS | {"algorithm"}


@each_rule
def test_it_finds_its_example_and_each_change_on_offer_mends_it(rule_id: str) -> None:
    spec = example(rule_id)

    before = findings(spec)

    finding = next(each for each in before if each.rule == rule_id)
    assert "—" not in finding.message + finding.why, "a value is missing in the sentence"
    assert "{" not in finding.message.replace("{}", "") + finding.why
    assert finding.knobs
    assert bool(finding.fixes) == bool(rules()[rule_id].fixes)
    for place, fix in enumerate(finding.fixes):
        now = findings(parse_spec(to_json(changed(spec, fix.changes))))
        assert rule_id not in {other.rule for other in now}, fix
        assert place or errors(now) <= errors(before), f"{fix} brings {errors(now) - errors(before)}"


@pytest.mark.parametrize("rule_id", [rule.id for rule in rules().values() if not rule.fixes])
def test_without_a_change_on_offer_it_still_finds_nothing_in_another_run(rule_id: str) -> None:
    table = EXAMPLES[rule_id]
    named = {key: table[key] for key in ("trainer", "version", "algorithm") if key in table}
    spec = run_of({**named, "knobs": table.get("clear", {})})

    assert rules()[rule_id].concerns(spec)
    assert rule_id not in {finding.rule for finding in findings(spec)}
