"""Make the tables of docs/use/diagnosis.md: `python -m console.docs_pages.diagnosis docs/use/diagnosis.md`."""

import sys
from pathlib import Path

from console.docs_pages.doc_page import put_between, table_row
from profiling.finding import QUESTIONS, Rule, amount, rules

BEGIN = "<!-- diagnosis: made from profiling/diagnosis, do not edit -->"
END = "<!-- end of diagnosis -->"


def rule_tables() -> str:
    """Return one Markdown table per question: rule, number, threshold, what it needs, what to change."""
    parts = []
    for question, title in QUESTIONS.items():
        rows = [_row(key, rule) for key, rule in rules().items() if rule.question == question]
        head = ["| rule | number | fires, bad | from | what to change |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"### {title}", "", *head, *rows]))
    return "\n\n".join(parts)


def write(page: Path) -> None:
    """Put the tables into the page between their marks. Raises: ValueError if a mark is missing."""
    put_between(page, BEGIN, END, rule_tables())


def _row(key: str, rule: Rule) -> str:
    sign = "<" if rule.is_low_bad else ">"
    limits = f"{sign} {amount(rule.watch, rule.unit)}, {sign} {amount(rule.bad, rule.unit)}"
    live = ", live" if rule.is_live else ""
    knobs = f" `{'` `'.join(turn.knob for turn in rule.turns)}`" if rule.turns else ""
    needs = ", ".join(rule.needs).replace("_", " ")
    return table_row(
        [
            f"{rule.title}<br>`{key}`",
            f"{rule.definition} *{rule.source}*",
            limits,
            needs + live,
            f"{rule.advice}{knobs}",
        ]
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
