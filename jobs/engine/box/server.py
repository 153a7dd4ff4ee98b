"""A bare interpreter that forks a box for each piece of code: `python -s -S -m jobs.engine.box.server LIMITS`.

LIMITS is the JSON of a `RunLimits`. It writes {"lacks": ...} when it is up, or {"problem": ...} where this system
cannot box anything. Then JSON lines come on stdin, {"number", "code", "asserts": [[is a case, source], ...]} or
{"number", "code", "cases": [[input, output], ...]}, and each is answered by {"number", "passed": [case numbers],
"timed_out"}.

What code in a box prints, and how it ends, says nothing. Of asserts a case has passed where the box says so with a key
that was made for this run; what is printed is compared here, outside of the box.
"""

import gc
import json
import math
import os
import re
import secrets
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from jobs.box.confine import confine, ends_with_parent, read_only_own_library
from jobs.box.seccomp import NotConfined

PATIENCE = 3
"""Times its CPU time that code may take by the clock: for what sleeps, and for what waits for a busy machine."""
MOST_TOLD_BYTES = 1 << 20
_SHORTEST_SECONDS = 0.02  # between two looks at a process
_CPU_CLOCK = 2  # with a process number, its CPU time: clock_getcpuclockid(3)
_READ_BYTES = 1 << 16
_FILE = "solution.py"


class RunLimits(TypedDict):
    """What a piece of code may use, over all its cases: `cpu_seconds`, by the clock three times as long."""

    cpu_seconds: int
    memory_bytes: int
    output_bytes: int
    folder: str


class _Job:
    """A piece of code and its cases: one process for all asserts, one after the other for what is printed."""

    def __init__(self, request: dict[str, Any], limits: RunLimits, nowhere: int) -> None:
        self.number: int = request["number"]
        self._code: str = request["code"]
        self._asserts: Sequence[tuple[bool, str]] = request.get("asserts", ())
        self._cases: Sequence[tuple[str, str]] = request.get("cases", ())
        self._limits, self._nowhere = limits, nowhere
        self._cpu_left = float(limits["cpu_seconds"])
        self._deadline = time.monotonic() + PATIENCE * limits["cpu_seconds"]
        self.look_at = math.inf
        self.passed: list[int] = []
        self.timed_out = False
        self._next = 0
        self.pipe = self._pid = self._printed = -1
        self._said = b""
        self._key = ""

    def start(self) -> bool:
        """Fork the next process; False where there is nothing left to run, or no time."""
        if self._next == (len(self._cases) or 1) or self.timed_out:
            return False
        self._said, self._key = b"", secrets.token_hex(16)
        stdin, self._printed = _unnamed_file(), _unnamed_file()
        if self._cases:
            _write_all(stdin, self._cases[self._next][0].encode(errors="surrogateescape"))
            os.lseek(stdin, 0, os.SEEK_SET)
        self.pipe, verdicts = os.pipe()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                ends_with_parent(parent)
                self._in_box(stdin, verdicts)
            finally:
                os._exit(1)
        os.close(stdin)
        os.close(verdicts)
        self.look_at = min(time.monotonic() + self._cpu_left, self._deadline)
        return True

    def look(self) -> bool:
        """Return whether its time is up; else the next look is when it can be at the earliest."""
        now, left = time.monotonic(), self._cpu_left - time.clock_gettime(~self._pid << 3 | _CPU_CLOCK)
        self.timed_out = left <= 0 or now >= self._deadline
        self.look_at = min(now + max(left, _SHORTEST_SECONDS), self._deadline)
        return self.timed_out

    def read(self) -> bool:
        """Take what the box tells; False once it tells no more, or too much."""
        chunk = os.read(self.pipe, _READ_BYTES)
        self._said += chunk
        return bool(chunk) and len(self._said) < MOST_TOLD_BYTES

    def end(self) -> None:
        """Kill what is left of the process, and keep what came of it."""
        os.close(self.pipe)
        os.kill(self._pid, signal.SIGKILL)
        _, status, used = os.wait4(self._pid, 0)
        self._cpu_left -= used.ru_utime + used.ru_stime
        printed = os.pread(self._printed, self._limits["output_bytes"], 0).decode(errors="replace")
        os.close(self._printed)
        if not self._cases:
            self._keep_verdicts()
        elif status == 0 and _lines(printed) == _lines(self._cases[self._next][1]):
            self.passed.append(self._next)
        self._next += 1

    def _keep_verdicts(self) -> None:
        for line in self._said.decode(errors="replace").splitlines():
            key, _, number = line.partition(" ")
            if secrets.compare_digest(key.encode(), self._key.encode()) and re.fullmatch("[0-9]{1,9}", number):
                self.passed.append(int(number))

    def _in_box(self, stdin: int, verdicts: int) -> None:
        """Be the box: never returns."""
        os.dup2(stdin, 0)
        os.dup2(self._printed if self._cases else self._nowhere, 1)
        os.dup2(self._nowhere, 2)
        confine(
            memory_bytes=self._limits["memory_bytes"],
            cpu_seconds=2 * self._limits["cpu_seconds"] + 1,  # the server is more exact: the kernel counts ticks here
            output_bytes=self._limits["output_bytes"],
            keep=[verdicts],
        )
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        if self._cases:
            self._print()
        else:
            self._assert(verdicts)
        os._exit(0)

    def _print(self) -> None:
        """Run the program to its end."""
        try:
            exec(compile(self._code, _FILE, "exec"), {"__name__": "__main__"})  # noqa: S102  the purpose of the box
        except SystemExit as ended:
            if ended.code not in (None, 0):
                os._exit(1)
        sys.stdout.flush()

    def _assert(self, verdicts: int, write: Callable[[int, bytes], int] = os.write) -> None:
        """Run the code, then its tests, and tell of each case that has passed."""
        space: dict[str, Any] = {"__name__": "solution"}
        exec(compile(self._code, _FILE, "exec"), space)  # noqa: S102
        number = 0
        for is_case, source in self._asserts:
            try:
                exec(compile(source, "tests.py", "exec"), space)  # noqa: S102
            except BaseException:  # of any kind: the case has failed
                number += is_case
                continue
            if is_case:
                write(verdicts, f"{self._key} {number}\n".encode())
                number += 1


def _lines(text: str) -> list[str]:
    """Return the lines that are compared: white space at their ends, and empty lines at the end, do not count."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _unnamed_file() -> int:
    """Return an open file without a name: in memory, or in this folder where memory is no place for files."""
    try:
        return os.memfd_create("box")
    except PermissionError:
        return os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)


def _has_memory_files() -> bool:
    """Return whether files can be made in memory, as they cannot in a trial: there nobody counts them."""
    try:
        os.close(os.memfd_create("box"))
    except PermissionError:
        return False
    return True


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _problem() -> str:
    """Try the box once; return why it cannot be closed here, "" where it can."""
    reading, verdicts = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            confine(memory_bytes=1 << 30, cpu_seconds=5, output_bytes=0, keep=[verdicts])
            os.write(verdicts, b"closed")
        except (NotConfined, OSError, ValueError) as error:
            os.write(verdicts, str(error).encode())
        finally:
            os._exit(0)
    os.close(verdicts)
    said = os.read(reading, _READ_BYTES).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    return "" if said == "closed" else said or "the process that tried it was killed"


class Server:
    """The boxes that are open, and who asked for them."""

    def __init__(self, limits: RunLimits, nowhere: int) -> None:
        self._limits, self._nowhere = limits, nowhere
        self._waits = selectors.DefaultSelector()
        self._jobs: set[_Job] = set()
        self._unread = b""

    def serve(self) -> None:
        """Answer until stdin ends; boxes that are open then end with this process."""
        self._waits.register(0, selectors.EVENT_READ, None)
        while True:
            nearest = min((job.look_at for job in self._jobs), default=math.inf)
            left = None if math.isinf(nearest) else max(0.0, nearest - time.monotonic())
            for key, _ in self._waits.select(left):
                if key.data is None:
                    if not self._take():
                        return
                elif not key.data.read():
                    self._ended(key.data)
            now = time.monotonic()
            for job in [job for job in self._jobs if now >= job.look_at and job.look()]:
                self._ended(job)

    def _take(self) -> bool:
        chunk = os.read(0, _READ_BYTES)
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        for line in lines:
            self._go_on(_Job(json.loads(line), self._limits, self._nowhere))
        return bool(chunk)

    def _go_on(self, job: _Job) -> None:
        if job.start():
            self._jobs.add(job)
            self._waits.register(job.pipe, selectors.EVENT_READ, job)
            return
        answer = {"number": job.number, "passed": job.passed, "timed_out": job.timed_out}
        _write_all(1, json.dumps(answer).encode() + b"\n")

    def _ended(self, job: _Job) -> None:
        self._waits.unregister(job.pipe)
        self._jobs.discard(job)
        job.end()
        self._go_on(job)


def main() -> None:
    """Close this process in as far as its children all are, say so, and serve."""
    limits: RunLimits = json.loads(sys.argv[1])
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.chdir(limits["folder"])
    sys.path[:] = [place for place in sys.path if place.startswith(sys.base_prefix)]
    sys.dont_write_bytecode = True
    answer: dict[str, str] = {"lacks": ""}
    try:
        has_memory_files = _has_memory_files()
        read_only_own_library(limits["folder"], write=() if has_memory_files else (limits["folder"],))
    except NotConfined as error:
        answer = {"lacks": str(error)}
    if problem := _problem():
        answer = {"problem": problem}
    _write_all(1, json.dumps(answer).encode() + b"\n")
    if not problem:
        gc.freeze()  # what is here by now need not be copied when a box looks for garbage
        Server(limits, nowhere).serve()


if __name__ == "__main__":
    main()
