"""What a trainer's conformance run found, for docs/proofs/conformance.md."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.conformance.rejected import Rejection


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One trainer's part of the report: its text in Markdown, and what failed (nothing if all is well)."""

    title: str
    text: str
    failures: tuple[str, ...]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def refused_table(rejections: Iterable[Rejection]) -> str:
    """Return the table of what a trainer refuses, and how much of it is refused here too, at the right field."""
    theirs: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    says: dict[str, str] = {}
    for each in rejections:
        theirs[each.rule] += 1
        ours[each.rule] += each.is_refused_here
        says.setdefault(each.rule, each.says)
    rows = [(rule, says[rule], count, ours[rule]) for rule, count in sorted(theirs.items())]
    rows.append(("all", "", theirs.total(), ours.total()))
    return table(("check", "it says, for one", "specs", "refused here"), rows)
