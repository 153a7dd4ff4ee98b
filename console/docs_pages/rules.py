"""The tables of docs/reference/rules.md, which `make docs` writes."""

from itertools import groupby

from console.docs_pages.doc_page import table_row
from jobs.catalog.algorithm import algorithms
from jobs.catalog.rules.rule import SpecRule, rules
from jobs.catalog.trainer import trainers


def rule_tables() -> str:
    """Return one Markdown table per group: rule, whom it concerns, what it says, why, and its source."""
    parts = []
    for group, members in groupby(rules().values(), key=lambda rule: rule.id.partition(".")[0]):
        rows = [_row(rule) for rule in members]
        parts.append("\n".join([f"### `{group}`", "", "| rule | says | why, source |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _row(rule: SpecRule) -> str:
    name = rule.id.partition(".")[2]
    count = len(rule.fixes)
    offers = f" {count} {'change' if count == 1 else 'changes'} on offer." if count else ""
    cells = [
        f"`{name}`<br>**{rule.level}**, {rule.kind}<br>{_whom(rule)}",
        f"{rule.message}{offers}",
        f"{rule.why} *{rule.source}* ({rule.ref})",
    ]
    return table_row(cells)


def _whom(rule: SpecRule) -> str:
    """Say in words whom a rule concerns."""
    names = [trainers()[name].label for name in rule.trainers or trainers()]
    since = f" from {rule.since}" if rule.since else ""
    before = f" before {rule.before}" if rule.before else ""
    everything = not rule.algorithms or len(rule.algorithms) == len(algorithms())
    which = "" if everything else f": {', '.join(algorithms()[name].label for name in rule.algorithms)}"
    return f"{', '.join(names)}{since}{before}{which}"
