"""The launcher on a node: with a working nsys the worker runs under it, and a report holds what was asked.

The launcher runs here as Ray runs it: as the interpreter in a bash command line.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from profiling import launch_nsys
from profiling.recorders.nsys import NsysRecorder
from profiling.recorders.recorder import load_tool
from tests.profiling.nsys_report import ranges
from tests.waiting import wait_until

HOUSE = Path(__file__).parents[2]
BASH = shutil.which("bash") or "/bin/bash"
SECRET = "c0ffee-of-the-cluster"  # nsys keeps the environment of what it sees
WORKER = """
import contextlib, json, os, subprocess, sys, time
from pathlib import Path
from profiling import profile
from profiling.captures import recording
from profiling.profile import mark

folder = Path(sys.argv[1])
told = {"python": sys.executable, "argv": sys.argv[1:], "marks": profile.configure("auto")}
told["start"] = os.environ.get("START", "")
told["problem"] = recording.problems()["nsys"]

def work(step):
    recording.at_step(step)
    with mark("rollout", step=step):
        time.sleep(0.01)
    with mark("update", step=step), mark("update", name="forward"):
        time.sleep(0.01)

if not told["problem"]:
    told["seconds"] = {}
    for capture, steps in ((1, (2, 3)), (2, (5,))):
        work(steps[0] - 1)
        begin = time.monotonic()
        recording.start("nsys", folder=folder, name=f"capture-{capture}")
        told["seconds"][f"start-{capture}"] = time.monotonic() - begin
        for step in steps:
            work(step)
        begin = time.monotonic()
        path = recording.stop()
        told["seconds"][f"stop-{capture}"] = time.monotonic() - begin
        while recording.outcome(path).size < 0 and not recording.outcome(path).problem:
            time.sleep(0.05)
        told[f"outcome-{capture}"] = [getattr(recording.outcome(path), name) for name in ("size", "problem", "version")]
    told["agents"] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if f"--session-name={os.environ['PITWALL_NSYS_SESSION']}".encode() in path.read_bytes():
                told["agents"].append(int(path.parent.name))
(folder / "told.json").write_text(json.dumps(told))
"""


def launch(folder: Path, *arguments: str, path: str | None = None, **options: Any) -> dict[str, Any]:
    """Run the worker as Ray does, and return what it told."""
    worker = folder / "lib" / "python3.99" / "site-packages" / "default_worker.py"
    worker.parent.mkdir(parents=True)
    worker.write_text(WORKER)
    executable = launch_nsys.runtime_env(**({"ready": "auto", "trace": "nvtx"} | options))["py_executable"]
    command = f"exec {executable} {shlex.join([str(worker), str(folder), *arguments])}"
    environment = (
        os.environ | {"PYTHONPATH": str(HOUSE), "RAY_AUTH_TOKEN": SECRET} | ({"PATH": path} if path is not None else {})
    )
    environment.pop("PITWALL_NSYS_SESSION", None)
    subprocess.run([BASH, "-c", command], env=environment, check=True, timeout=300)
    return json.loads((folder / "told.json").read_text())  # type: ignore[no-any-return]


def path_without_nsys(folder: Path) -> str:
    """A PATH of everything the launcher calls, and no nsys."""
    folder.mkdir()
    for name in ("sh", "dirname", "readlink", "ls", "timeout", "mktemp"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return str(folder)


def step_of(number: int) -> list[tuple[str, int]]:
    names = (f"step {number}", "rollout", "update", "update/forward")
    return [(name, number) for name in names]


def test_a_report_holds_the_phases_of_exactly_the_asked_steps(tmp_path: Path) -> None:
    if problem := launch_nsys.problem_of_install():
        pytest.skip(f"needs nsys: {problem}")

    told = launch(tmp_path, "an argument; with 'signs' and $HOME")

    assert told["problem"] == ""
    assert told["argv"][1] == "an argument; with 'signs' and $HOME"
    assert told["marks"] == ["timers", "nvtx"]
    assert told["outcome-1"][1:] == told["outcome-2"][1:] == ["", launch_nsys.version_of_install()]
    assert launch_nsys.version_of_install().startswith("nsys 2")
    assert ranges(tmp_path / "capture-1.nsys-rep")[:-1] == step_of(2) + step_of(3)
    assert ranges(tmp_path / "capture-2.nsys-rep")[:-1] == step_of(5)
    for report in (tmp_path / "capture-1.nsys-rep", tmp_path / "capture-2.nsys-rep"):
        assert b"RAY_AUTH_TOKEN=" in report.read_bytes(), "nsys no longer keeps the environment as plain text"
        assert SECRET.encode() not in report.read_bytes()
    assert len(told["agents"]) == 1
    wait_until(lambda: not psutil.pid_exists(told["agents"][0]), 60)  # it ends with the worker


PLAIN = (str(shutil.which("env")), "START=a 'plain' one", sys.executable)


def test_without_nsys_a_worker_is_started_by_its_plain_command(tmp_path: Path) -> None:
    told = launch(tmp_path, path=path_without_nsys(tmp_path / "bin"), ready="on", plain=PLAIN)

    assert told["start"] == "a 'plain' one"


def test_auto_gives_way_to_a_plain_command_unless_nsys_was_asked_for() -> None:
    plain = {"py_executable": shlex.join(PLAIN)}
    assert launch_nsys.runtime_env(ready="auto", trace="nvtx", plain=PLAIN) == plain
    assert launch_nsys.runtime_env(ready="off", trace="nvtx", plain=PLAIN) == plain
    for options in ({"ready": "auto", "tool": "nsys"}, {"ready": "on"}):
        started = launch_nsys.runtime_env(**({"trace": "nvtx", "plain": PLAIN} | options))
        assert "launch_nsys" in started["py_executable"]


def test_without_nsys_the_worker_just_runs(tmp_path: Path) -> None:
    told = launch(tmp_path, path=path_without_nsys(tmp_path / "bin"))

    assert told["python"] == sys.executable  # the driver's, where none stands beside Ray's worker program
    assert told["marks"] == ["timers"]
    assert "nsys is not installed on node" in told["problem"]


@pytest.mark.parametrize(
    ("importer", "why"),
    [
        ("", "there is no host-linux-x64 beside"),
        ("#!/bin/sh\necho libssh.so: cannot open >&2; exit 127\n", "does not run (libssh.so: cannot open)"),
    ],
)
def test_an_nsys_that_cannot_write_reports_is_not_used(tmp_path: Path, importer: str, why: str) -> None:
    path = path_without_nsys(tmp_path / "bin")
    program(tmp_path / "target-linux-x64" / "nsys", "#!/bin/sh\n[ $1 = --version ]\n")
    if importer:
        program(tmp_path / "host-linux-x64" / "QdstrmImporter", importer)
    (tmp_path / "bin" / "nsys").symlink_to(tmp_path / "target-linux-x64" / "nsys")

    told = launch(tmp_path, path=path)

    assert told["marks"] == ["timers"]
    assert why in told["problem"]
    assert str(tmp_path) in told["problem"]


@pytest.mark.parametrize(("failures", "session"), [(2, "pitwall"), (9, "")])
def test_a_launch_that_fails_is_tried_again_and_leaves_no_agent(tmp_path: Path, failures: int, session: str) -> None:
    """Of many launches at one moment nsys loses some: the worker has to come up all the same."""
    agent = tmp_path / "agent"
    program(agent, f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
    program(
        tmp_path / "target-linux-x64" / "nsys",
        f"""#!/bin/sh
        [ "$1" = --version ] && exit 0
        echo x >> {tmp_path}/launches
        if [ $(wc -l < {tmp_path}/launches) -le {failures} ]; then
            {agent} --session-name=${{2#--session-new=}} >/dev/null 2>&1 & echo $! >> {tmp_path}/agents
            until grep -qs -e --session-name= /proc/$!/cmdline; do sleep 0.01; done
            echo End of file; exit 1
        fi
        shift 5; exec "$@"
        """,
    )
    program(tmp_path / "host-linux-x64" / "QdstrmImporter", "#!/bin/sh\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "nsys").symlink_to(tmp_path / "target-linux-x64" / "nsys")
    worker = tmp_path / "worker.py"
    worker.write_text("import os; print('session', os.environ.get('PITWALL_NSYS_SESSION', '').partition('-')[0])")
    executable = launch_nsys.runtime_env(ready="auto", trace="nvtx")["py_executable"]

    done = subprocess.run(
        [BASH, "-c", f"exec {executable} {worker}"],
        env=os.environ | {"PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"session {session}\n" in done.stdout
    agents = [int(pid) for pid in (tmp_path / "agents").read_text().split()]
    assert len(agents) == min(failures, 3)
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in agents), 60)
    assert list(tmp_path.glob("tmp.*")) == []


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_the_interpreter_is_the_one_that_ray_runs_with_on_the_node(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3.99", f'#!/bin/sh\nPYTHON_OF_NODE=1 exec {sys.executable} "$@"\n')
    worker = tmp_path / "lib64" / "python3.99" / "site-packages" / "ray" / "worker.py"
    worker.parent.mkdir(parents=True)
    worker.write_text("import os; print(os.environ['PYTHON_OF_NODE'])")
    executable = launch_nsys.runtime_env(ready="auto", trace="nvtx")["py_executable"]
    environment = os.environ | {"PATH": path_without_nsys(tmp_path / "tools")}

    done = subprocess.run(
        [BASH, "-c", f"exec {executable} {worker}"], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "1\n"


def test_off_leaves_workers_as_ray_starts_them() -> None:
    assert launch_nsys.runtime_env(ready="off", trace="nvtx") == {}


def test_on_cuda_auto_gives_way_to_a_torch_trace_that_was_asked_for_at_launch() -> None:
    for ready, trace, tool, is_ready in (
        ("auto", "cuda,nvtx", "torch", False),
        ("on", "cuda,nvtx", "torch", True),
        ("auto", "cuda,nvtx", "nsys", True),
        ("auto", "nvtx", "torch", True),
    ):
        found = launch_nsys.runtime_env(ready=ready, trace=trace, tool=tool)  # type: ignore[arg-type]  # literals
        assert bool(found) == is_ready, (ready, trace, tool)


def test_torch_says_that_nsys_has_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITWALL_NSYS_TRACE", "cuda,nvtx")

    assert "profile.nsys_ready off" in load_tool("torch").problem()


def test_a_process_that_was_not_started_under_nsys_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_nsys, "problem_of_install", lambda: "")

    assert "profile.nsys_ready is off" in launch_nsys.problem_of_process({})
    assert launch_nsys.problem_of_process({"PITWALL_NSYS_SESSION": "pitwall-1"}) == ""


def test_the_installation_needs_no_root_in_one_of_its_ways() -> None:
    assert "sudo" in launch_nsys.INSTALL
    without_root = launch_nsys.INSTALL.partition("Without root on Debian")[2]
    assert "dpkg -x" in without_root
    assert "sudo" not in without_root


@pytest.mark.parametrize(("is_ours", "is_waited_for"), [(True, True), (False, False)])
def test_nobody_else_s_file_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_ours: bool, is_waited_for: bool
) -> None:
    """The folder is everybody's: another user could hold up all captures of a node."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "nsys-report-1a2b.qdstrm").touch()
    owner = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: owner if is_ours else owner + 1)

    assert NsysRecorder()._is_importing() is is_waited_for
