"""What `make test` runs: every check beside the tests; one line sums it all up. `--fast` leaves out what starts much.

The tests run in parts, side by side in two lanes: what starts an engine or processes of its own; and single pages,
journeys through whole consoles in a browser, apart from the others, as Playwright's loop and asyncio tests do not share
a process, and whole consoles without one. Each part is one process: a second would start an engine, a cluster or a
console of its own, and import all again. All of them wait now and then: the checks and what needs little of the
machine, in two processes, take what they leave, at the lowest priority, and the rest of the time alone.

How long each test took is left in build/test-durations.json; one above 20 s says why (`@pytest.mark.slow("...")`).
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from tests.parts import BUSY, HALVES, files_of
from tests.warm_workers.workers import SERVER, warm_server

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
REPORTS = ROOT / "build" / "test-reports"  # pytest-playwright empties test-results
CHECKS: dict[str, list[str | Path]] = {
    "ruff": [BIN / "ruff", "check", "."],
    "format": [BIN / "ruff", "format", "--check", "."],
    "templates": [BIN / "djangofmt", "--check", "templates"],
    "template rules": [BIN / "djangofmt", "check", "templates"],
    "scripts": ["npm", "run", "--silent", "lint"],
    "types of scripts": ["npm", "run", "--silent", "types"],
    "tests of scripts": ["npm", "run", "--silent", "test"],
    "types": [BIN / "mypy"],
    "imports": [BIN / "lint-imports", "--no-logo"],
    "django and migrations": [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
}
NODE_PACKAGES = ROOT / "node_modules" / ".package-lock.json"
IS_BUSY = f"({' or '.join(BUSY)})"
PARTS = {
    **{half: ["-m", f"not proof and not journey and not browser and not {IS_BUSY}"] for half in HALVES},
    "engine": ["-m", f"not proof and not journey and not browser and {IS_BUSY}"],
    "pages": ["-m", "not proof and not journey and browser"],
    "consoles": ["-m", "not proof and journey and not browser"],
    "journeys": ["-m", "not proof and journey and browser"],
}
Lane = Sequence[str]  # parts that run one after the other
Group = Sequence[Lane]  # side by side, in lanes that take about as long as each other
LIGHT: Group = tuple((half,) for half in HALVES)
HEAVY: Sequence[Group] = ((("engine",), ("pages", "journeys", "consoles")),)
# Modules are compiled once, though the environment may say otherwise: each part would write its assertions anew.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT["RAY_worker_niceness"] = "0"  # else the workers of runs come after all that waits for them
DURATIONS = ROOT / "build" / "test-durations.json"
SLOW_SECONDS = 20.0
NICE = 19  # the least that the kernel knows
NO_TESTS_COLLECTED = 5  # pytest's exit code


@dataclass(slots=True)
class Tally:
    """How many of what."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)  # what failed outside of tests

    def add(self, other: "Tally") -> None:
        """Add what another has counted."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.broken += other.broken

    def read(self, report: Path) -> None:
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


def busy_seconds() -> float:
    """Return how long all cores of the machine have worked since it started, in seconds of one core."""
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    idle, waiting = int(ticks[3]), int(ticks[4])
    return (sum(map(int, ticks)) - idle - waiting) / os.sysconf("SC_CLK_TCK")


class Background:
    """Processes that take what others leave of the processors; they end with this one."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []
        self._is_over = False

    def run(self, command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """As subprocess.run, in a session of its own: the kernel shares processors between sessions first."""
        if self._is_over:
            return subprocess.CompletedProcess(command, -signal.SIGTERM, "")
        with subprocess.Popen(command, start_new_session=True, text=True, **options) as process:
            self._processes.append(process)
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))  # behind Ray's nice workers, too
            with contextlib.suppress(OSError):  # only where the kernel groups processes by session
                Path(f"/proc/{process.pid}/autogroup").write_text(str(NICE))
            output, _ = process.communicate()
            return subprocess.CompletedProcess(process.args, process.returncode, output)

    def end(self) -> None:
        """End what still runs, with all that it started in its session, and start nothing more."""
        self._is_over = True
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)


class Part:
    """A part of the tests; what it prints is in a file at once, and comes at its end: others run beside it."""

    def __init__(self, title: str, arguments: list[str], *, behind: "Background | None") -> None:
        self.title = title
        self._behind = behind
        self.report = REPORTS / f"{title}.xml"
        self.code = 0
        self._command: list[str | Path] = [
            sys.executable,
            "-m",
            "pytest",
            *files_of(title),
            *PARTS[title],
        ]
        if title not in HALVES:
            self._command += ["-p", "no:schemathesis"]  # half a second of each process, for a test of the light ones
        # The old kind of report, because it keeps what a test records.
        self._command += [f"--junitxml={self.report}", "-o", "junit_family=xunit1", "--durations=15", *arguments]
        self._log = REPORTS / f"{title}.log"

    def run(self) -> None:
        """Run it, and say how long it took and how busy the machine was."""
        begin, busy = time.monotonic(), busy_seconds()
        # Threads of torch that spin for tiny tensors take from the processes beside.
        environment = ENVIRONMENT | ({"OMP_NUM_THREADS": "1"} if self.title in HALVES else {})
        run = self._behind.run if self._behind else subprocess.run
        print(f"=== {self.title}: begun, {self._log.relative_to(ROOT)}", flush=True)
        with self._log.open("wb") as log:
            self.code = run(self._command, cwd=ROOT, env=environment, stdout=log, stderr=log).returncode
        seconds = time.monotonic() - begin
        cores = (busy_seconds() - busy) / seconds
        end = "ok" if self.code == 0 else f"exit code {self.code}"
        took = f"{end} in {seconds:.0f} s, {cores:.1f} of {os.cpu_count()} cores busy"
        print(f"\n=== {self.title}\n{self._log.read_text(errors='replace')}=== {self.title}: {took}", flush=True)


class Checks(threading.Thread):
    """The checks, one after the other, while the first tests run; told when they are done."""

    def __init__(self, behind: Background) -> None:
        super().__init__()
        self._behind = behind
        self.broken: list[str] = []
        self._output: list[str] = []

    def run(self) -> None:
        """Run them all, even after one that fails."""
        for title, command in CHECKS.items():
            if command[0] == "npm" and not (NODE_PACKAGES.exists() and shutil.which("npm")):
                self._output.append(f"=== {title}: left out, Node.js or npm's packages are missing (make install-dev)")
                if os.environ.get("REQUIRE_ALL"):
                    self.broken.append(title)
                continue
            begin = time.monotonic()
            done = self._behind.run(
                command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            end = "ok" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout}"
            self._output.append(f"=== {title}: {end} in {time.monotonic() - begin:.0f} s")
            if done.returncode:
                self.broken.append(title)

    def tell(self) -> list[str]:
        """Wait for them, print how they ended, return those that failed."""
        self.join()
        print("\n" + "\n".join(self._output), flush=True)
        return self.broken


def slow_without_reason() -> list[str]:
    """Write how long each test took, the longest first; return those above 20 s that do not say why.

    Light tests are left out of the latter: how long they take is a matter of what others leave them.
    """
    durations: dict[str, float] = {}
    reasons: set[str] = set()
    for report in sorted(REPORTS.glob("*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            durations[name] = round(float(case.get("time", 0)), 2)
            if report.stem in HALVES or any(each.get("name") == "slow" for each in case.iter("property")):
                reasons.add(name)
    longest_first = sorted(durations.items(), key=lambda item: -item[1])
    DURATIONS.write_text(json.dumps(dict(longest_first), indent=1) + "\n")
    return [f"{name} ({s:.0f} s)" for name, s in longest_first if s > SLOW_SECONDS and name not in reasons]


def run_parts(groups: Sequence[Group], arguments: list[str], *, behind: Background | None = None) -> Tally:
    """Run groups one after the other, the lanes of a group side by side; return how they ended."""
    tally = Tally()
    for lanes in groups:
        parts = [[Part(title, arguments, behind=behind) for title in lane] for lane in lanes]
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(_run_in_turn, parts))
        for part in chain.from_iterable(parts):
            if part.code == NO_TESTS_COLLECTED:
                continue
            before = tally.failed
            tally.read(part.report)
            if part.code and tally.failed == before:
                tally.broken.append(part.title)
    return tally


def _run_in_turn(parts: Sequence[Part]) -> None:
    for part in parts:
        part.run()


def main() -> int:
    """Run everything, even after a failure; return the exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--fast"]
    begin = time.monotonic()
    REPORTS.mkdir(parents=True, exist_ok=True)
    for old in REPORTS.glob("*.xml"):
        old.unlink()
    behind = Background()
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(behind.end)
        checks = Checks(behind)
        checks.start()
        if "--fast" in sys.argv:
            tally = run_parts((LIGHT,), arguments)
        else:
            ENVIRONMENT[SERVER] = stack.enter_context(warm_server(ENVIRONMENT))
            light = pool.submit(run_parts, (LIGHT,), arguments, behind=behind)
            tally = run_parts(HEAVY, arguments)
            tally.add(light.result())
        tally.broken += checks.tell()
    tally.failed += len(tally.broken)
    if slow := slow_without_reason():
        print(f"\nAbove {SLOW_SECONDS:.0f} s without a reason (pytest.mark.slow):", *slow, sep="\n  ")
    if tally.broken:
        print(f"\nFailed outside of tests: {', '.join(tally.broken)}")
    if os.environ.get("REQUIRE_ALL"):
        print("REQUIRE_ALL is set: a skip of Chromium, PostgreSQL, gettext, nsys or Node.js counts as failed.")
    print(f"All of it in {(time.monotonic() - begin) / 60:.1f} min.")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    for failure in tally.failures:  # last: of a long log the end is what everybody is shown
        print(failure)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
