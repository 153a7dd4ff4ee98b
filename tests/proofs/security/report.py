"""docs/proofs/security.md: what was asked and tried on which console, and what stopped it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PARTS = ("matrix", "generated", "attacks")
PAGE = Path(__file__).resolve().parents[3] / "docs" / "proofs" / "security.md"
_HEAD = """# Security, attacked

Written by `make proof-security` (`tests/proofs/security/`). *embedded* is `manage.py up` with its own Ray; *compose*
the commands of `docker-compose.yml` with PostgreSQL and Valkey and two web processes; *elsewhere* a console with Ray
on two other machines (namespaces of the kernel).
"""


def write(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the page. `results`: topology -> part -> what was found, as `__main__` keeps it."""
    bad = misses(results)
    lines = [
        _HEAD,
        f"{len(bad)} of all that is below did not hold." if bad else "All that is below held.",
        "",
        "| console | " + " | ".join(PARTS) + " |",
        "|---|" + "---|" * len(PARTS),
        *(f"| {name} | {_cells([_when(parts, part) for part in PARTS])} |" for name, parts in results.items()),
        "",
        "What is generated are so many valid and as many invalid requests of each operation of the OpenAPI document.",
        "",
        "## Roles × routes × projects",
        "",
        "| console | requests | by status | wrong |",
        "|---|---|---|---|",
    ]
    for name, parts in results.items():
        if found := parts.get("matrix"):
            lines.append(f"| {name} | {_total(found)} | {_statuses(found)} | {len(found['wrong'])} |")
    lines += _listed(results, "matrix", "wrong")
    lines += ["", "## Generated requests", ""]
    lines += ["| console | as | operations | requests | 2xx | 4xx | 5xx |", "|---|---|---|---|---|---|---|"]
    for name, parts in results.items():
        for role, found in parts.get("generated", {}).items():
            counts = [_of_class(found, kind) for kind in (2, 4, 5)]
            lines.append(f"| {name} | {role} | {found['operations']} | {_total(found)} | {_cells(counts)} |")
    lines += ["", "## Attacks", "", "| finding | attack | console | tried | stopped by |", "|---|---|---|---|---|"]
    for name, parts in results.items():
        for found in parts.get("attacks", ()):
            held = _short(found["stopped_by"]) if found["is_stopped"] else f"**not stopped**: {_short(found['got'])}"
            lines.append(f"| {found['finding']} | {found['name']} | {name} | {_short(found['tried'])} | {held} |")
    PAGE.write_text("\n".join(lines) + "\n")


def misses(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return everything that did not hold, a line each."""
    lines = []
    for name, parts in results.items():
        lines += [f"{name}: {line}" for line in parts.get("matrix", {}).get("wrong", ())]
        for role, found in parts.get("generated", {}).items():
            lines += [f"{name} as {role}: {line}" for line in found["errors"]]
        lines += [
            f"{name}: {found['finding']} {found['name']}: {found['got'] or 'nothing stopped it'}"
            for found in parts.get("attacks", ())
            if not found["is_stopped"]
        ]
    return lines


def _when(found: Mapping[str, Any], part: str) -> str:
    return str(found.get("when", {}).get(part, "**not done**"))


def _listed(results: Mapping[str, Mapping[str, Any]], part: str, what: str) -> list[str]:
    wrong = [f"- {name}: {line}" for name, parts in results.items() for line in parts.get(part, {}).get(what, ())]
    return ["", *wrong[:50]] if wrong else []


def _total(found: Mapping[str, Any]) -> int:
    return sum(found["by_status"].values())


def _of_class(found: Mapping[str, Any], kind: int) -> int:
    return sum(count for status, count in found["by_status"].items() if int(status) // 100 == kind)


def _statuses(found: Mapping[str, Any]) -> str:
    return ", ".join(f"{count} × {status}" for status, count in sorted(found["by_status"].items()))


def _cells(values: Sequence[object]) -> str:
    return " | ".join(str(value) for value in values)


def _short(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 120 else text[:119] + "…"
