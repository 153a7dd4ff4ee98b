"""What `make test` runs: every check, then the tests; one line sums it all up.

The tests run in parts. In two processes: what needs little of the machine, and, a file's tests together, what starts an
engine or processes of its own, and what opens pages of a console that lives in the test's process. Then one after the
other whole consoles, each of which takes two cores by itself. Those with a browser are apart, as Playwright's loop and
asyncio tests do not share a process.
"""

import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
REPORTS = ROOT / "build" / "test-reports"  # pytest-playwright empties test-results
CHECKS = {
    "ruff": [BIN / "ruff", "check", "."],
    "format": [BIN / "ruff", "format", "--check", "."],
    "types": [BIN / "mypy"],
    "imports": [BIN / "lint-imports", "--no-logo"],
    "django": [sys.executable, "manage.py", "check"],
    "migrations": [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
}
BUSY = "(engine or ray or processes)"
BY_FILE = ["-n", "2", "--dist", "loadfile"]
PARTS = {
    "light": ["-m", f"not journey and not browser and not {BUSY}", "-n", "2"],
    "engine": ["-m", f"not journey and not browser and {BUSY}", *BY_FILE],
    "pages": ["-m", "not journey and browser", *BY_FILE],
    "consoles": ["-m", "journey and not browser"],
    "journeys": ["-m", "journey and browser"],
}
NO_TESTS_COLLECTED = 5  # pytest's exit code


@dataclass(slots=True)
class Tally:
    """How many of what."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, report: Path) -> None:
        """Add the counts of a JUnit report; one that is not there is a failure."""
        if not report.exists():
            self.failed += 1
            return
        for suite in ElementTree.parse(report).iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            self.failed += failed
            self.skipped += skipped
            self.passed += int(suite.get("tests", 0)) - failed - skipped
            self.failures += [in_short(case, how) for case in suite.iter("testcase") for how in case if is_failure(how)]


def is_failure(part: ElementTree.Element) -> bool:
    """Whether a part of a test's report says that it failed."""
    return part.tag in ("failure", "error")


def in_short(case: ElementTree.Element, how: ElementTree.Element) -> str:
    """Which test failed, what it said and where, in the few lines that are left of a long log."""
    lines = (how.text or "").splitlines()
    said = [line for line in lines if line.startswith("E ")][:3]
    name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')} ({how.tag})"
    return "\n".join(line[:300] for line in [name, *said, *lines[-1:]])


def run(title: str, command: list[str | Path]) -> int:
    """Run a step, say how long it took, return its exit code."""
    print(f"\n=== {title}", flush=True)
    begin = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"=== {title}: {'ok' if code == 0 else f'exit code {code}'} in {time.monotonic() - begin:.0f} s", flush=True)
    return code


def main() -> int:
    """Run everything, even after a failure; return the exit code."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    broken = []
    for title, command in CHECKS.items():
        if run(title, command):
            broken.append(title)
    for title, chosen in PARTS.items():
        report = REPORTS / f"{title}.xml"
        report.unlink(missing_ok=True)
        pytest = [
            sys.executable,
            "-m",
            "pytest",
            *chosen,
            f"--junitxml={report}",
            "--durations=15",
        ]
        code = run(title, [*pytest, *sys.argv[1:]])
        if code == NO_TESTS_COLLECTED:
            continue
        before = tally.failed
        tally.add(report)
        if code and tally.failed == before:
            broken.append(title)
    tally.failed += len(broken)
    if broken:
        print(f"\nFailed outside of tests: {', '.join(broken)}")
    if os.environ.get("REQUIRE_ALL"):
        print("REQUIRE_ALL is set: a skip of Chromium, PostgreSQL, gettext or nsys counts as failed.")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    for failure in tally.failures:  # last: of a long log the end is what everybody is shown
        print(failure)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
