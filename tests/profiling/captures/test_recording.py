"""One recording at a time in a process, with torch's real profiler: what the trace holds, and what is refused."""

import gzip
import json
import pickle
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from profiling import profile
from profiling.captures import recording
from profiling.profile import mark
from profiling.recorders import memory, msprof, nsys
from profiling.recorders import torch as torch_recorder
from profiling.recorders.recorder import RecorderFailed
from profiling.recorders.stacks import StacksRecorder
from profiling.stacks import grouped
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    profile.configure("none")
    yield
    recording.discard()
    profile._set((), records_details=True)
    profile.drain()


def work(step: int) -> None:
    recording.at_step(step)
    with mark("rollout", step=step):
        torch.ones(20) + 1
    with mark("update", step=step), mark("update", name="forward"):
        torch.ones(8, 8) @ torch.ones(8, 8)


def written(path: Path) -> recording.Outcome:
    wait_until(lambda: recording.outcome(path).size >= 0 or recording.outcome(path).problem, 30)
    return recording.outcome(path)


def annotations(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return sorted((e for e in events if e.get("cat") == "user_annotation"), key=lambda e: (e["ts"], -e["dur"]))


def test_a_trace_holds_the_phases_of_the_recorded_steps_and_no_others(tmp_path: Path) -> None:
    work(1)
    recording.start("torch", folder=tmp_path, name="policy-0")
    work(2)
    work(3)
    path = recording.stop()
    work(4)

    assert written(path).size == path.stat().st_size > 0
    assert written(path).version == f"torch {torch.__version__} (kineto)"
    one_step = ["rollout", "update", "update/forward"]
    names = [e["name"] for e in annotations(path)]
    assert names == ["ProfilerStep#2", *one_step, "ProfilerStep#3", *one_step, "end of recording"]
    spans = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in annotations(path)}
    (begin, end), (phase_begin, phase_end) = spans["ProfilerStep#3"], spans["update"]
    assert begin <= phase_begin <= phase_end <= end
    with gzip.open(path) as file:
        assert any(e["name"] == "aten::mm" for e in json.load(file)["traceEvents"])


def test_a_second_recording_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    recording.start("torch", folder=tmp_path, name="first")
    with pytest.raises(RecorderFailed, match=r"first.pt.trace.json.gz is still being recorded in this process"):
        recording.start("torch", folder=tmp_path, name="second")
    work(5)

    path = recording.stop()

    assert written(path).problem == ""
    assert "ProfilerStep#5" in [e["name"] for e in annotations(path)]


def test_the_next_recording_waits_for_the_file_of_the_one_before(tmp_path: Path) -> None:
    paths = []
    for step in (1, 2):
        recording.start("torch", folder=tmp_path, name=f"capture-{step}")
        work(step)
        paths.append(recording.stop())

    for step, path in enumerate(paths, start=1):
        assert written(path).problem == ""
        assert next(e["name"] for e in annotations(path)) == f"ProfilerStep#{step}"


def test_a_process_that_ends_while_a_recording_is_ended_waits_for_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping, may_go_on = threading.Event(), threading.Event()
    end = torch_recorder.TorchRecorder.stop

    def slow_stop(self: torch_recorder.TorchRecorder) -> None:
        stopping.set()
        may_go_on.wait(30)
        end(self)

    monkeypatch.setattr(torch_recorder.TorchRecorder, "stop", slow_stop)
    path = recording.start("torch", folder=tmp_path, name="policy-0", is_beside=True)
    work(1)
    threading.Thread(target=recording.stop).start()
    stopping.wait(30)
    leaving = threading.Thread(target=recording.leave)
    leaving.start()
    may_go_on.set()
    leaving.join(30)

    assert recording.outcome(path).size > 0, "the process would end now, and its writer with it"


def test_a_recording_that_is_ended_while_its_process_ends_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves writes it; to end it once more then broke off what was being written."""
    is_writing, may_go_on = threading.Event(), threading.Event()
    write = torch_recorder.TorchRecorder.write

    def slow_write(self: torch_recorder.TorchRecorder) -> None:
        is_writing.set()
        may_go_on.wait(30)
        write(self)

    monkeypatch.setattr(torch_recorder.TorchRecorder, "write", slow_write)
    path = recording.start("torch", folder=tmp_path, name="policy-0", is_beside=True)
    work(1)
    leaving = threading.Thread(target=recording.leave)
    leaving.start()
    is_writing.wait(30)

    recording.discard()  # neither takes it away
    assert recording.stop() == path
    assert recording.outcome(path).size < 0
    may_go_on.set()
    leaving.join(30)

    assert recording.outcome(path).size == path.stat().st_size > 0


def test_a_profiler_of_the_trainer_is_not_disturbed(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
        with pytest.raises(RecorderFailed, match="Another torch profiler is recording"):
            recording.start("torch", folder=tmp_path, name="ours")
        torch.ones(3) + 1

    assert any(event.key == "aten::add" for event in own.key_averages())


def test_a_torch_without_that_mode_is_not_stopped_from_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profiling.recorders.torch._all_threads", lambda: None)
    recording.start("torch", folder=tmp_path, name="policy-0")
    said: list[str] = []

    def stop() -> None:
        try:
            recording.stop()
        except RecorderFailed as error:
            said.append(str(error))

    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()

    assert said
    assert "started in another thread" in said[0]
    assert written(recording.stop()).size > 0  # here it can be


def test_nothing_is_recorded_without_a_start() -> None:
    recording.at_step(3)
    with pytest.raises(RecorderFailed, match="Nothing is being recorded"):
        recording.stop()
    assert recording.outcome(Path("/nowhere")).problem == "nowhere was not recorded in this process."


def test_nsys_says_why_it_cannot_record_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PITWALL_NSYS_SESSION", raising=False)
    with pytest.raises(RecorderFailed, match=r"nsys (is not installed on|on) node|was not started under nsys"):
        recording.start("nsys", folder=tmp_path, name="policy-0")
    assert recording.problems()["torch"] == ""


def standing_here(release: threading.Event) -> None:
    release.wait(120)


def test_samples_of_stacks_show_where_another_thread_stands(tmp_path: Path) -> None:
    release = threading.Event()
    busy = threading.Thread(target=standing_here, args=(release,), name="worker")
    busy.start()
    recording.start("stacks", folder=tmp_path, name="policy-0", is_beside=True)
    counts = cast(StacksRecorder, cast(Any, recording)._current.recorder)._counts
    wait_until(lambda: sum(n for key, n in list(counts.items()) if key[0] == "worker") >= 3, 60)
    release.set()
    busy.join()
    path = recording.stop()

    assert written(path).problem == ""
    counted = [line.rpartition(" ") for line in path.read_text().splitlines()]
    mine = [int(count) for stack, _, count in counted if stack.startswith("worker;") and "standing_here" in stack]
    assert sum(mine) >= 2
    assert "standing_here (captures/test_recording.py:" in path.read_text()


def test_equal_stacks_stand_together_those_of_most_processes_first() -> None:
    waiting, working = ("main (a.py:1)", "all_reduce (b.py:2)"), ("main (a.py:1)", "forward (c.py:3)")
    found = grouped(
        {
            "policy-0": {"MainThread": waiting, "writer": working},
            "policy-1": {"MainThread": working},
            "policy-2": {"MainThread": waiting},
            "policy-3": {"MainThread": waiting},
        }
    )
    assert [(group.stack, group.where) for group in found] == [
        (waiting, ("policy-0", "policy-2", "policy-3")),
        (working, ("policy-0 writer", "policy-1")),
    ]


class Allocator:
    """What torch's allocator offers, for a machine without a device."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def _record_memory_history(self, **asked: Any) -> None:
        self.asked.append(asked)

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 512, "time_us": 7}]]}


def test_a_memory_snapshot_holds_the_history_and_keeps_none_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = Allocator()
    monkeypatch.setattr(memory, "_memory", lambda: allocator)
    monkeypatch.setattr(memory.MemoryTool, "problem", lambda _self: "")
    recording.start("memory", folder=tmp_path, name="policy-0", is_beside=True)
    path = recording.stop()

    assert written(path).problem == ""
    assert pickle.loads(path.read_bytes())["device_traces"][0][0]["size"] == 512
    assert allocator.asked == [{"max_entries": memory.MOST_ENTRIES}, {"enabled": None}]


def test_ascend_is_recorded_with_marks_and_its_folder_zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    class Profile:
        def __init__(self, **settings: Any) -> None:
            asked.update(settings)

        def start(self) -> None: ...

        def stop(self) -> None:
            (Path(asked["on_trace_ready"]) / "x_ascend_pt").mkdir()
            (Path(asked["on_trace_ready"]) / "x_ascend_pt" / "trace_view.json").write_text("[]")

    stand_in = SimpleNamespace(
        __version__="2.9.0",
        profiler=SimpleNamespace(
            profile=Profile,
            ProfilerActivity=SimpleNamespace(CPU="cpu", NPU="npu"),
            tensorboard_trace_handler=lambda folder: folder,
            _ExperimentalConfig=lambda **settings: settings,
        ),
    )
    monkeypatch.setitem(sys.modules, "torch_npu", stand_in)
    monkeypatch.setattr(msprof.MsprofTool, "problem", lambda _self: "")
    recording.start("msprof", folder=tmp_path, name="policy-0", is_beside=True)
    path = recording.stop()

    assert written(path).problem == ""
    assert written(path).version == "torch_npu 2.9.0"
    assert asked["experimental_config"] == {"msprof_tx": True}
    assert zipfile.ZipFile(path).namelist()[-1] == "x_ascend_pt/trace_view.json"


def test_a_trace_that_the_disk_did_not_take_whole_is_no_trace(tmp_path: Path) -> None:
    """Kineto says nothing of it, and torch makes a gzip of nothing then; a limit on files stands in for the disk."""
    code = f"""
import resource, signal, time
from pathlib import Path
from profiling.captures import recording
import torch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = recording.start("torch", folder=Path({str(tmp_path)!r}), name="policy-0")
for _ in range(500):
    torch.ones(3) + 1
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
recording.stop()
while recording.outcome(path).size < 0 and not recording.outcome(path).problem:
    time.sleep(0.01)
print(recording.outcome(path).problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert re.search(r"The trace was not written.* MiB are free in ", done.stdout)
    assert list(tmp_path.iterdir()) == []


def test_nsys_is_not_started_where_it_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys, "FREE_BYTES", 1 << 60)

    with pytest.raises(RecorderFailed, match=r"nsys needs \d+ MiB of free disk: \d+ MiB are free in /.*Free some"):
        nsys.NsysRecorder().start(tmp_path / "policy-0.nsys-rep")


def test_nsys_drops_a_recording_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = tmp_path / "nsys-report-1a.qdstrm"
    raw.write_bytes(b"raw")
    asked: list[str] = []

    def ask(_self: Any, verb: str, *_arguments: str, **_options: Any) -> str:
        asked.append(verb)
        return f"Generating '{raw}'"

    monkeypatch.setattr(nsys, "LOW_BYTES", 1 << 60)
    monkeypatch.setattr(nsys.NsysRecorder, "_ask", ask)
    recorder = nsys.NsysRecorder()
    recorder.start(tmp_path / "policy-0.nsys-rep")
    wait_until(lambda: "cancel" in asked, 60)

    with pytest.raises(RecorderFailed, match="was dropped, so that the disk does not fill"):
        recorder.stop()
    assert asked == ["start", "cancel"]
    assert not raw.exists()


def test_an_import_that_nsys_says_failed_is_told_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Importer error status: Importation failed.\nFailed to create 'c.qdstrm': No space left on device."
    monkeypatch.setattr(nsys.NsysRecorder, "_ask", lambda *_a, **_o: said)
    recorder = nsys.NsysRecorder()
    recorder.start(tmp_path / "policy-0.nsys-rep")

    with pytest.raises(RecorderFailed, match=r"could not write its report: Failed to create .*No space left"):
        recorder.stop()


def test_what_operators_allocate_is_recorded_only_for_memory(tmp_path: Path) -> None:
    def allocations(what: str) -> int:
        recording.start("torch", folder=tmp_path, name=f"for-{what}", what=what)
        work(1)
        path = recording.stop()
        assert written(path).problem == ""
        with gzip.open(path) as file:
            return sum(event["name"] == "[memory]" for event in json.load(file)["traceEvents"])

    assert allocations("operators") == 0
    assert allocations("memory") > 0


def test_inductor_is_out_of_sight_only_for_the_thread_that_starts_a_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    monkeypatch.delenv(torch_recorder.GRAPHS, raising=False)
    names = {"_dynamo", "_inductor"}
    fake = SimpleNamespace(_lazy_modules=names)
    seen: list[bool] = []

    with torch_recorder._inductor_stays_away(fake):
        assert [name in fake._lazy_modules for name in ("_dynamo", "_inductor")] == [True, False]
        other = threading.Thread(target=lambda: seen.append("_inductor" in fake._lazy_modules))
        other.start()
        other.join()

    assert seen == [True]
    assert fake._lazy_modules is names


def test_a_profiler_looks_for_graphs_of_inductor_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(torch_recorder.GRAPHS, "1")
    fake = SimpleNamespace(_lazy_modules={"_inductor"})

    with torch_recorder._inductor_stays_away(fake):
        assert "_inductor" in fake._lazy_modules
