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

LAST = 12
GRPO: dict[str, Any] = {
    "algorithm": "grpo",
    "knobs": {
        "train.num_steps": LAST,
        "rollout.prompts_per_step": 4,
        "rollout.samples_per_prompt": 4,
        "eval.num_prompts": 0,
        "checkpoint.every_steps": 0,
    },
}
SFT: dict[str, Any] = {"algorithm": "sft", "knobs": {"train.num_steps": 4000, "eval.num_prompts": 0}}
POLICY_PHASES = {"old_logprobs", "update", "update/forward", "update/backward", "update/optimizer", "weight_sync"}


def ask(running: Running, *payloads: dict[str, Any]) -> None:
    """Write commands as the runner does."""
    with (running.run_dir / "commands.jsonl").open("a") as file:
        for number, payload in enumerate(payloads, start=int(time.time())):
            told = {"num_steps": 2, "roles": [], "ranks": []} | payload
            file.write(json.dumps({"number": number, "verb": "profile", "payload": told}) + "\n")


def withdraw(running: Running, *captures: str) -> None:
    """Write commands as the runner does when people withdraw."""
    with (running.run_dir / "commands.jsonl").open("a") as file:
        for number, capture in enumerate(captures, start=int(time.time()) + 100):
            file.write(json.dumps({"number": number, "verb": "withdraw", "payload": {"capture": capture}}) + "\n")


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
    """A run that was launched with a capture of steps 1 and 2, and asked for others while it went on."""
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
    running = start_engine(run_dir, GRPO, program=("tests.jobs.engine.holding_run", str(LAST - 4)))
    running.wait_for_step(3)
    assert problem_of_install() or nsys_processes()
    withdraw(running, "withdrawn", "atlaunch")  # the second is recorded already
    ask(
        running,
        {"capture": "ondemand", "tool": "nsys", "first_step": 0, "roles": ["policy", "vllm"], "ranks": [0]},
        {"capture": "past", "tool": "torch", "first_step": 1},
        {"capture": "norole", "tool": "torch", "first_step": 9, "roles": ["critic"]},
        {"capture": "norank", "tool": "torch", "first_step": 9, "roles": ["policy"], "ranks": [7]},
    )
    running.hold_no_longer()
    return running.wait()  # type: ignore[no-any-return]


CYCLES = 2


@pytest.fixture(scope="module")
def by_time(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> EndedRun:
    """A run that is recorded by time, again and again, with a second start while one records."""
    knobs = GRPO["knobs"] | {"train.num_steps": 400, "algorithm.kl_coefficient": 0.0}
    spec = GRPO | {"profile": {"nsys_ready": "off"}, "knobs": knobs}
    running = start_engine(tmp_path_factory.mktemp("runs") / "bytime", spec)
    running.wait_for_step(1)
    for cycle in range(CYCLES):
        ask(running, {"capture": f"t{cycle}", "tool": "torch", "seconds": 300})
        told(running, f"t{cycle}", "recording")
        ask(running, {"capture": f"x{cycle}", "tool": "torch", "seconds": 1})
        told(running, f"x{cycle}", "failed")
        (begun,) = [e for e in running.events() if e.get("capture") == f"t{cycle}" and e["state"] == "recording"]
        running.wait_for_step(begun["step"] + 1)  # the first that is recorded from its start
        command(running, "finish", {"capture": f"t{cycle}"})
        told(running, f"t{cycle}", "importing")
    command(running, "stop", {})
    return running.wait()  # type: ignore[no-any-return]


def command(running: Running, verb: str, payload: dict[str, Any]) -> None:
    with (running.run_dir / "commands.jsonl").open("a") as file:
        file.write(json.dumps({"number": time.time_ns(), "verb": verb, "payload": payload}) + "\n")


def told(running: Running, capture: str, state: str) -> None:
    """Return when the capture has been told to be in that state."""
    wait_until(lambda: state in states_of(running.events(), capture), seconds=120)


@pytest.mark.slow("a run of its own, recorded by time")
def test_a_run_is_recorded_by_time_again_and_again(by_time: EndedRun) -> None:
    assert by_time.code == 10, by_time.output  # stopped, as asked
    for cycle in range(CYCLES):
        assert states_of(by_time.events, f"t{cycle}") == ["armed", "recording", "stopping", "writing", "importing"]
        assert states_of(by_time.events, f"x{cycle}") == ["armed", "failed"]
        assert set(files(by_time, f"t{cycle}")) == {"policy-0", "policy-1", "vllm-0"}


def test_what_was_recorded_by_time_is_the_work_of_the_thread_that_trains(by_time: EndedRun) -> None:
    for worker, phase in (("policy-0", "update"), ("vllm-0", "rollout")):
        path = by_time.run_dir / files(by_time, "t1")[worker]["path"]
        names = {e["name"] for e in annotations(path)}
        assert phase in names, (worker, names)


def annotations(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return [e for e in events if e.get("cat") == "user_annotation"]


@pytest.mark.slow("the first test waits for the run that all of them read; its workers start under nsys")
def test_workers_tell_once_which_tools_can_record_them(run: EndedRun) -> None:
    (profilers,) = [e["meta"]["profilers"] for e in run.of("note") if "profilers" in e["meta"]]

    assert set(profilers) == {"policy-0", "policy-1", "vllm-0", "reference-0"}
    assert all(set(tools) == set(TOOLS) for tools in profilers.values())
    assert {tools["torch"] for tools in profilers.values()} == {""}
    assert all(bool(tools["nsys"]) == bool(problem_of_install()) for tools in profilers.values())
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
    phases = ("old_logprobs", "update", "weight_sync")

    def told(phase: str) -> list[dict[str, Any]]:
        ours = ("policy", 0, phase, 0)
        spans = [e for e in run.of("span") if (e["role"], e["rank"], e["phase"], e["depth"]) == ours]
        return [e for e in spans if e["step"] in (1, 2)]  # weights are synchronised before the first step, too

    begun = {phase: sorted(e["ts"] * 1000 + base for e in traced if e["name"] == phase) for phase in phases}
    apart = [abs(a - b["start"]) for phase in phases for a, b in zip(begun[phase], told(phase), strict=True)]
    assert len(apart) == 2 * len(phases)
    assert median(apart) < 5e6  # ns; both are of one clock, which one that was put aside between them does not move


def test_an_nsys_report_asked_for_on_the_running_run_holds_exactly_its_steps(run: EndedRun) -> None:
    if problem := problem_of_install():
        pytest.skip(f"needs nsys: {problem}")
    assert states_of(run.events, "ondemand") == ["armed", "recording", "stopping", "writing", "importing"]
    assert set(files(run, "ondemand")) == {"policy-0", "vllm-0"}
    assert {e["meta"]["tool_version"] for e in files(run, "ondemand").values()} == {version_of_install()}
    assert version_of_install().startswith("nsys 2")
    first = next(e["step"] for e in run.of("capture") if e["capture"] == "ondemand" and e["state"] == "recording")
    assert first > 3
    for worker, phases in (("policy-0", POLICY_PHASES), ("vllm-0", {"rollout", "weight_sync"})):
        found = ranges(run.run_dir / "traces" / "ondemand" / f"{worker}.nsys-rep")
        for step in (first, first + 1):
            names = {name for name, of in found if of == step}
            assert names == phases | {f"step {step}"}
        assert {of for _, of in found if of} <= {first, first + 1}


def test_what_is_withdrawn_before_its_steps_is_never_recorded(run: EndedRun) -> None:
    assert states_of(run.events, "withdrawn") == ["armed", "withdrawn"]
    assert files(run, "withdrawn") == {}
    assert sorted(path.name for path in (run.run_dir / "traces").glob("w*")) == []


def test_no_agent_of_nsys_outlives_the_run(run: EndedRun) -> None:
    assert run.code == 0, run.output
    wait_until(lambda: not nsys_processes(), 60)


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


def test_a_worker_killed_in_a_capture_fails_the_run_and_what_the_others_recorded_is_kept(
    start_engine: Any, tmp_path: Path
) -> None:
    running = start_engine(tmp_path, SFT)
    running.wait_for_step(2)
    doomed = pid_of_rank(running.run_dir, 1)
    ask(running, {"capture": "doomed", "tool": "torch", "first_step": 0, "num_steps": 100})
    wait_until(lambda: "recording" in states_of(running.events(), "doomed"), 60)
    os.kill(doomed, signal.SIGKILL)

    ended = running.wait()

    assert ended.code == 1
    assert (ended.cause["role"], ended.cause["rank"]) == ("policy", 1)
    assert states_of(ended.events, "doomed") == ["armed", "recording", "stopping", "writing"]  # its end is the runner's
    assert "policy rank 1 died" in terminal_event(ended, "doomed")["meta"]["truncated"]
    assert set(files(ended, "doomed")) == {"policy-0"}
    assert annotations(ended.run_dir / files(ended, "doomed")["policy-0"]["path"])
    wait_until(lambda: not nsys_processes(), 60)


def pid_of_rank(run_dir: Path, rank: int) -> int:
    """Return the process that holds the rank's log file open."""
    target = run_dir / "log" / f"policy-{rank}.stderr"
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "nsys" not in Path(process.exe()).name and any(Path(f.path) == target for f in process.open_files()):
                return process.pid
    raise AssertionError(f"nobody writes {target}")
