"""What a trainer's conformance run found, for docs/proofs/conformance.md."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


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
