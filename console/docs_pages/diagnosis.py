"""The tables of docs/reference/diagnosis.md, which `make docs` writes."""

from console.docs_pages.doc_page import table_row
from profiling.diagnosis.finding import QUESTIONS, Rule, amount, rules


def rule_tables() -> str:
    """Return one Markdown table per question: rule, number, threshold, what it needs, what to change."""
    parts = []
    for question, title in QUESTIONS.items():
        rows = [_row(key, rule) for key, rule in rules().items() if rule.question == question]
        head = ["| rule | number | fires, bad | from | what to change |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"### {title}", "", *head, *rows]))
    return "\n\n".join(parts)


def _row(key: str, rule: Rule) -> str:
    sign = "<" if rule.is_low_bad else ">"
    limits = f"{sign} {amount(rule.watch, rule.unit)}, {sign} {amount(rule.bad, rule.unit)}"
    live = ", live" if rule.is_live else ""
    knobs = f" `{'` `'.join(change.knob for change in rule.changes)}`" if rule.changes else ""
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
