"""What every tool that records promises: one suite for each file of profiling/recorders.

A tool that this machine lacks has a stand-in here, of the few calls that its recorder makes. What single tools record
is in tests/profiling/captures/test_recording.py.
"""

import inspect
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import pytest

from profiling import plugins, profile
from profiling.captures import recording
from profiling.config import TOOLS, WHATS, Device
from profiling.launch_nsys import SESSION
from profiling.profile import mark
from profiling.profilers import mstx, nvtx
from profiling.recorders.recorder import Recorder, RecorderFailed, Tool, load_tool, tool_names
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
NAMES = tool_names()
NAME = "c1-policy-0"
LIBRARIES = ("torch", "torch_npu", "nvtx", "ray")
Patch = pytest.MonkeyPatch


class Allocator:
    """What torch's allocator offers where there is a device."""

    def _record_memory_history(self, **_: Any) -> None:
        """Nothing."""

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": [], "device_traces": []}


def _memory(patch: Patch, _: Path) -> None:
    cuda = SimpleNamespace(is_available=lambda: True, memory=Allocator())
    patch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="2.9.0"))


class Msprof:
    """Ascend's profiler: its handler is the folder that it writes to."""

    def __init__(self, *, on_trace_ready: str, **_: Any) -> None:
        self.folder = Path(on_trace_ready)

    def start(self) -> None:
        """Nothing."""

    def stop(self) -> None:
        (self.folder / "trace_view.json").write_text("[]")


def _msprof(patch: Patch, _: Path) -> None:
    made: Any = ModuleType("torch_npu")
    made.__spec__, made.__version__ = ModuleSpec("torch_npu", None), "2.9.0"
    made.npu = SimpleNamespace(mstx=SimpleNamespace(range_start=lambda _: 1, range_end=lambda _: None))
    made.profiler = SimpleNamespace(
        profile=Msprof,
        ProfilerActivity=SimpleNamespace(CPU="cpu", NPU="npu"),
        tensorboard_trace_handler=str,
        _ExperimentalConfig=dict,
    )
    patch.setitem(sys.modules, "torch_npu", made)
    mstx._mstx.cache_clear()


def _nsys(patch: Patch, folder: Path) -> None:
    """A session that writes the report when it is stopped."""
    script = folder / "nsys"
    lines = (
        "#!/bin/sh",
        f'case $1 in start) while [ "$1" != -o ]; do shift; done; echo "$2" >{folder}/session ;;',
        f'stop) printf "report [END]" >"$(cat {folder}/session)" ;;',
        '--version) echo "NVIDIA Nsight Systems version 2024.6.2" ;; esac',
    )
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    patch.setenv("PATH", str(folder), prepend=":")
    patch.setenv(SESSION, "pitwall-1")
    ranges = ("start_range", "end_range", "push_range", "pop_range")
    patch.setitem(sys.modules, "nvtx", SimpleNamespace(**{name: lambda *_, **__: None for name in ranges}))
    nvtx.package.cache_clear()


STAND_INS: Mapping[str, Callable[[Patch, Path], None]] = {"memory": _memory, "msprof": _msprof, "nsys": _nsys}


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the process stands: a recorder that lost its own folder has removed it before."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "somebody's").touch()
    monkeypatch.chdir(made)
    yield made
    assert [path.name for path in made.iterdir()] == ["somebody's"]


@pytest.fixture(params=NAMES)
def tool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tool]:
    """Each tool, able to record."""
    beside = tmp_path / "stand-in"
    beside.mkdir()
    profile.configure("none")
    with pytest.MonkeyPatch.context() as patch:
        if request.param in STAND_INS:
            STAND_INS[request.param](patch, beside)
        found = load_tool(request.param)
        assert found.problem() == "", "without its tool it needs a stand-in"
        yield found
        recording.discard()
    nvtx.package.cache_clear()
    mstx._mstx.cache_clear()
    profile._set((), records_details=True)
    profile.drain()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files are made; there is no such folder yet."""
    return tmp_path / "traces"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*")) if folder.exists() else []


def marks_on() -> set[str]:
    return {backend.name for backend in profile._backends}


def work(step: int) -> None:
    recording.at_step(step)
    with mark("update", step=step), mark("update", name="forward"):
        sum(range(1000))


def ended() -> recording.Outcome:
    """End the recording and return what became of it; one that cannot be ended has failed as well."""
    try:
        path = recording.stop()
    except RecorderFailed as error:
        return recording.Outcome(path=Path(), problem=str(error))
    wait_until(lambda: recording.outcome(path).size >= 0 or recording.outcome(path).problem, 60)
    return recording.outcome(path)


def test_a_spec_can_ask_for_each() -> None:
    assert set(TOOLS) == set(NAMES)


def test_each_thing_that_people_ask_to_see_is_shown_by_a_tool() -> None:
    assert {what for name in NAMES for what in load_tool(name).shows} == set(WHATS)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_what_the_contract_names(name: str) -> None:
    tool = load_tool(name)

    assert tool.name == name
    assert tool.about
    assert not tool.about.endswith(".")
    assert tool.lost.endswith(".")
    assert tool.suffix.startswith(".")
    assert isinstance(tool.must_tell, bool)
    assert isinstance(tool.is_only_named, bool)
    made = tool.recorder("")
    assert made.marks in plugins.names("profiling.profilers")
    for protocol, one in ((Tool, tool), (Recorder, made)):
        for method, wanted in inspect.getmembers(protocol, inspect.isfunction):
            if not method.startswith("_"):
                parameters = [p for p in inspect.signature(wanted).parameters if p != "self"]
                assert list(inspect.signature(getattr(one, method)).parameters) == parameters, method


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_shows_where_and_in_which_place(name: str) -> None:
    tool = load_tool(name)

    assert tool.shows
    for what, shown in tool.shows.items():
        assert what in WHATS
        assert shown.on
        assert set(shown.on) <= set(get_args(Device))
        assert shown.order >= 1
        assert shown.because
        assert not shown.because.endswith(".")
        for other in (load_tool(other) for other in NAMES if other != name):
            if what in other.shows and set(other.shows[what].on) & set(shown.on):
                assert other.shows[what].order != shown.order, (what, other.name)


@pytest.mark.parametrize("name", NAMES)
def test_where_its_tool_is_missing_it_says_so_and_nothing_is_left(name: str, folder: Path) -> None:
    code = f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
for each in {LIBRARIES!r}:
    sys.modules[each] = None
from profiling.captures import recording
from profiling.recorders.recorder import RecorderFailed, load_tool, version_of
tool, said = load_tool({name!r}), ""
try:
    recording.start({name!r}, folder=Path({str(folder)!r}), name="c1-policy-0")
except RecorderFailed as error:
    said = str(error)
recording.discard()
print(json.dumps([tool.problem(), said, version_of(tool)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/nowhere"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert done.returncode == 0, done.stderr
    problem, said, _ = json.loads(done.stdout)
    assert not problem or problem.endswith(".")
    assert not problem or said == problem
    assert files(folder) == []


def test_a_recording_becomes_one_whole_file(tool: Tool, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for count in (1, 2):  # and another one after it
        path = recording.start(tool.name, folder=folder, name=f"{NAME}-{count}")
        assert path == folder / f"{NAME}-{count}{tool.suffix}"
        assert marks_on() == {tool.recorder("").marks} - {"none"}
        work(1)
        work(2)
        found = ended()

        assert found.problem == ""
        assert found.size == path.stat().st_size > 0
        assert found.version == tool.version() != ""
        assert tool.problem_of_left(path, ()) == ""
        assert marks_on() == set()
        assert len(files(folder)) == count
    assert capsys.readouterr().err == ""


def test_one_that_is_dropped_leaves_nothing_and_the_next_one_starts(tool: Tool, folder: Path) -> None:
    for _ in range(2):
        recording.start(tool.name, folder=folder, name=NAME)
        work(1)
        recording.discard()

        assert marks_on() == set()
        assert files(folder) == []


def test_one_that_did_not_start_is_dropped_as_well(tool: Tool) -> None:
    tool.recorder("").discard()


def test_a_file_that_cannot_be_written_is_told(tool: Tool, folder: Path) -> None:
    recording.start(tool.name, folder=folder, name=NAME)
    work(1)
    shutil.rmtree(folder)
    folder.touch()

    found = ended()

    assert found.size == -1
    assert found.problem
    assert marks_on() == set()


def test_another_thread_ends_a_recording_of_all_threads(tool: Tool, folder: Path) -> None:
    found: list[recording.Outcome] = []
    recording.start(tool.name, folder=folder, name=NAME, is_beside=True)
    work(1)
    thread = threading.Thread(target=lambda: found.append(ended()))
    thread.start()
    thread.join()

    assert [one.problem for one in found] == [""]


def test_where_it_sees_only_its_own_thread_no_other_starts_it(tool: Tool, folder: Path) -> None:
    for what in tool.shows:
        if not tool.recorder(what).sees_other_threads():
            with pytest.raises(RecorderFailed, match="records only the thread that starts it"):
                recording.start(tool.name, folder=folder, name=NAME, what=what, is_beside=True)
    assert files(folder) == []


def test_of_nobody_there_is_nothing_to_gather(tool: Tool, folder: Path) -> None:
    folder.mkdir()

    assert tool.gather(folder, "c1") == {}
    assert files(folder) == []
