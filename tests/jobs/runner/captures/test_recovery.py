"""What becomes of captures that the trainer left open: found when it has ended, told, handed over."""

import hashlib
import shutil

import psutil
import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import TOKEN, FakeConsole

RECORDS = """
import subprocess
made = run_dir / "traces" / ".recording"
made.mkdir(parents=True)
def told(state, **meta):
    log.write(events.capture("c1", state, attempt=attempt, step=3, meta=meta))
def records(tool, *workers, **meta):
    told("recording", workers=workers, missing={}, tool=tool, first_step=3, num_steps=8, seconds=0, **meta)
for step in (1, 2, 3, 4):
    metric(step)
"""
REPORT = f"a report with {TOKEN} in it, to its end [END]"
NSYS = """
lingerer = subprocess.Popen(["sleep", "600"], start_new_session=True)
os.mkfifo("nobody-writes")  # to wait without a process of its own
subprocess.Popen([SHELL, "-c", f"while kill -0 {lingerer.pid}; do read -t 0.05 line <> nobody-writes; done 2>&- ; "
    f"printf '%s' 'REPORT' > {made}/c1-policy-0.nsys-rep"], start_new_session=True)
"""


def with_nsys(house: House) -> str:
    """Return what leaves a process of nsys, as the runner knows it, that writes once everything else is ended."""
    shell = house.folder / "nsys-agent"
    shutil.copy(shutil.which("bash") or "/bin/bash", shell)
    return NSYS.replace("SHELL", repr(str(shell))).replace("REPORT", REPORT)


def capture_states(console: FakeConsole) -> list[str]:
    return [event["state"] for event in console.of_kind("capture")]


def test_the_report_that_nsys_writes_after_the_end_is_waited_for_and_handed_over(
    house: House, console: FakeConsole
) -> None:
    house.trainer(RECORDS + "records('nsys', 'policy-0')\n" + with_nsys(house) + "os.kill(os.getpid(), 9)\n")

    house.finish(house.start(PITWALL_LEAVE_SECONDS="0.2"))

    assert capture_states(console) == ["recording", "importing"]
    (file,) = [event for event in console.of_kind("artifact") if event["meta"].get("capture") == "c1"]
    data = REPORT.replace(TOKEN, "*" * len(TOKEN)).encode()
    assert bytes(console.files["c1-policy-0.nsys-rep"]) == data
    assert (file["path"], file["size"]) == ("traces/c1/policy-0.nsys-rep", len(data))
    about = {"role": "policy", "rank": 0, "tool": "nsys", "first_step": 3, "num_steps": 3}
    assert about.items() <= file["meta"].items()
    assert file["meta"]["sha256"] == hashlib.sha256(data).hexdigest()
    meta = console.of_kind("capture")[-1]["meta"]
    assert meta["truncated"] == "The trainer's driver ended (SIGKILL)."
    assert (meta["first_step"], meta["num_steps"], meta["missing"]) == (3, 3, {})
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert not any("nsys-agent" in text for text in console.terminal_event["meta"]["ended"])


def test_what_was_in_the_memory_of_a_dead_process_is_said_to_be_lost(house: House, console: FakeConsole) -> None:
    house.trainer(RECORDS + "records('torch', 'policy-0', 'policy-1')\nsys.exit(1)\n")

    house.finish(house.start())

    assert capture_states(console) == ["recording", "failed"]
    assert console.of_kind("capture")[-1]["text"] == (
        "The trainer's driver ended (exit code 1). policy-0, policy-1: Its process was killed, and what it had "
        "recorded was in its memory."
    )


def test_a_driver_that_said_why_it_failed_is_believed(house: House, console: FakeConsole) -> None:
    house.trainer(
        RECORDS
        + """
records('torch', 'policy-0')
told('stopping')
told('writing', first_step=3, num_steps=2)
cause = {'side': 'trainer', 'text': 'policy rank 0 died'}
log.write(events.state('failed', attempt=attempt, cause=cause, text='policy rank 0 died'))
sys.exit(1)
"""
    )

    house.finish(house.start())

    assert console.of_kind("capture")[-1]["text"].startswith(
        "The run failed: policy rank 0 died. policy-0: Its process"
    )


def test_who_has_a_file_is_kept_and_the_others_are_named(house: House, console: FakeConsole) -> None:
    house.trainer(
        RECORDS
        + """
records('nsys', 'policy-0', 'policy-1', 'vllm-0')
(made / 'c1-policy-0.nsys-rep').write_text('half a rep')
(made / 'c1-policy-1.nsys-rep').write_text('whole [END]')
(made / 'c2-vllm-0.nsys-rep').write_text('of another [END]')
told('stopping')
told('writing', num_steps=2, missing={'policy-2': 'nsys is not installed.'}, truncated='The run failed: x')
sys.exit(1)
"""
    )

    house.finish(house.start())

    assert capture_states(console) == ["recording", "stopping", "writing", "importing"]
    meta = console.of_kind("capture")[-1]["meta"]
    assert meta["missing"] == {
        "policy-0": "The report of nsys breaks off.",
        "policy-2": "nsys is not installed.",
        "vllm-0": "nsys left no report: its own process was ended, or had no disk space for it.",
    }
    assert (meta["num_files"], meta["num_steps"], meta["truncated"]) == (1, 2, "The run failed: x")
    assert {name for name in console.ready if name.startswith("c")} == {"c1-policy-1.nsys-rep"}


def test_files_that_are_here_already_are_told_of_once(house: House, console: FakeConsole) -> None:
    house.trainer(
        RECORDS
        + """
records('torch', 'policy-0', 'policy-1', 'vllm-0')
folder = run_dir / 'traces' / 'c1'
folder.mkdir()
for worker in ('policy-0', 'policy-1', 'vllm-0-worker1'):
    (folder / f'{worker}.pt.trace.json.gz').write_text(worker)
(folder / 'policy-1.pt.trace.json.gz.part').write_text('half')
(made / '.part-c1-policy-1.pt.trace.json').write_text('half')
log.write(events.artifact('c1-policy-0.pt.trace.json.gz', artifact='trace', path='traces/c1/policy-0.pt.trace.json.gz',
    attempt=attempt, step=3, size=8, meta={'capture': 'c1', 'role': 'policy', 'rank': 0}))
told('stopping')
told('writing', first_step=3, num_steps=8)
sys.exit(1)
"""
    )

    house.finish(house.start())

    names = [f"c1-{worker}.pt.trace.json.gz" for worker in ("policy-0", "policy-1", "vllm-0-worker1")]
    assert [event["name"] for event in console.of_kind("artifact")] == names
    assert {name for name in console.ready if name.startswith("c1")} == set(names)
    meta = console.of_kind("capture")[-1]["meta"]
    assert (meta["missing"], meta["num_files"], "truncated" in meta) == ({}, 3, False)
    assert list((house.run_dir / "traces" / ".recording").iterdir()) == []


def test_captures_that_were_told_as_nonsense_fail_alone(house: House, console: FakeConsole) -> None:
    house.trainer(
        RECORDS
        + """
fine = {'tool': 'torch', 'workers': ['policy-0'], 'first_step': 3, 'num_steps': 1}
for name, odd in {
    'c1': {'tool': 'torch'},
    'c2': fine | {'first_step': 'x'},
    'c3': fine | {'workers': ['policy-x'], 'missing': 5},
    '/c4': {'tool': 'torch', 'workers': []},
}.items():
    log.write(events.capture(name, 'recording', attempt=attempt, step=3, meta=odd))
sys.exit(1)
"""
    )

    house.finish(house.start())

    failed = {event["capture"]: event["text"] for event in console.of_kind("capture") if event["state"] == "failed"}
    assert list(failed) == ["c1", "c2", "c3"]
    assert all("cannot be read" in text for text in failed.values())
    assert console.terminal_event["meta"]["processes_left"] == 0


def test_what_had_its_end_or_never_began_is_left_alone(house: House, console: FakeConsole) -> None:
    told = ["armed", "importing", "failed", "withdrawn"]
    house.trainer(
        RECORDS
        + f"""
for state in {told}:
    about = {{'workers': ['policy-0'], 'tool': 'torch'}}
    log.write(events.capture(state, state, attempt=attempt, step=3, meta=about))
sys.exit(1)
"""
    )

    house.finish(house.start())

    assert capture_states(console) == told


def test_the_clean_up_after_a_killed_runner_brings_them_too(house: House, console: FakeConsole) -> None:
    house.trainer(RECORDS + "records('nsys', 'policy-0')\n" + with_nsys(house) + "metric(5)\ntime.sleep(600)\n")
    runner = house.start()
    console.wait_for(lambda: console.of_kind("metric", step=5))
    trainer = psutil.Process(runner.pid).children()[0]
    runner.kill()
    runner.wait()
    psutil.wait_procs([trainer], timeout=10)

    house.finish(house.start("jobs.runner.cleanup", PITWALL_LEAVE_SECONDS="0.2"))

    assert capture_states(console) == ["recording", "importing"]
    assert "c1-policy-0.nsys-rep" in console.ready
    assert console.of_kind("capture")[-1]["meta"]["truncated"] == "The runner was killed, and the trainer with it."


@pytest.mark.proof
def test_a_worker_that_writes_while_it_leaves_is_given_the_time(house: House, console: FakeConsole) -> None:
    worker = """
import signal, sys, time
from pathlib import Path
from profiling.captures.capture import leaving_sign
import os
made, ended = Path(sys.argv[1]), Path(sys.argv[2])
def leave(*_):
    leaving_sign(made, os.getpid()).touch()
    while not ended.exists():
        time.sleep(0.01)
    time.sleep(3.5)  # longer than who does not leave is given after SIGTERM
    (made / "c1-policy-0.pt.trace.json.gz").write_bytes(b"whole")
    leaving_sign(made, os.getpid()).unlink()
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
(made / "up").touch()
time.sleep(600)
"""
    house.trainer(
        RECORDS
        + f"records('torch', 'policy-0')\nworker = {worker!r}\n"
        + """
subprocess.Popen([sys.executable, "-c", worker, str(made), str(run_dir / "ended")], start_new_session=True)
waits = f"while kill -0 {os.getpid()}; do sleep 0.1; done"
subprocess.Popen(["sh", "-c", f"trap '' TERM; touch {run_dir}/waits; {waits}; touch {run_dir}/ended"])
wait_until((made / "up").exists)
wait_until((run_dir / "waits").exists)
os.kill(os.getpid(), 9)
"""
    )

    house.finish(house.start(PITWALL_LEAVE_SECONDS="0.2"))

    assert capture_states(console) == ["recording", "importing"]
    assert bytes(console.files["c1-policy-0.pt.trace.json.gz"]) == b"whole"
    assert console.terminal_event["meta"]["processes_left"] == 0
    assert sorted(p.name for p in (house.run_dir / "traces" / ".recording").iterdir()) == ["up"]
