"""`make proof-captures`: captures of real runs end usable, or failed with a reason that is true; writes the report.

Four parts, each on a real Ray head with real workers: every way in which an actor or a run can end, while something
records or is being written; recordings by time, started and ended again and again; reports of nsys of a rollout engine
beside its policy; disks that are full. Arguments: names of parts, or of ways to end. PITWALL_PROOF_CAPTURES says how
many captures a way (20), PITWALL_PROOF_CYCLES how many cycles (100).
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from profiling.captures.capture import recordings
from profiling.launch_nsys import problem_of_install
from profiling.trace.importing import import_trace
from tests.jobs.engine.conftest import EndedRun, Running
from tests.profiling.nsys_report import ranges
from tests.proofs.console_captures import CaptureOutcome, outcome_of, set_up
from tests.proofs.shipped_run import ShippedRun, SupervisedRun
from tests.ray_head import HOUSE, RayHead, running_head
from tests.waiting import wait_until

REPORT = HOUSE / "docs" / "proofs" / "captures.md"
RESULTS = HOUSE / "build" / "proofs"
ENGINE = ("jobs.engine", "--device=cpu")
KNOBS: dict[str, Any] = {"train.num_steps": 4000, "eval.num_prompts": 0, "checkpoint.every_steps": 0}
SPEC: dict[str, Any] = {
    "algorithm": "sft",
    "hardware": {"policy_ranks": 1},
    "knobs": KNOBS | {"train.batch_size": 8},
}
GRPO: dict[str, Any] = {
    "algorithm": "grpo",
    "hardware": {"layout": "split"},
    "knobs": KNOBS | {"train.num_steps": 400, "rollout.prompts_per_step": 4, "rollout.samples_per_prompt": 4},
}
OF_ROLES: dict[str, Any] = {"roles": ["policy", "vllm"], "ranks": [0]}
LEARNING = {"update", "update/forward", "update/backward", "update/optimizer"}
PHASES = {"policy-0": {"weight_sync"} | LEARNING, "vllm-0": {"rollout", "weight_sync"}}
ASK_SECONDS = 120
TORCH_SHARE = 5
"""One in so many captures is recorded with torch at once where such an end takes its trace away, to see it said."""
LOST_WHY = """\
A report of nsys survives every end: its agent is a process of its own, and writes it within two seconds of the
recorded process's death. A trace of torch survives where Python has time to write it: `exit_actor` (the worker
writes it while it leaves), an exception in the driver (the workers live, and are asked). Where the process is
ended at once (SIGKILL, `ray.kill`, the death of the driver, on which Ray ends its workers without a signal that
Python could see) the tool `torch_pieces` keeps the steps that it has put away: it does so while the next one
runs, so the runs here end once the first is on disk. `torch` has it in the memory of the process, and loses it
then: the rows with `torch` alone show that the capture says so."""
ALONE_WHY = """\
What the recorders alone showed on small file systems, before it was mended: torch with a full folder for
temporary files wrote a gzip of nothing and called it whole (its trace is now compressed from a file next to the
target, and only if kineto came to its end). nsys that cannot write its report exits with 0 and left the
recorder waiting for 300 s and its raw file behind. nsys with a full folder for temporary files ends the
recorded process by a segmentation fault; it is now started only with 256 MiB of free disk and dropped below 64 MiB.
A process that fills those 64 MiB within half a second, as three million ranges in a row did, is still lost."""
LOST = r"policy-0: Its process was killed, and what it had recorded was in its memory\."
"""The true sentence on a torch trace whose process was ended at once: nobody can bring it back."""
DIED = rf"^The run failed: The process of policy rank 0 died.*{LOST}$"
DRIVER = rf"^The trainer's driver ended \((SIGKILL|exit code 3)\)\. {LOST}$"
RUNNER = rf"^The runner was killed, and the trainer with it\. {LOST}$"


def command(running: Running, verb: str, **payload: Any) -> None:
    """Write a command as the runner does."""
    with (running.run_dir / "commands.jsonl").open("a") as file:
        file.write(json.dumps({"number": time.time_ns(), "verb": verb, "payload": payload}) + "\n")


def told(running: Running | SupervisedRun, capture: str) -> list[dict[str, Any]]:
    """Return what was told of a capture so far."""
    return [e for e in running.events() if e["kind"] == "capture" and e["capture"] == capture]


def until(running: Running | SupervisedRun, capture: str, *states: str) -> None:
    """Return when a capture has been in one of the states."""
    wait_until(lambda: any(e["state"] in states for e in told(running, capture)), ASK_SECONDS)


def announced(ended: EndedRun | ShippedRun, capture: str) -> list[Path]:
    """Return the files of a capture that the run told of."""
    return [ended.run_dir / e["path"] for e in ended.of("artifact") if e["meta"].get("capture") == capture]


def worker(running: SupervisedRun) -> psutil.Process:
    """Return the process of policy 0: the one that writes its log."""
    log = running.run_dir / "log" / "policy-0.stderr"
    for process in psutil.Process().children(recursive=True):
        try:
            if "nsys" not in Path(process.exe()).name and any(Path(f.path) == log for f in process.open_files()):
                return process
        except psutil.Error:
            continue
    raise AssertionError(f"nobody writes {log}")


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a run ends. `lost` is the true reason of a torch trace that such an end takes away, "" if it takes none.

    `is_cut` says that it cuts a recording short, which the capture has to tell.
    """

    text: str
    end: Callable[[SupervisedRun], None]
    lost: str = ""
    is_cut: bool = False


WAYS: dict[str, Way] = {
    "normal end": Way(text="the last step is over", end=lambda run: run.plant()),
    "stop": Way(text="command `stop`", end=lambda run: run.command("stop")),
    "cancel": Way(text="Ray's `stop_job`", end=lambda run: run.cancel()),
    "exit_actor": Way(text="the worker leaves by `exit_actor`", end=lambda run: run.plant(), is_cut=True),
    "ray_kill": Way(text="`ray.kill` of the worker", end=lambda run: run.plant(), lost=DIED, is_cut=True),
    "worker killed": Way(
        text="SIGKILL to the worker",
        end=lambda run: worker(run).send_signal(signal.SIGKILL),
        lost=DIED,
        is_cut=True,
    ),
    "driver_error": Way(text="an exception in the driver", end=lambda run: run.plant(), is_cut=True),
    "driver_exit": Way(text="`os._exit` of the driver", end=lambda run: run.plant(), lost=DRIVER, is_cut=True),
    "driver killed": Way(text="SIGKILL to the driver", end=lambda run: run.driver().kill(), lost=DRIVER, is_cut=True),
    "runner killed": Way(
        text="SIGKILL to the runner, then its clean-up job", end=lambda run: run.kill_runner(), lost=RUNNER, is_cut=True
    ),
}


@dataclass(kw_only=True)
class Tally:
    """The captures of one way."""

    ready: int = 0
    failed: int = 0
    wrong: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)


def tools_of(name: str) -> tuple[str, ...]:
    """Return the tools whose files have to survive that end, by turns: torch in pieces where torch at once cannot."""
    kept = "torch_pieces" if WAYS[name].lost else "torch"
    return (kept,) if problem_of_install() else (kept, "nsys")


def one_end(
    head: RayHead, folder: Path, name: str, number: int, tool: str, *, spec: dict[str, Any] = SPEC
) -> tuple[str, str, str]:
    """Let one run end in that way; return its verdict, why it is wrong ("" if right), and the capture's reason.

    Of four, 1 and 2 end while the file is written.
    """
    way = WAYS[name]
    is_written = number % 4 in (1, 2)
    capture = f"c{number}"
    running = SupervisedRun(folder / name.replace(" ", "-"), spec, head, way=name)
    try:
        running.wait_for_step(2)
        running.command("profile", capture=capture, tool=tool, seconds=300, roles=[], ranks=[], num_steps=1)
        until(running, capture, "recording", "failed")
        begun_in = max(e["step"] for e in running.events() if e["kind"] == "metric") + 1
        running.wait_for_step(begun_in + 1)  # the first whole one, so that there is something to see
        if tool == "torch_pieces":
            wait_until(lambda: any(recordings(running.run_dir).glob(f".piece-{capture}-*")), ASK_SECONDS)
        if is_written:
            running.command("finish", capture=capture)
            until(running, capture, "stopping", "failed")
        way.end(running)
        shipped = running.wait()
    finally:
        running.close()
    found = outcome_of(shipped, capture, tool=tool)
    wrong = _evaluate(way, found, tool=tool, is_written=is_written, files=announced(shipped, capture))
    left = shipped.terminal_event["meta"]["processes_left"]
    wrong = wrong or (f"{left} processes are left" if left else "")
    print(f"{name} {number}: {tool}, {'written' if is_written else 'recorded'}: {found.state} {found.problem} {wrong}")
    return found.state, wrong and f"{name} {number}, {tool}: {wrong}", found.problem


def _evaluate(way: Way, found: CaptureOutcome, *, tool: str, is_written: bool, files: list[Path]) -> str:
    if found.state == "ready":
        if not files or not all(map(is_usable, files)):
            return f"ready, but a file does not open: {files}"
        if way.is_cut and not is_written and not found.meta.get("truncated"):
            return "ready, but nothing says that it was cut short"
        return ""
    if found.state == "failed" and tool == "torch" and way.lost and re.search(way.lost, found.problem):
        return ""
    return f"{found.state}: {found.problem}"


def is_usable(path: Path) -> bool:
    """Return True if the file's own tool reads it, and it has our phase in it."""
    with tempfile.TemporaryDirectory() as made:
        if path.name.endswith(".nsys-rep"):
            target = Path(made) / "report.sqlite"
            asked = ["nsys", "export", "-q", "true", "-t", "sqlite", "-f", "true", "-o", str(target), str(path)]
            if subprocess.run(asked, capture_output=True, check=False).returncode or not target.stat().st_size:
                return False
        return import_trace(path, Path(made) / "store.duckdb").events > 0


def ends(head: RayHead, folder: Path, count: int, names: Collection[str]) -> tuple[list[str], int]:
    """Ways to end, `count` times each. What was found of one is kept, also of a proof that is ended early."""
    set_up()
    wrong = 0
    rounds = [(name, tools_of(name), count) for name in names]
    rounds += [(name, ("torch",), max(1, count // TORCH_SHARE)) for name in names if WAYS[name].lost]
    for name, tools, times in rounds:
        tally = Tally()
        begin = time.monotonic()
        for number in range(times):
            try:
                state, problem, reason = one_end(head, folder, name, number, tools[number % len(tools)])
            except Exception as error:  # one run that goes wrong is a result, too
                state, problem, reason = "failed", f"{name} {number}: {type(error).__name__}: {error}", ""
            tally.ready += state == "ready" and not problem
            tally.failed += state != "ready" and not problem
            tally.wrong += [problem] if problem else []
            if reason:
                short = re.sub(r"\s+", " ", re.sub(r"at step \d+", "at step N", reason))[:240].replace("|", "/")
                tally.reasons[short] = tally.reasons.get(short, 0) + 1
        said = "; ".join(f"{n} × {text}" for text, n in tally.reasons.items()) or "–"
        minutes = f"{(time.monotonic() - begin) / 60:.1f}"
        cells = (
            f"{name}: {WAYS[name].text}",
            ", ".join(tools),
            times,
            tally.ready,
            tally.failed,
            len(tally.wrong),
            minutes,
            said,
        )
        row = f"| {' | '.join(map(str, cells))} |"
        print(row, *tally.wrong, sep="\n", flush=True)
        keep(f"end-{name}{' torch' * (tools == ('torch',))}", [row])
        wrong += len(tally.wrong)
    without = "" if not problem_of_install() else " nsys is not usable here."
    names = [f"end-{name}{of}" for of in ("", " torch") for name in WAYS]
    rows = [path.read_text().rstrip() for name in names if (path := kept(name)).exists()]
    lines = [
        "Each way many times, the tools by turns; of four runs two end while it records, two while the file is "
        f"written.{without}",
        "",
        "| way | tools | captures | usable | failed, reason true | wrong | minutes | reasons |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        LOST_WHY,
    ]
    return lines, wrong


def cycles(head: RayHead, folder: Path, count: int) -> tuple[list[str], int]:
    """Recordings by time on one running trainer, each with a second start while it records."""
    running = Running(folder / "cycles", SPEC, head, ENGINE)
    running.wait_for_step(2)
    wrong = []
    for number in range(count):
        tool = "nsys" if number % 5 == 4 and not problem_of_install() else "torch"
        command(running, "profile", capture=f"t{number}", tool=tool, seconds=300, roles=[], ranks=[])
        until(running, f"t{number}", "recording", "failed")
        command(running, "profile", capture=f"x{number}", tool="torch", seconds=1, roles=[], ranks=[])
        until(running, f"x{number}", "failed", "recording")
        command(running, "finish", capture=f"t{number}")
        until(running, f"t{number}", "importing", "failed")
    command(running, "stop")
    ended = running.wait(180)
    for number in range(count):
        states = [e["state"] for e in ended.of("capture") if e["capture"] == f"t{number}"]
        second = [e for e in ended.of("capture") if e["capture"] == f"x{number}"][-1]
        files = announced(ended, f"t{number}")
        if states[-1] != "importing" or len(files) != 1 or not is_usable(files[0]):
            wrong.append(f"cycle {number}: {states}")
        if second["text"] != f"Capture t{number} records already. Record once it has ended.":
            wrong.append(f"second start {number}: {second['text']}")
    wrong += [f"the run ended with {ended.code}: {ended.output[-300:]}"] if ended.code != 10 else []
    steps = max(ended.series("time/step_seconds"))
    threads = _wrong_threads(count)
    wrong += threads
    print(*wrong, sep="\n", flush=True)
    return [
        f"One trainer, {count} recordings started and ended by time (every fifth with nsys), each with a second start "
        f"meanwhile: {count - sum(w.startswith('cycle') for w in wrong)} usable, "
        f"{count - sum(w.startswith('second') for w in wrong)} second starts refused with the sentence, trainer at "
        f"step {steps} when it was stopped, exit code {ended.code}.",
        "",
        f"A torch without the mode for all threads, stopped from another thread {count} times: "
        f"{'refused each time, the process lives and writes its trace' if not threads else threads[0]}.",
    ], len(wrong)


WRONG_THREAD = """
import sys, threading
from pathlib import Path
from profiling.captures import recording
from profiling.recorders import torch as recorder
recorder._all_threads = lambda: None
said = []
def stop():
    try:
        recording.stop()
    except recorder.WrongThread:
        said.append(1)
for number in range(int(sys.argv[1])):
    path = recording.start("torch", folder=Path(sys.argv[2]), name=f"c{number}")
    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    recording.stop()
    while recording.outcome(path).size < 0 and not recording.outcome(path).problem:
        pass
print(len(said), sum(p.stat().st_size > 100 for p in Path(sys.argv[2]).iterdir()))
"""


def _wrong_threads(count: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        asked = [sys.executable, "-c", f"import torch\n{WRONG_THREAD}", str(count), folder]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=HOUSE)
    said = done.stdout.split()
    return [] if said == [str(count)] * 2 else [f"threads: exit code {done.returncode}, {said} {done.stderr[-300:]}"]


def full_disk(head: RayHead, folder: Path, count: int) -> tuple[list[str], int]:
    """Recordings on a disk without room, while training goes on; the same once there is room."""
    if os.geteuid():
        return ["Not run: a small file system takes root."], 0
    wrong, lines = [], ["| disk of the run's traces | tool | capture |", "|---|---|---|"]
    run_dir = folder / "full"
    place = run_dir / "traces"
    place.mkdir(parents=True)
    _mount(place, "64k")
    try:
        running = Running(run_dir, SPEC, head, ENGINE)
        running.wait_for_step(2)
        tools = ["torch"] + ([] if problem_of_install() else ["nsys"])
        expected = {"torch": r"The trace was not written: .*0 MiB are free", "nsys": r"nsys needs \d+ MiB of free disk"}
        for number in range(count):
            for tool in tools:
                text = _record(running, f"f{number}{tool}", tool)
                if not re.search(expected[tool], text):
                    wrong.append(f"full, {tool} {number}: {text!r}")
                if not number:
                    lines.append(f"| full (64 KiB) | {tool} | failed: {text} |".replace(str(run_dir), "RUN"))
        _mount(place, "1g", again=True)
        for tool in tools:
            text = _record(running, f"room{tool}", tool)
            wrong += [f"with room, {tool}: {text}"] if text else []
            lines.append(f"| 1 GiB again | {tool} | {text or 'usable'} |")
        command(running, "stop")
        ended = running.wait(180)
        wrong += [f"the run ended with {ended.code}"] if ended.code != 10 else []
        wrong += [f"{f} does not open" for t in tools for f in announced(ended, f"room{t}") if not is_usable(f)]
    finally:
        subprocess.run(["umount", str(place)], check=False)
    print(*lines, *wrong, sep="\n", flush=True)
    text = (
        f"{count} times each; the same run trains on, and was stopped at step {max(ended.series('time/step_seconds'))}."
    )
    return [text, "", *lines, "", ALONE_WHY], len(wrong)


def _mount(place: Path, size: str, *, again: bool = False) -> None:
    options = f"remount,size={size}" if again else f"size={size}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


def _record(running: Running, capture: str, tool: str) -> str:
    """Record for two steps; return why it failed, "" if it did not."""
    command(running, "profile", capture=capture, tool=tool, seconds=300, roles=[], ranks=[])
    until(running, capture, "recording", "failed")
    running.wait_for_step(running.events()[-1]["step"] + 2)
    command(running, "finish", capture=capture)
    until(running, capture, "importing", "failed")
    last = told(running, capture)[-1]
    return str(last["text"]) if last["state"] == "failed" else ""


def every_role(head: RayHead, folder: Path, count: int) -> tuple[list[str], int]:
    """Reports of nsys of the policy and the rollout engine of one GRPO run hold their phases, of exactly their steps.

    `count` reports are asked for, one after the other.
    """
    if missing := problem_of_install():
        return [f"Not run: {missing}"], 0
    running = Running(folder / "roles", GRPO, head, ENGINE)
    running.wait_for_step(2)
    wrong = []
    for number in range(count):
        command(running, "profile", capture=f"r{number}", tool="nsys", first_step=0, num_steps=2, **OF_ROLES)
        until(running, f"r{number}", "importing", "failed")
    command(running, "stop")
    ended = running.wait(180)
    for number in range(count):
        files = {path.name.partition(".")[0]: path for path in announced(ended, f"r{number}")}
        wrong += [] if files.keys() == PHASES.keys() else [f"report {number}: {sorted(files)}"]
        first = min((e["step"] for e in told(running, f"r{number}") if e["state"] == "recording"), default=0)
        for name, path in files.items():
            found = {(phase, step) for phase, step in ranges(path) if step}
            wanted = {(phase, step) for step in (first, first + 1) for phase in (*PHASES[name], f"step {step}")}
            wrong += [f"report {number} of {name}: {sorted(found ^ wanted)}"] if found != wanted else []
    wrong += [f"the run ended with {ended.code}: {ended.output[-300:]}"] if ended.code != 10 else []
    print(*wrong, sep="\n", flush=True)
    return [f"{count} reports of nsys of policy rank 0 and of vLLM, on one running GRPO trainer.", *wrong], len(wrong)


PARTS: dict[str, tuple[str, Callable[[RayHead, Path, int], tuple[list[str], int]]]] = {
    "ends": ("Ways to end", lambda head, folder, count: ends(head, folder, count, WAYS)),
    "cycles": ("Started and ended, again and again", cycles),
    "roles": ("Policy and rollout engine under nsys", every_role),
    "disk": ("Full disks", full_disk),
}


def main(names: list[str]) -> int:
    """Prove the parts asked for, keep what was found, write the report; return 1 if something is wrong."""
    count = int(os.environ.get("PITWALL_PROOF_CAPTURES", "20"))
    number = int(os.environ.get("PITWALL_PROOF_CYCLES", "100"))
    if unknown := sorted(set(names) - WAYS.keys() - PARTS.keys()):
        sys.exit(
            f"{', '.join(unknown)} is no part of this proof. Use {', '.join([*PARTS, *WAYS])}, or nothing for all."
        )
    RESULTS.mkdir(parents=True, exist_ok=True)
    total = 0
    with running_head() as head, tempfile.TemporaryDirectory(prefix="pw-captures-") as made:
        if ways := [name for name in names if name in WAYS]:
            lines, total = ends(head, Path(made), count, ways)
            keep("ends", lines)
        for name in [one for one in names if one not in WAYS] if names else PARTS:
            begin = time.monotonic()
            lines, wrong = PARTS[name][1](head, Path(made), number if name == "cycles" else count)
            keep(name, [*lines, "", f"{wrong} wrong. {(time.monotonic() - begin) / 60:.1f} minutes."])
            total += wrong
    write()
    return 1 if total else 0


def kept(name: str) -> Path:
    """Return where what was found of a part, or of a way to end, is kept for the report."""
    return RESULTS / f"captures-{name.replace(' ', '-')}.md"


def keep(name: str, lines: Sequence[str]) -> None:
    """Keep it there."""
    kept(name).write_text("\n".join(lines) + "\n")


def write() -> None:
    """Write the report of the parts whose results are kept."""
    lines = [
        "# Captures that survive",
        "",
        "Written by `make proof-captures`: real runs (SFT, one DeepSpeed rank) on a Ray head. For the ways to end",
        "each is a Ray job with its runner; what its console was sent is replayed to a real console, whose",
        "verdict counts. *Usable*: it is ready, its checksum held, its own reader (nsys itself for its reports)",
        "finds events in it, and it says that it was cut short where it was. *Reason true*: the sentence names",
        "what was done.",
    ]
    for name, (title, _) in PARTS.items():
        if kept(name).exists():
            lines += ["", f"## {title}", "", kept(name).read_text().rstrip()]
    REPORT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
