"""`make docs` writes every knob and every rule with what a reader needs of it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from console.docs_pages.__main__ import TABLES, main
from jobs.catalog.knob import knobs
from jobs.catalog.rules.rule import rules
from profiling.diagnosis.finding import rules as diagnosis_rules


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that reads a page as it was built."""
    folder = tmp_path_factory.mktemp("reference")
    main(folder)
    return lambda name: (folder / f"{name}.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of the page's tables, as they read."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_each_knob_has_its_values_unit_default_and_help(page: Callable[[str], str]) -> None:
    by_id = {row[0].split("`")[1]: row for row in rows(page("knobs")) if row[0].startswith("`")}

    assert list(by_id) == list(knobs())
    for knob in knobs().values():
        _name, takes, default, _options, help_text = by_id[knob.id]
        assert knob.unit in takes
        assert default
        assert help_text.startswith(knob.help)


def test_each_rule_has_its_level_what_it_says_why_and_the_source(page: Callable[[str], str]) -> None:
    table = rows(page("rules"))

    for rule in rules().values():
        name = f"`{rule.id.partition('.')[2]}`<br>**{rule.level}**"
        (row,) = (row for row in table if row[0].startswith(name) and row[1].startswith(rule.message))
        assert rule.source in row[2]


def test_each_diagnosis_rule_has_its_thresholds_and_advice(page: Callable[[str], str]) -> None:
    by_key = {row[0].split("`")[1]: row for row in rows(page("diagnosis")) if "`" in row[0]}

    assert set(by_key) == set(diagnosis_rules())
    for key, rule in diagnosis_rules().items():
        _title, definition, limits, needs, change = by_key[key]
        assert definition.startswith(rule.definition)
        assert re.match(r"[<>] ", limits)
        assert needs
        assert rule.advice in change


def test_links_of_a_built_page_lead_to_the_same_files(tmp_path: Path) -> None:
    main(tmp_path / "build")

    for name in TABLES:
        text = (tmp_path / "build" / f"{name}.md").read_text(encoding="utf-8")
        links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
        assert [link for link in links if not (tmp_path / "build" / link).exists()] == []
