"""OpenRLHF's real parsers, one process each, started when first asked."""

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.unpacked_wheels import unpacked

SCRIPT = Path(__file__).with_name("real_parser.py")
RELEASES = {"0.11.2": "0.11.2", "0.10.2": "0.10.2", "0.10.1": "0.10.1.post2", "0.8.6": "0.8.6"}
"""The wheel that speaks for each version of the catalogue."""

Pair = tuple[str, str]  # version, program


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the real program made of a command: see `real_parser.RealParser.run`."""

    accepted: bool
    kind: str
    text: str
    inexact: tuple[str, ...]
    parsed: dict[str, Any]
    gpus: int


@dataclass(slots=True)
class Parsers:
    """The real parsers by version and program."""

    processes: dict[Pair, subprocess.Popen[str]] = field(default_factory=dict)
    known: dict[Pair, dict[str, Any]] = field(default_factory=dict)

    def options(self, version: str, program: str) -> dict[str, Any]:
        """Return every option by name: dest, default, type, choices, number of values."""
        self._process(version, program)
        return self.known[version, program]

    def run(self, version: str, program: str, words: Sequence[str], *, processes: int = 1) -> Verdict:
        """Return what the program makes of the words when its launcher starts so many processes."""
        process = self._process(version, program)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"words": list(words), "processes": processes}) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        return Verdict(**answer | {"inexact": tuple(answer["inexact"])})

    def close(self) -> None:
        """End the processes."""
        for process in self.processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=30)
            assert process.stdout is not None
            process.stdout.close()

    def _process(self, version: str, program: str) -> subprocess.Popen[str]:
        if (version, program) not in self.processes:
            folder = unpacked(f"openrlhf-{RELEASES[version]}")
            command = [sys.executable, "-S", str(SCRIPT), str(folder), program, str(_deepspeed())]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            self.processes[version, program] = process
            self.known[version, program] = json.loads(process.stdout.readline())
        return self.processes[version, program]


def _deepspeed() -> Path:
    """Return where DeepSpeed is installed, without importing it."""
    found = importlib.util.find_spec("deepspeed")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@contextlib.contextmanager
def real_parsers() -> Iterator[Parsers]:
    """Give the parsers; their processes end with the block."""
    parsers = Parsers()
    try:
        yield parsers
    finally:
        parsers.close()
