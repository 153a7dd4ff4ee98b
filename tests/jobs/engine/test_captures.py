"""Captures of real runs: torch and nsys on real workers, what their files hold, what becomes of them in a failure."""

import contextlib
import gzip
import hashlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
import torch

from profiling.config import TOOLS
from profiling.launch_nsys import problem_of_install, version_of_install
from profiling.phases import BY_KEY
from tests.jobs.engine.conftest import EndedRun, Running
from tests.profiling.nsys_report import ranges
from tests.waiting import wait_until

pytestmark = pytest.mark.engine

LAST = 8
BY_TIME = (4, 5)
"""Steps before which the run is held until something records by time."""
GRPO: dict[str, Any] = {
    "algorithm": "grpo",
    "hardware": {"layout": "split"},
    "profile": {"nsys_ready": "off"},
    "knobs": {
        "train.num_steps": LAST,
        "rollout.prompts_per_step": 4,
        "rollout.samples_per_prompt": 4,
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 0,
    },
}
NSYS: dict[str, Any] = {
    "algorithm": "sft",
    "profile": {"nsys_ready": "auto"},
    "knobs": {"train.num_steps": 4000, "eval.num_prompts": 0},
}
LEARNING = {"update", "update/forward", "update/backward", "update/optimizer"}
POLICY_PHASES = {"weight_sync"} | LEARNING


def command(running: Running, verb: str, payload: dict[str, Any]) -> None:
    """Write a command as the runner does."""
    with (running.run_dir / "commands.jsonl").open("a") as file:
        file.write(json.dumps({"number": time.time_ns(), "verb": verb, "payload": payload}) + "\n")


def ask(running: Running, *payloads: dict[str, Any]) -> None:
    """Ask for captures."""
    for payload in payloads:
        command(running, "profile", {"num_steps": 2, "roles": [], "ranks": []} | payload)


def told(running: Running, capture: str, state: str) -> None:
    """Return when the capture has been told to be in that state."""
    wait_until(lambda: state in states_of(running.events(), capture), seconds=120)


def states_of(events: list[dict[str, Any]], capture: str) -> list[str]:
    return [e["state"] for e in events if e["kind"] == "capture" and e["capture"] == capture]


def terminal_event(ended: EndedRun, capture: str) -> dict[str, Any]:
    return [e for e in ended.of("capture") if e["capture"] == capture][-1]


def files(ended: EndedRun, capture: str) -> dict[str, dict[str, Any]]:
    """The announced files of a capture by worker."""
    found = [e for e in ended.of("artifact") if e["meta"].get("capture") == capture]
    return {f"{e['meta']['role']}-{e['meta']['rank']}": e for e in found}


def nsys_processes() -> list[psutil.Process]:
    """Those that the tests' own Ray head has below it."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and "nsys" in Path(process.exe()).name:
                found.append(process)
    return found


@pytest.fixture(scope="module")
def run(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """A run that was launched with a capture of steps 1 and 2, and asked for others while it went on: by steps, and by
    time again and again, each with a second start while one records.
    """
    run_dir = tmp_path_factory.mktemp("runs") / "captures"
    run_dir.mkdir()
    first = {"capture": "atlaunch", "tool": "torch", "first_step": 1}
    later = {"capture": "withdrawn", "tool": "torch", "first_step": LAST - 2}
    picked = {"capture": "picked", "what": "memory", "tool": "", "first_step": LAST - 1, "num_steps": 1, "ranks": [0]}
    rest = {"capture": "atend", "tool": "torch", "first_step": LAST, "roles": ["reference"]}
    (run_dir / "commands.jsonl").write_text(
        "".join(
            json.dumps({"number": i, "verb": "profile", "payload": {"num_steps": 2, "roles": [], "ranks": []} | p})
            + "\n"
            for i, p in enumerate([first, later, picked, rest], start=1)
        )
    )
    held = ",".join(map(str, (*BY_TIME, LAST - 2)))
    running = start_engine(run_dir, GRPO, program=("tests.jobs.engine.holding_run", held))
    running.wait_for_step(3)
    for capture in ("withdrawn", "atlaunch"):  # the second is recorded already
        command(running, "withdraw", {"capture": capture})
    ask(
        running,
        {"capture": "past", "tool": "torch", "first_step": 1},
        {"capture": "norole", "tool": "torch", "first_step": LAST, "roles": ["critic"]},
        {"capture": "norank", "tool": "torch", "first_step": LAST, "roles": ["policy"], "ranks": [7]},
    )
    told(running, "atlaunch", "importing")
    for step in BY_TIME:
        ask(running, {"capture": f"t{step}", "tool": "torch", "seconds": 300})
        told(running, f"t{step}", "recording")
        ask(running, {"capture": f"x{step}", "tool": "torch", "seconds": 1})
        told(running, f"x{step}", "failed")
        running.hold_no_longer(step)
        running.wait_for_step(step)
        command(running, "finish", {"capture": f"t{step}"})
        told(running, f"t{step}", "importing")
    running.hold_no_longer(LAST - 2)
    return running.wait()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def under_nsys(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """A run whose workers are ready for nsys, one of them killed while torch records, after a report of nsys."""
    running = start_engine(
        tmp_path_factory.mktemp("runs") / "nsys", NSYS, program=("tests.jobs.engine.holding_run", "4,6")
    )
    running.wait_for_step(3)
    if not problem_of_install():
        assert nsys_processes()
        ask(running, {"capture": "ondemand", "tool": "nsys", "first_step": 0, "ranks": [0]})
        told(running, "ondemand", "armed")
    running.hold_no_longer(4)
    running.wait_for_step(5)
    if not problem_of_install():
        told(running, "ondemand", "importing")
    doomed = pid_of_rank(running.run_dir, 1)
    ask(running, {"capture": "doomed", "tool": "torch", "first_step": 0, "num_steps": 100})
    told(running, "doomed", "armed")
    running.hold_no_longer(6)
    told(running, "doomed", "recording")
    os.kill(doomed, signal.SIGKILL)
    return running.wait()  # type: ignore[no-any-return]


def test_a_run_is_recorded_by_time_again_and_again(run: EndedRun) -> None:
    for step in BY_TIME:
        assert states_of(run.events, f"t{step}") == ["armed", "recording", "stopping", "writing", "importing"]
        assert states_of(run.events, f"x{step}") == ["armed", "failed"]
        assert set(files(run, f"t{step}")) == {"policy-0", "policy-1", "vllm-0", "reference-0"}


def test_what_was_recorded_by_time_is_the_work_of_the_thread_that_trains(run: EndedRun) -> None:
    for worker, phase in (("policy-0", "update"), ("vllm-0", "rollout")):
        path = run.run_dir / files(run, f"t{BY_TIME[1]}")[worker]["path"]
        names = {e["name"] for e in annotations(path)}
        assert phase in names, (worker, names)


def annotations(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return [e for e in events if e.get("cat") == "user_annotation"]


def test_workers_tell_once_which_tools_can_record_them(run: EndedRun) -> None:
    (profilers,) = [e["meta"]["profilers"] for e in run.of("note") if "profilers" in e["meta"]]

    assert set(profilers) == {"policy-0", "policy-1", "vllm-0", "reference-0"}
    assert all(set(tools) == set(TOOLS) for tools in profilers.values())
    assert {tools["torch"] for tools in profilers.values()} == {""}
    assert all(tools["nsys"] for tools in profilers.values())  # this run asked not to be ready for it
    (places,) = [e["meta"]["places"] for e in run.of("note") if "profilers" in e["meta"]]
    assert places == dict.fromkeys(profilers, socket.gethostname())


def test_the_tool_for_what_a_spec_asks_for_is_picked_once_workers_have_told(run: EndedRun) -> None:
    events = [e for e in run.of("capture") if e["capture"] == "picked"]

    assert [e["state"] for e in events] == ["armed", "recording", "stopping", "writing", "importing"]
    assert {e["meta"]["tool"] for e in events[:2]} == {"torch"}
    for worker, event in files(run, "picked").items():
        with gzip.open(run.run_dir / event["path"]) as file:
            told = [e for e in json.load(file)["traceEvents"] if e["name"] == "[memory]"]
        assert told, worker  # only a trace for memory has what operators allocate
    assert set(files(run, "picked")) == {"policy-0", "vllm-0", "reference-0"}


def test_a_capture_asked_for_at_launch_goes_through_its_states(run: EndedRun) -> None:
    assert run.code == 0, run.output
    assert states_of(run.events, "atlaunch") == ["armed", "recording", "stopping", "writing", "importing"]
    assert set(files(run, "atlaunch")) == {"policy-0", "policy-1", "vllm-0", "reference-0"}
    for worker, event in files(run, "atlaunch").items():
        assert event["name"] == f"atlaunch-{worker}.pt.trace.json.gz"
        assert event["path"] == f"traces/atlaunch/{worker}.pt.trace.json.gz"
        data = (run.run_dir / event["path"]).read_bytes()
        assert (event["size"], event["meta"]["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
        assert (event["meta"]["first_step"], event["meta"]["num_steps"]) == (1, 2)
        assert event["meta"]["tool_version"] == f"torch {torch.__version__} (kineto)"
    assert list((run.run_dir / "traces" / ".recording").iterdir()) == []


@pytest.mark.parametrize(
    ("worker", "phases"),
    [
        ("policy-0", POLICY_PHASES),
        ("policy-1", POLICY_PHASES),
        ("vllm-0", {"rollout", "weight_sync"}),
        ("reference-0", {"reference"}),
    ],
)
def test_a_torch_trace_shows_the_phases_of_its_steps(run: EndedRun, worker: str, phases: set[str]) -> None:
    found = annotations(run.run_dir / "traces" / "atlaunch" / f"{worker}.pt.trace.json.gz")

    steps = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in found if e["name"].startswith("ProfilerStep#")}
    assert set(steps) == {"ProfilerStep#1", "ProfilerStep#2"}
    ours = [e for e in found if e["name"].split("/")[0] in BY_KEY]
    assert {e["name"] for e in ours} == phases
    for begin, end in steps.values():
        assert {e["name"] for e in ours if begin <= e["ts"] <= e["ts"] + e["dur"] <= end} == phases


def test_spans_and_trace_agree_on_when_a_phase_was(run: EndedRun) -> None:
    with gzip.open(run.run_dir / "traces" / "atlaunch" / "policy-0.pt.trace.json.gz") as file:
        trace = json.load(file)
    base = trace["baseTimeNanoseconds"]
    traced = [e for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
    phases = ("update", "weight_sync")

    def told(phase: str) -> list[dict[str, Any]]:
        ours = ("policy", 0, phase, 0)
        spans = [e for e in run.of("span") if (e["role"], e["rank"], e["phase"], e["depth"]) == ours]
        return [e for e in spans if e["step"] in (1, 2)]  # weights are synchronised before the first step, too

    begun = {phase: sorted(e["ts"] * 1000 + base for e in traced if e["name"] == phase) for phase in phases}
    apart = [abs(a - b["start"]) for phase in phases for a, b in zip(begun[phase], told(phase), strict=True)]
    assert len(apart) == 2 * len(phases)
    assert median(apart) < 5e6  # ns; both are of one clock, which one that was put aside between them does not move


def test_what_is_withdrawn_before_its_steps_is_never_recorded(run: EndedRun) -> None:
    assert states_of(run.events, "withdrawn") == ["armed", "withdrawn"]
    assert files(run, "withdrawn") == {}
    assert sorted(path.name for path in (run.run_dir / "traces").glob("w*")) == []


def test_what_cannot_be_recorded_is_refused_with_a_sentence(run: EndedRun) -> None:
    assert terminal_event(run, "past")["text"].endswith("; steps 1 to 2 are past.")
    assert terminal_event(run, "norole")["text"] == "This run has no role 'critic'. Use policy, vllm, reference."
    assert terminal_event(run, "norank")["text"] == "There is no rank 7 of policy. Use 0 to 1."
    assert {terminal_event(run, name)["state"] for name in ("past", "norole", "norank")} == {"failed"}


def test_a_capture_that_the_end_of_the_run_cuts_short_keeps_what_it_has(run: EndedRun) -> None:
    assert terminal_event(run, "atend")["state"] == "importing"
    assert terminal_event(run, "atend")["meta"]["num_steps"] == 1
    names = {e["name"] for e in annotations(run.run_dir / "traces" / "atend" / "reference-0.pt.trace.json.gz")}
    assert f"ProfilerStep#{LAST}" in names


def test_what_a_capture_cost_is_told(run: EndedRun) -> None:
    overhead = terminal_event(run, "atlaunch")["meta"]["overhead"]

    assert 0 < overhead["start_seconds"] < 60
    assert 0 < overhead["stop_seconds"] < 60
    series = run.series("time/step_seconds")
    assert overhead["step_seconds"] == pytest.approx([series[1], series[2]], abs=1e-3)
    # The one of the first steps may be told before another step is done; that of the last has all others beside it.
    assert terminal_event(run, "atend")["meta"]["overhead"]["neighbor_step_seconds"] > 0


def test_phases_carry_memory(run: EndedRun) -> None:
    update = next(e for e in run.of("span") if e["role"] == "policy" and e["phase"] == "update" and e["depth"] == 0)

    assert all(held > 1e8 for held in update["memory"]["resident"])


@pytest.mark.proof
@pytest.mark.slow("a run of its own, whose workers start under nsys")
def test_an_nsys_report_asked_for_on_the_running_run_holds_exactly_its_steps(under_nsys: EndedRun) -> None:
    if problem := problem_of_install():
        pytest.skip(f"needs nsys: {problem}")
    (profilers,) = [e["meta"]["profilers"] for e in under_nsys.of("note") if "profilers" in e["meta"]]
    assert {tools["nsys"] for tools in profilers.values()} == {""}
    assert states_of(under_nsys.events, "ondemand") == ["armed", "recording", "stopping", "writing", "importing"]
    (event,) = files(under_nsys, "ondemand").values()
    assert (event["meta"]["role"], event["meta"]["rank"]) == ("policy", 0)
    assert event["meta"]["tool_version"] == version_of_install()
    assert version_of_install().startswith("nsys 2")
    found = ranges(under_nsys.run_dir / "traces" / "ondemand" / "policy-0.nsys-rep")
    for step in (4, 5):
        assert {name for name, of in found if of == step} == LEARNING | {f"step {step}"}
    assert {of for _, of in found if of} <= {4, 5}


@pytest.mark.proof
def test_a_worker_killed_in_a_capture_fails_the_run_and_what_the_others_recorded_is_kept(under_nsys: EndedRun) -> None:
    assert under_nsys.code == 1
    assert (under_nsys.cause["side"], under_nsys.cause["role"], under_nsys.cause["rank"]) == ("cluster", "policy", 1)
    assert under_nsys.cause["step"] >= 6
    assert "policy rank 1 died" in under_nsys.cause["text"]
    # Its end is the runner's to tell.
    assert states_of(under_nsys.events, "doomed") == ["armed", "recording", "stopping", "writing"]
    assert "policy rank 1 died" in terminal_event(under_nsys, "doomed")["meta"]["truncated"]
    assert set(files(under_nsys, "doomed")) == {"policy-0"}
    assert annotations(under_nsys.run_dir / files(under_nsys, "doomed")["policy-0"]["path"])


@pytest.mark.proof
def test_no_agent_of_nsys_outlives_a_run_that_failed(under_nsys: EndedRun) -> None:
    assert under_nsys.code == 1, under_nsys.output
    wait_until(lambda: not nsys_processes(), 60)


def pid_of_rank(run_dir: Path, rank: int) -> int:
    """Return the process that has the rank's log file open for writing: of nsys, what it starts and not its agent."""
    log = str(run_dir / "log" / f"policy-{rank}.stdout")
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str((folder / "fd" / "1").readlink()) == log and "nsys" not in (folder / "exe").readlink().name:
                return int(folder.name)
    raise AssertionError(f"nobody writes {log}")
