"""The processes of a trainer that knows nothing of Pitwall, as far as they can be recorded (profiling.attach).

They are those on this node: requests and answers are files.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import profiling.attach
from profiling.attach import messages
from profiling.config import TOOLS, Device

FOLDER = "attach"
VARIABLE = "PITWALL_ATTACH_DIR"
RAY_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""What Ray gives a job's driver: the runtime environment that its workers get, as JSON."""
_PATH = "PYTHONPATH"
_START = Path(next(iter(profiling.attach.__path__))) / "start"
NO_NSYS = "nsys records only processes that it starts, and these are started by {label}. Use torch, or stacks."
LATE_FOR_NSYS = (
    "nsys records only processes that it starts, and {label} was started without it. Ask for it at the launch, or use "
    "torch, or stacks."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachableWorker:
    """A process that can be recorded: `name` is its role and rank (policy-0), `problems` are by tool, "" for ready."""

    pid: int
    role: str
    rank: int
    node: str
    device: Device
    problems: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its role and rank."""
        return f"{self.role}-{self.rank}"


def attach_environment(environ: Mapping[str, str], run_dir: Path) -> dict[str, str]:
    """Return the environment with what has each Python of the trainer look for requests, its Ray workers among them.

    A container image has paths of its own, so workers in one are left as they are.
    """
    own = {VARIABLE: str(run_dir / FOLDER), _PATH: str(_START)}
    merged = {**environ, **own}
    if environ.get(_PATH):
        merged[_PATH] = f"{own[_PATH]}{os.pathsep}{environ[_PATH]}"
    try:
        job = json.loads(environ.get(RAY_JOB) or "{}")
        runtime = job.setdefault("runtime_env", {})
        if RAY_JOB in environ and "image_uri" not in runtime:
            variables = runtime.setdefault("env_vars", {})
            before = variables.get(_PATH)
            variables |= own | ({_PATH: f"{own[_PATH]}{os.pathsep}{before}"} if before else {})
            merged[RAY_JOB] = json.dumps(job)
    except (ValueError, TypeError, AttributeError):
        pass  # another Ray writes it otherwise: its workers cannot be recorded then
    return merged


class AttachableWorkers:
    """Everybody who has said that he is there. `role_of` names the role of a Ray actor's class.

    `no_nsys` says why nsys records none of them, "" where they were started so that it may.
    """

    def __init__(self, run_dir: Path, *, role_of: Callable[[str], str], no_nsys: str) -> None:
        self._folder, self._role_of, self._no_nsys = run_dir / FOLDER, role_of, no_nsys
        self._folder.mkdir(exist_ok=True)
        self._numbers: Counter[int] = Counter()

    def there(self) -> dict[str, AttachableWorker]:
        """Return the processes that live, by name; ranks are counted anew where several processes claim the same."""
        said = [message for path in self._folder.glob("*.worker.json") if (message := messages.read(path)) is not None]
        by_role: dict[str, list[tuple[int, int, Mapping[str, Any]]]] = {}
        for message in said:
            try:
                pid, rank, role = int(message["pid"]), int(message["rank"]), self._role_of(str(message["actor"]))
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            if role and _lives(pid):
                by_role.setdefault(role, []).append((rank, pid, message))
        by_name = {}
        for role, members in by_role.items():
            members.sort(key=lambda member: member[:2])
            is_clear = len({rank for rank, _, _ in members}) == len(members)
            for number, (rank, pid, message) in enumerate(members):
                worker = AttachableWorker(
                    pid=pid,
                    role=role,
                    rank=rank if is_clear else number,
                    node=str(message.get("node", "")),
                    device="cuda" if message.get("device") == "cuda" else "cpu",
                    problems=self._problems(message),
                )
                by_name[worker.name] = worker
        return by_name

    def ask(self, worker: AttachableWorker, verb: messages.Verb, **what: Any) -> int:
        """Ask a process for something; return the number under which it will answer. Raises: OSError."""
        self._numbers[worker.pid] += 1
        number = self._numbers[worker.pid]
        message = {"number": number, "verb": verb, "runner": os.getpid(), **what}
        messages.write(messages.ask_path(self._folder, worker.pid), message)
        return number

    def answer(self, worker: AttachableWorker, number: int) -> Mapping[str, Any] | None:
        """Return the answer to that request; None as long as there is none."""
        message = messages.read(messages.told_path(self._folder, worker.pid))
        return message if message is not None and message.get("number") == number else None

    def is_there(self, worker: AttachableWorker) -> bool:
        """Return True while the process lives."""
        return _lives(worker.pid)

    def _problems(self, message: Mapping[str, Any]) -> dict[str, str]:
        reported = message.get("problems")
        problems = {str(tool): str(why) for tool, why in reported.items()} if isinstance(reported, Mapping) else {}
        by_tool = {tool: problems.get(tool, "This worker has not told.") for tool in TOOLS}
        return by_tool | ({"nsys": self._no_nsys} if self._no_nsys else {})


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):  # a number that no process has
        return False
