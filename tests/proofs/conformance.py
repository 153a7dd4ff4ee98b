"""`make proof-conformance`: commands held against the other trainers' own code at length; writes the report.

Arguments: any of `openrlhf`, `verl`, `trl`; nothing for all. What one of them found stays in build/proofs/, for the
report. Each trainer's part is a module of tests/conformance with `report(number) -> Part`.
"""

import dataclasses
import importlib
import json
import os
import sys
import time
from pathlib import Path

from tests.conformance.report import Part

HOUSE = Path(__file__).resolve().parents[2]
REPORT = HOUSE / "docs" / "proofs" / "conformance.md"
RESULTS = HOUSE / "build" / "proofs"
TRAINERS = ("openrlhf", "verl", "trl")
NUMBER = 500


def main() -> int:
    """Run the parts that are asked for and write the report; return the exit code."""
    number = int(os.environ.get("PITWALL_CONFORMANCE_SPECS", str(NUMBER)))
    os.environ["PITWALL_CONFORMANCE_SPECS"] = str(number)
    failed = 0
    for trainer in sys.argv[1:] or TRAINERS:
        begin = time.monotonic()
        print(f"=== {trainer}", flush=True)
        part: Part = importlib.import_module(f"tests.conformance.{trainer}_report").report(number)
        keep(trainer, part)
        for failure in part.failures[:20]:
            print(failure)
        print(f"=== {trainer}: {len(part.failures)} failures in {time.monotonic() - begin:.0f} s", flush=True)
        failed += len(part.failures)
    write()
    return 1 if failed else 0


def keep(trainer: str, part: Part) -> None:
    """Keep what was found."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"conformance-{trainer}.json").write_text(json.dumps(dataclasses.asdict(part)), encoding="utf-8")


def write() -> None:
    """Write the report of all that is kept."""
    lines = [
        "# Commands for other trainers, held against their own code",
        "",
        "Written by `make proof-conformance`.",
        "",
    ]
    for trainer in TRAINERS:
        file = RESULTS / f"conformance-{trainer}.json"
        if not file.exists():
            continue
        part = Part(**json.loads(file.read_text(encoding="utf-8")))
        lines += [f"## {part.title}", "", part.text, ""]
        lines += [f"{len(part.failures)} failures:", ""] if part.failures else ["No failures.", ""]
        lines += [f"- {failure}" for failure in part.failures[:40]] + [""] * bool(part.failures)
    REPORT.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
