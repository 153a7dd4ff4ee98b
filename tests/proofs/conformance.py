"""`make proof-conformance`: commands held against the other trainers' own code at length; writes the report.

Each trainer's part is a module of tests/conformance with `report(number) -> Part`.
"""

import importlib
import os
import sys
import time
from pathlib import Path

from tests.conformance.report import Part

REPORT = Path(__file__).resolve().parents[2] / "docs" / "proofs" / "conformance.md"
PARTS = ("openrlhf_report", "verl_report")
NUMBER = 500


def main() -> int:
    """Run every part and write the report; return the exit code."""
    number = int(os.environ.get("PITWALL_CONFORMANCE_SPECS", str(NUMBER)))
    parts: list[Part] = []
    begin = time.monotonic()
    for name in PARTS:
        print(f"=== {name}", flush=True)
        parts.append(importlib.import_module(f"tests.conformance.{name}").report(number))
        for failure in parts[-1].failures[:20]:
            print(failure)
    lines = ["# Commands for other trainers, held against their own code", ""]
    lines += [f"Written by `make proof-conformance`: {number} random valid specs per trainer and version.", ""]
    for part in parts:
        result = f"{len(part.failures)} failures." if part.failures else "No failures."
        lines += [f"## {part.title}", "", part.text, "", result, ""]
    REPORT.write_text("\n".join(lines), encoding="utf-8")
    failed = sum(len(part.failures) for part in parts)
    print(f"=== {failed} failures in {time.monotonic() - begin:.0f} s; {REPORT.name} is written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
