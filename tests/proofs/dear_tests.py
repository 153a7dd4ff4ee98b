"""`make proof-tests`: what `make test` leaves out because it takes long, and all of `make test` seldom needs it.

These tests are marked `proof`: journeys through a whole console, axe on every page, runs of the engine and pages whose
promises have cheaper tests in `make test` (docs/develop/tests.md). Arguments: words of pytest's `-k`. The exit code is
that of the part that failed. Writes docs/proofs/dear-tests.md.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.jobs.engine.rank_variants import EVERY_VARIANT

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "proofs" / "dear-tests.md"
PARTS = ("proof and not browser", "proof and browser and not journey", "proof and browser and journey")
NO_TESTS_COLLECTED = 5  # pytest's exit code
HEAD = """# Dear tests

Written by `make proof-tests` on {day}: tests that `make test` leaves out, on the real parts (Ray, DeepSpeed, vLLM,
nsys, PostgreSQL, Chromium). What each file of them promises has cheaper tests there. Seconds are of this run, on two
cores.

| file | test | result | s |
| --- | --- | --- | ---: |
"""


def rows(cases: Iterable[ElementTree.Element]) -> list[str]:
    """Return a line for each test, those with several parameters in one."""
    alike: dict[tuple[str, str], list[ElementTree.Element]] = defaultdict(list)
    for case in cases:
        name = str(case.get("name")).partition("[")[0].removeprefix("test_").replace("_", " ")
        alike[str(case.get("classname")).removeprefix("tests.").replace(".", "/"), name].append(case)
    found = []
    for (file, name), same in sorted(alike.items()):
        ends = {part.tag for case in same for part in case} & {"failure", "error", "skipped"}
        how = ", ".join(sorted(ends)) or "passed"
        seconds = sum(float(case.get("time", 0)) for case in same)
        found.append(f"| {file} | {name}{f' ({len(same)})' if len(same) > 1 else ''} | {how} | {seconds:.0f} |")
    return found


def main(words: Sequence[str]) -> int:
    """Run them and, unless only some were asked for, write the report; return the exit code."""
    code, cases = 0, []
    chosen = ["-k", " or ".join(words)] if words else []
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(PARTS):
            results = Path(folder) / f"{number}.xml"
            command = [sys.executable, "-m", "pytest", "tests", "-m", part, f"--junitxml={results}", *chosen]
            ended = subprocess.run(command, cwd=ROOT, env=os.environ | {EVERY_VARIANT: "1"}, check=False).returncode
            code = code if ended in (0, NO_TESTS_COLLECTED) else ended
            cases += list(ElementTree.parse(results).iter("testcase"))
    if not words:
        head = HEAD.format(day=datetime.now(UTC).date())
        REPORT.write_text(head + "\n".join(rows(cases)) + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
