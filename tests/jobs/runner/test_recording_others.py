"""Captures of a trainer that knows nothing of Pitwall: real processes of torch.distributed, recorded from beside."""

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.runner.conftest import House
from tests.jobs.runner.fake_console import FakeConsole
from tests.jobs.runner.test_other_trainers import OtherTrainer, other, steps_of  # noqa: F401 (a fixture)

TRAINS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/group", rank=0, world_size=1)
def work():
    a = torch.ones(64, 64)
    for _ in range(5):
        a = torch.tanh(a @ a / 64)
def until(name, step=0):
    "Train until a file is there."
    while not Path(name).exists():
        work()
        time.sleep(0.02)  # what is recorded needs the CPU, too
"""
STOP = {"number": 99, "verb": "stop", "payload": {}}


def profile(number: int, **more: Any) -> dict[str, Any]:
    payload = {"capture": f"c-{number}", "tool": "torch", "first_step": 0, "num_steps": 1, "roles": [], "ranks": []}
    return {"number": number, "verb": "profile", "payload": payload | more}


def ask(console: FakeConsole, *commands: dict[str, Any]) -> None:
    with console.condition:
        console.commands += commands


def states(console: FakeConsole, capture: str = "c-1") -> list[str]:
    return [event["state"] for event in console.of_kind("capture") if event["capture"] == capture]


def has_come_to(console: FakeConsole, step: int) -> bool:
    return steps_of(console)[-1:] == [step]


def is_there(console: FakeConsole) -> bool:
    """Return True once a process has said that it can be recorded."""
    return any("profilers" in event.get("meta", {}) for event in console.of_kind("note"))


def trace_of(console: FakeConsole, name: str) -> list[str]:
    """Return the names of the operators in a trace that has arrived."""
    return [event["name"] for event in json.loads(gzip.decompress(bytes(console.files[name])))["traceEvents"]]


def why_failed(console: FakeConsole) -> dict[str, str]:
    """Return what was said of the captures that failed."""
    return {event["capture"]: event["text"] for event in console.of_kind("capture") if event["state"] == "failed"}


@pytest.mark.slow("a run of another trainer's kind, recorded twice")
def test_a_run_is_recorded_by_time_until_it_ends_and_what_cannot_be_recorded_is_refused(
    other: OtherTrainer,  # noqa: F811
    house: House,
    console: FakeConsole,
) -> None:
    has_inductor = "Path('inductor').write_text(str('torch._inductor' in sys.modules))\n"
    ends = f"until('end')\ntrain(2)\nwriter.close()\n{has_inductor}"
    other.is_("train(1)\nwriter.flush()\nwait_for('go')\n" + TRAINS + ends)
    runner = other.start()
    console.wait_for(lambda: steps_of(console) == [1])

    # While no process can be recorded yet.
    ask(console, profile(1, seconds=60), profile(2, first_step=40), profile(3, tool="none"))
    console.wait_for(lambda: states(console)[-1:] == states(console, "c-3")[-1:] == ["failed"])
    ask(console, {"number": 5, "verb": "withdraw", "payload": {"capture": "c-2"}})
    console.wait_for(lambda: states(console, "c-2") == ["armed", "withdrawn"])
    (house.run_dir / "go").touch()
    console.wait_for(lambda: is_there(console))
    ask(console, profile(6, seconds=60, tool="nsys"))
    console.wait_for(lambda: states(console, "c-6")[-1:] == ["failed"])

    # While it trains.
    ask(console, profile(7, seconds=60))
    console.wait_for(lambda: "recording" in states(console, "c-7"))
    ask(console, {"number": 8, "verb": "finish", "payload": {"capture": "c-7"}})
    console.wait_for(lambda: "c-7-policy-0.pt.trace.json.gz" in console.ready)
    assert runner.poll() is None

    # Until it ends by itself.
    ask(console, profile(9, seconds=60))
    console.wait_for(lambda: "recording" in states(console, "c-9"))
    (house.run_dir / "end").touch()
    house.finish(runner)

    why = why_failed(console)
    assert "No process of OpenRLHF 0.11.2 on this node can be recorded yet" in why["c-1"]
    assert "There is no tool 'none'" in why["c-3"]
    assert "nsys records only processes that it starts" in why["c-6"]
    assert console.terminal_event["state"] == "finished"
    assert states(console, "c-7") == ["armed", "recording", "stopping", "writing", "importing"]
    assert {"aten::mm", "aten::tanh"} <= set(trace_of(console, "c-7-policy-0.pt.trace.json.gz"))
    about = json.loads(console.about["c-7-policy-0.pt.trace.json.gz"]["meta"])
    assert (about["role"], about["rank"], about["tool"], about["capture"]) == ("policy", 0, "torch", "c-7")
    assert about["tool_version"].startswith("torch ")
    (told,) = [event["meta"] for event in console.of_kind("note") if "profilers" in event.get("meta", {})]
    assert told["profilers"]["policy-0"]["torch"] == ""
    assert "starts" in told["profilers"]["policy-0"]["nsys"]
    readings = console.of_kind("system", role="policy")
    assert min(event["values"]["memory_bytes"] for event in readings) > 1e7
    assert next(answer["answer"] for answer in console.answered if answer["number"] == 7) == {"accepted": True}
    assert states(console, "c-9")[-1] == "importing"
    assert (house.run_dir / "inductor").read_text() == "False"  # torch's profiler imports it, if nobody keeps it away
    assert "failed" not in states(console, "c-9")  # nothing follows it, whatever is told later
    assert "aten::mm" in trace_of(console, "c-9-policy-0.pt.trace.json.gz")


@pytest.mark.proof
def test_steps_are_recorded_as_the_log_tells_of_them_and_a_kill_fails_what_is_recorded_then_with_the_reason(
    other: OtherTrainer,  # noqa: F811
    house: House,
    console: FakeConsole,
) -> None:
    steps = "\n".join(f"until('{n}')\ntrain({n})\nwriter.flush()" for n in (1, 2, 3))
    other.is_(TRAINS + steps + "\nuntil('killed')\nos.kill(os.getpid(), 9)\n")
    console.commands = [profile(1, first_step=3, num_steps=1)]
    runner = other.start()
    console.wait_for(lambda: states(console) == ["armed"])
    for step in (1, 2):
        (house.run_dir / str(step)).touch()
        console.wait_for(partial(has_come_to, console, step))
        assert ("recording" in states(console)) <= (step == 2)
    console.wait_for(lambda: "recording" in states(console))
    (house.run_dir / "3").touch()
    console.wait_for(lambda: "importing" in states(console))

    ask(console, profile(2, seconds=60), profile(3, first_step=40))
    console.wait_for(lambda: "recording" in states(console, "c-2") and "armed" in states(console, "c-3"))
    (house.run_dir / "killed").touch()
    house.finish(runner)

    (importing,) = [event for event in console.of_kind("capture") if event["state"] == "importing"]
    assert (importing["meta"]["first_step"], importing["meta"]["num_steps"]) == (3, 1)
    assert importing["meta"]["missing"] == {}
    assert "aten::mm" in trace_of(console, "c-1-policy-0.pt.trace.json.gz")
    assert console.terminal_event["state"] == "failed"
    why = why_failed(console)
    assert "policy-0: " in why["c-2"]  # named by the attached recorder, or by recovery after it
    assert why["c-3"] == "The run ended after step 3, before step 40."


@pytest.mark.proof
def test_a_stop_waits_for_the_file_of_what_is_recorded(
    other: OtherTrainer,  # noqa: F811
    house: House,
    console: FakeConsole,
) -> None:
    other.is_(TRAINS + "train(1)\nwriter.flush()\nuntil('never')\n")
    runner = other.start()
    console.wait_for(lambda: steps_of(console) == [1] and is_there(console))
    ask(console, profile(1, seconds=60, tool="stacks"))
    console.wait_for(lambda: "recording" in states(console))

    ask(console, STOP)
    house.finish(runner)

    assert console.terminal_event["state"] == "stopped"
    assert states(console)[-1] == "importing"
    assert b"until" in bytes(console.files["c-1-policy-0.stacks.txt"])


def test_a_sitecustomize_of_the_environment_is_still_read_and_a_broken_recorder_never_reaches_the_trainer(
    other: OtherTrainer,  # noqa: F811
    house: House,
    console: FakeConsole,
    tmp_path: Path,
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs_was_read = True\n")
    other.is_("import profiling\nassert theirs_was_read\n" + TRAINS + "until('go')\ntrain(1)\nwriter.close()\n")
    (other.module.parents[2] / "profiling.py").write_text("")  # a module of the trainer's, called as ours
    runner = other.start(PYTHONPATH=str(theirs))
    stderr = house.run_dir / "log" / "driver-0.stderr"
    console.wait_for(lambda: stderr.exists() and "this process cannot be recorded" in stderr.read_text())
    (house.run_dir / "go").touch()

    house.finish(runner)

    assert console.terminal_event["state"] == "finished"
    assert steps_of(console) == [1]
