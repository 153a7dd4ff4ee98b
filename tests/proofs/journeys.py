"""`make proof-journeys`: journeys through a whole console, and visits of all its pages, that `make test` leaves out.

They are marked `proof`. What each of them promises has a cheaper test in `make test` (docs/develop/tests.md).
Arguments: words of pytest's `-k`. The exit code is pytest's. Writes docs/proofs/journeys.md.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "proofs" / "journeys.md"
FOLDERS = ("tests/journeys", "tests/console")
HEAD = """# Journeys, in full

Written by `make proof-journeys` on {day}: journeys in Chromium through a whole console with Ray, vLLM, DeepSpeed,
and a visit of every page, which `make test` leaves out. Seconds are of this run, on two cores.

| journey | result | s |
| --- | --- | ---: |
"""


def row(case: ElementTree.Element) -> str:
    """Return the line of one journey."""
    ends = {part.tag for part in case} & {"failure", "error", "skipped"}
    title = str(case.get("name")).partition("[")[0].removeprefix("test_").replace("_", " ")
    return f"| {title} | {', '.join(sorted(ends)) or 'passed'} | {float(case.get('time', 0)):.0f} |"


def main(words: Sequence[str]) -> int:
    """Run them and, unless only some were asked for, write the report; return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "journeys.xml"
        chosen = ["-k", " or ".join(words)] if words else []
        command = [sys.executable, "-m", "pytest", *FOLDERS, "-m", "proof", f"--junitxml={results}", *chosen]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        cases = list(ElementTree.parse(results).iter("testcase"))
    if not words:
        head = HEAD.format(day=datetime.now(UTC).date())
        REPORT.write_text(head + "\n".join(map(row, cases)) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
