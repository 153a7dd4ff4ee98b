"""Name the cause when the trainer dies: from how it ended, what it said of itself, and the last lines of its logs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.catalog.log_line import LOST_GLOO, LOST_NCCL, is_of_profiler, read_line, uncolored
from jobs.catalog.trainer import trainers
from jobs.runner.reporting.append_only import RESERVE_BYTES
from jobs.runner.reporting.trainer_progress import TrainerProgress
from jobs.runner.trainer import Exit
from profiling.counted import counted
from profiling.phases import ROLES

TAIL_BYTES = 64 * 1024
TAIL_LINES = 80  # of each log: what stands further up was survived
FULL_BYTES = RESERVE_BYTES + (1 << 20)  # the runner may have given up its reserve since

_ERROR = re.compile(
    r"^(?!(?:DEBUG|INFO|NOTE|WARN|WARNING|Warning)\b)(?:[\w.]+\.)?"
    r"(?:\w*(?:Error|Exception|Interrupt|Exit|Warning)\w*|[A-Z]\w+)(?:: |$)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Symptom:
    pattern: re.Pattern[str]
    side: str
    text: str  # a sentence after "policy rank 1 ..."
    is_of_others: bool = False  # it is seen where another process has died


def _symptom(pattern: str, side: str, text: str, *, is_of_others: bool = False) -> _Symptom:
    return _Symptom(pattern=re.compile(pattern), side=side, text=text, is_of_others=is_of_others)


_DISK_FULL = "found the disk full{step}. Free space where the run directories are, then launch the run again"

_SAYS_NOTHING = re.compile(r"^\W*$|^Set the environment variable HYDRA_FULL_ERROR")
_FRAMES = re.compile(
    r"^\s*(?:time|host|rank|exitcode|error_file|traceback)\s*: |^\[\d+\]:$|^\s*[=-]{20,}$"
    r"|^(?:Failures|Root Cause \(first observed failure\)):$|^\s*<NO_OTHER_FAILURES>$"
    r"|^\s*(?:frame #\d+:|(?:PC: )?@\s+0x)|^\s*$|^ {4,}\S|^\s*File \"[^\"]+\", line \d|^\s+\d+\. Size: "
)
"""Lines of torchrun's report of dead ranks, of stacks of Python and of native code, and of XLA's list of allocations:
they stand about the error, dozens of each process."""

_SIGNAL_RECEIVED = re.compile(r"^\*\*\* (SIG[A-Z]+) received at time=")
"""What Abseil's handler, which Ray sets, writes before a process ends by a signal; a shell then hides which it was."""

_SIGNAL_TO_TORCHRUN = re.compile(r"\bSignalException: Process \d+ got signal: (?P<number>\d{1,2})\b")
"""What torchrun and accelerate raise of a signal, of which they then end with exit code 1."""

_RANK_ENDED = re.compile(
    r"\bfailed \(exitcode: -(?P<torchrun>\d{1,2})\) local_rank: \d|\bexits with return code = -(?P<deepspeed>\d{1,2})$"
)
"""What torchrun and accelerate, and DeepSpeed's launcher, say of the first rank that a signal ended."""

_OWN_ENDS = frozenset({"SIGKILL", "SIGSEGV", "SIGBUS"})
"""Signals that end a rank for a reason of its own: SIGABRT and SIGTERM also come to those that outlive it."""

_WORKER_REPORT = re.compile(r"^\(raylet[^)]*\) A worker died or was killed while executing a task")
"""Ray's word on a worker without the exception that follows where somebody waits for it: it may have been survived."""

_WRAPS = re.compile(r"^ray\.exceptions\.|See (?:root cause|stack trace) \(?above")
"""An exception that was raised because of another, in another process, which says why."""

_FAILED_AT_START = "error raised in its creation task"
"""Ray's words for an actor whose own code raised while it was made: it did not die, and its exception says why."""

_REPORT_LINES = 4  # of Ray on a dead actor, from its first to the class
_CLASS = re.compile(r"\s*class_name: (?P<name>[\w.<>]{1,200})")
_ACTORS = {part: role for trainer in trainers().values() for part, role in trainer.actors.items()}
"""Roles by part of the name of an actor's class, of all trainers."""

_WORKER_LOST = "lost a worker process{step}: Ray says that it died"

# From the cause to its consequences: what stands higher explains what stands lower.
_SYMPTOMS = (
    _symptom(
        r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|HIP out of memory"
        r"|Ran out of memory in memory space hbm",
        "trainer",
        "ran out of device memory{step}. Lower the micro batch size or the share of memory that vLLM takes",
    ),
    _symptom(
        r"To serve at least one request with the model's max seq len|No available memory for the cache blocks",
        "user",
        "has no room in device memory for the KV cache of one sequence of the greatest length{step}. "
        "Lower that length, or raise the share of memory that vLLM takes",
    ),
    _symptom(
        r"OutOfMemoryError: Task was killed|node running low on memory|ray\.exceptions\.OutOfMemoryError",
        "cluster",
        "was killed by Ray because the node ran low on memory{step}. Use a smaller model or batch, or a larger node",
    ),
    _symptom(
        r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b|\bMemoryError$|RayTaskError\(MemoryError\)"
        r"|Cannot allocate memory|can't allocate memory|std::bad_alloc",
        "trainer",
        "ran out of host memory{step}. Use a smaller model or batch, or a larger node",
    ),
    _symptom(
        r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]|File too large|\[Errno 27\]"
        # torch.save's words for a file that the disk does not take whole
        r"|inline_container\.cc:\d+\] \. (?:unexpected pos|PytorchStreamWriter failed writing)"
        r"|basic_ios::clear: iostream error",
        "cluster",
        _DISK_FULL,
    ),
    _symptom(
        r"ModuleNotFoundError: No module named '(?P<what>[\w.]+)'",
        "cluster",
        "needs the Python module {what}, which is not installed on the cluster",
    ),
    _symptom(
        r"flash_attn(?:_\d)? (?:is not|seems to be not) installed|FlashAttention\d? has been toggled on, but",
        "user",
        "is set to use FlashAttention, which is not installed. Choose another attention, such as eager or sdpa",
    ),
    _symptom(
        r"^\S+\.py: error: (?P<what>.+)$",
        "pitwall",
        "does not take its command line: {what}",
    ),
    _symptom(
        r"(?P<what>Could not override '[^']+'|Key '[^']+' is not in struct|Error in call to target '[^']+')",
        "pitwall",
        "does not take its configuration: {what}",
    ),
    _symptom(
        r"^(?:\w+\.)*(?:OSError|HFValidationError|\w+NotFoundError): (?P<what>(?!\[Errno).{1,150})",
        "user",
        "could not read the model or the data: {what}",
    ),
    _symptom(
        r"Address already in use|EADDRINUSE|\[Errno 98\]",
        "cluster",
        "wanted a network port that is taken. Launch the run again",
    ),
    _symptom(
        r"Could not find any running Ray instance|Failed to connect to GCS|Ray cluster at .* not found",
        "cluster",
        "could not reach the Ray cluster",
    ),
    _symptom(
        r"device-side assert triggered",
        "trainer",
        "gave a kernel of the device{step} an index that it refuses: often a token or label beyond the model's "
        "vocabulary, or a position beyond its length",
    ),
    _symptom(
        LOST_NCCL,
        "cluster",
        "lost its NCCL connection to another rank{step}: a rank died or hangs, or the network between nodes broke",
        is_of_others=True,
    ),
    _symptom(
        LOST_GLOO,
        "cluster",
        "lost its gloo connection to another rank{step}: a rank died or hangs",
        is_of_others=True,
    ),
    _symptom(
        r"ActorDiedError|RayActorError|actor died unexpectedly|ActorUnavailableError|WorkerCrashedError",
        "cluster",
        _WORKER_LOST,
    ),
    _symptom(
        r"NodeDiedError|node .* (?:is dead|died)",
        "cluster",
        "lost a node of the cluster{step}",
    ),
)

_NODE_FULL = "was killed{step} because the node ran out of memory. Use a smaller model or batch, or a larger node"
_SIGNALS = {
    "SIGKILL": ("cluster", "was killed{step} (SIGKILL), from outside or by a limit of its container"),
    "SIGTERM": ("cluster", "was ended from outside{step} (SIGTERM)"),
    "SIGINT": ("cluster", "was interrupted{step} (SIGINT)"),
    "SIGHUP": ("cluster", "was ended from outside{step} (SIGHUP): the terminal that it was started from is gone"),
    "SIGSEGV": ("trainer", "crashed in native code{step} (SIGSEGV)"),
    "SIGABRT": ("trainer", "was aborted by native code{step} (SIGABRT)"),
    "SIGBUS": ("trainer", "crashed in native code{step} (SIGBUS): often a full /dev/shm"),
    "SIGXFSZ": ("cluster", "wrote a file larger than is allowed{step} (SIGXFSZ)"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    role: str
    rank: int
    text: str  # as it is shown
    said: str  # as it is looked at: without what loggers put before it


def exit_cause_of(
    *, ended: Exit, progress: TrainerProgress, run_dir: Path, oom_kills: int, disk_free_bytes: int
) -> dict[str, object]:
    """Return side, role, rank, step, text and log_line (protocol, section 2) of a trainer that failed.

    `oom_kills` is how many processes the kernel ended on this node for want of memory while the trainer ran. What the
    trainer said of itself is trusted; what is missing in it is filled in.
    """
    lines = _lines(progress, run_dir)
    who, side, text, line = _recognize(ended, lines, oom_kills, f" {progress.moment}")
    if disk_free_bytes < FULL_BYTES and "disk full" not in text:  # then not even the traceback was written
        side, text = "cluster", f"the trainer {_DISK_FULL.format(step=f' {progress.moment}')}"
    cause: dict[str, object] = {
        "side": side,
        "role": who.role,
        "rank": who.rank,
        "step": progress.step,
        "text": text,
        "log_line": line[:500],
        "exit_code": ended.code,
    }
    own = {key: value for key, value in progress.cause.items() if value not in ("", None)}
    if oom_kills and own.get("side") == "cluster" and "memory" not in str(own.get("text", "")).lower():
        message = counted(f"the kernel's out-of-memory killer ended {oom_kills} processes on this node")
        own["text"] = f"{own['text']} ({message})"
    return cause | own


def oom_kill_count() -> int:
    """Return how many processes the kernel has ended on this node for want of memory since it started."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _recognize(ended: Exit, lines: Sequence[_Line], oom_kills: int, at: str) -> tuple[_Line, str, str, str]:
    """Return who died, the side, the sentence and the telling line."""
    driver = _Line(role="driver", rank=0, text="", said="")
    last = _last_error(lines)
    log_line = last.text if last else ""
    rank_signal, rank_line = _end_of_rank(lines)
    if oom_kills and "SIGKILL" in (ended.signal_name, rank_signal):
        return driver, "cluster", f"{_name(driver)} {_NODE_FULL.format(step=at)}", log_line
    has_failed_at_start = any(_FAILED_AT_START in line.said for line in lines)
    for symptom in _SYMPTOMS:
        if has_failed_at_start and symptom.text is _WORKER_LOST:
            continue
        if symptom.is_of_others and rank_signal in _OWN_ENDS:
            continue
        for line in reversed(lines):
            if match := symptom.pattern.search(line.said):
                if symptom.text is _WORKER_LOST and (dead := _dead_worker(lines, line)):
                    return dead, symptom.side, f"a process of {dead.said} died{at}: Ray says so", line.text
                text = symptom.text.format(step=at, what=match.groupdict().get("what", ""))
                return line, symptom.side, f"{_name(line)} {text}", line.text
    signal = ended.signal_name
    if last and (sent := _SIGNAL_TO_TORCHRUN.search(last.said)):
        signal = Exit(code=-int(sent["number"])).signal_name
    elif rank_signal and not (last and _ERROR.match(last.said)):
        signal, log_line = rank_signal, rank_line
    elif signal in ("", "SIGABRT") and not (last and _ERROR.match(last.said)):  # the handler itself may abort
        signal = _signal_received(lines) or signal
        report = next((line for line in reversed(lines) if _WORKER_REPORT.match(line.text)), None)
        if not signal and report:
            return report, "cluster", f"{_name(report)} {_WORKER_LOST.format(step=at)}", report.text
    if signal:
        side, text = _SIGNALS.get(signal, ("cluster", f"was ended{{step}} by {signal}"))
        return driver, side, f"{_name(driver)} {text.format(step=at)}", log_line
    who = last or driver
    quote = f": {log_line[:200]}" if log_line else ""
    return who, "trainer", f"{_name(who)} ended with exit code {ended.code}{at}{quote}", log_line


def _dead_worker(lines: Sequence[_Line], report: _Line) -> _Line | None:
    """Return who it is that Ray tells of in the driver's log as dead, and `said` its class, from the report below.

    None where another than the driver tells it, and for a class that says no role. Ray tells no rank.
    """
    if report.role != "driver":
        return None
    at = next(n for n, line in enumerate(lines) if line is report)
    for line in lines[at : at + _REPORT_LINES]:
        if named := _CLASS.match(line.said):
            role = _role_in(named["name"])
            name = named["name"].rpartition("<locals>.")[2]  # of a class that a function makes
            return _Line(role=role, rank=0, text=report.text, said=name) if role else None
    return None


def _role_in(name: str) -> str:
    """Return the role that a class of actors is named after, "" for none."""
    name = name.lower()
    return next((role for role in ROLES if role in name), "") or next((r for n, r in _ACTORS.items() if n in name), "")


def _name(line: _Line) -> str:
    return "the trainer" if line.role == "driver" else f"{line.role} rank {line.rank}"


def _end_of_rank(lines: Sequence[_Line]) -> tuple[str, str]:
    """Return the name of the signal that ended a rank first, by its launcher, and the line that says so; else ""."""
    for line in lines:
        if match := _RANK_ENDED.search(line.said):
            return Exit(code=-int(match["torchrun"] or match["deepspeed"])).signal_name, line.text
    return "", ""


def _signal_received(lines: Sequence[_Line]) -> str:
    """Return the name of the signal that the driver says it got last, "" for none."""
    said = [_SIGNAL_RECEIVED.match(line.said) for line in lines if line.role == "driver"]
    return next((match[1] for match in reversed(said) if match), "")


def _last_error(lines: Sequence[_Line]) -> _Line | None:
    """Return the line that names the exception, else the last one that says anything."""
    telling = [line for line in lines if not (_SAYS_NOTHING.search(line.said) or is_of_profiler(line.text))]
    errors = [line for line in telling[-100:] if _ERROR.match(line.said)]
    for line in reversed(errors):
        if not _WRAPS.search(line.said):
            return line
    if errors:
        return errors[-1]
    return telling[-1] if telling else None


def _lines(progress: TrainerProgress, run_dir: Path) -> list[_Line]:
    """Return the newest log lines, those of the driver's stderr last, because they tell of the end."""
    latest = [_worker_line(role, rank, text) for role, rank, text in progress.latest_lines(TAIL_LINES)]
    for stream in ("stdout", "stderr"):
        for raw in _tail(run_dir / "log" / f"driver-0.{stream}"):
            latest.append(_driver_line(raw))
    return latest


def _worker_line(role: str, rank: int, raw: str) -> _Line:
    """Return a line of a worker whom its event names."""
    return _Line(role=role, rank=rank, text=uncolored(raw), said=read_line(raw).said)


def _driver_line(raw: str) -> _Line:
    """Give a line that a worker printed through the driver to the worker, as far as its prefixes name one."""
    line = read_line(raw)
    role, rank = "driver", 0
    if named := _role_in(line.label):
        number = re.search(r"(\d+)$", line.label)
        role, rank = named, int(number[1]) if number else 0
    elif line.rank is not None:  # an exception in a process group of torch
        role, rank = "policy", line.rank
    return _Line(role=role, rank=rank, text=line.text, said=line.said)


def _tail(path: Path) -> Iterable[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
            return [line for line in lines if not _FRAMES.search(read_line(line).said)][-TAIL_LINES:]
    except OSError:
        return []
