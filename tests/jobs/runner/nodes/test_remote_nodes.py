"""The other nodes of an attempt: when the runner asks them, and what the clean-up report says where they do not
answer."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.nodes.remote_nodes import RemoteNodes, merge, talks_to_ray
from jobs.runner.reporting.trainer_progress import TrainerProgress

RUN, ATTEMPT = f"r-elsewhere-{os.getpid()}", 3  # processes of another session of these tests are not ours
CLEANUP = {"processes_left": 0, "device_bytes_left": 0, "ended": [], "nodes": ["head"], "checked_at": "2026-01-01"}
NODES = [
    {"node": "aa", "index": 0, "address": "10.0.0.1", "name": "head", "workers": ["policy-0"]},
    {"node": "bb", "index": 1, "address": "10.0.0.2", "name": "blue", "workers": ["vllm-0"]},
]


class Listener:
    """Stands for the report: keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def readings(self, *_: Any, **__: Any) -> None:
        raise AssertionError("no node answers in these tests")


def remote_nodes(run_dir: Path, listener: Listener, *, nodes: list[dict[str, Any]], tell: Any = None) -> RemoteNodes:
    (run_dir / "log").mkdir(parents=True)
    note = {"kind": "note", "role": "driver", "rank": 0, "step": 0, "text": "Workers: ...", "meta": {"nodes": nodes}}
    (run_dir / "events.jsonl").write_text(json.dumps(note) + "\n" if nodes else "")
    job = RunnerJob(url="http://127.0.0.1:1", token="t", run=RUN, attempt=ATTEMPT, run_root=run_dir.parents[1])
    progress = TrainerProgress(path=run_dir / "events.jsonl")
    progress.read()
    return RemoteNodes(job, listener, progress, tell=tell)  # type: ignore[arg-type]  # a listener is all it needs of a report


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / RUN / f"a{ATTEMPT}"


@pytest.mark.parametrize("nodes", [[], NODES[:1]])
def test_a_run_on_one_node_starts_no_helper(run_dir: Path, nodes: list[dict[str, Any]]) -> None:
    helper = remote_nodes(run_dir, Listener(), nodes=nodes)

    helper.watch(0.0)
    helper.watch(1e6)
    helper.begin_end(1.0)

    assert helper.finish_end(CLEANUP, is_hurried=False) == CLEANUP
    assert helper.pid is None


def test_the_start_of_the_trainer_is_not_slowed(run_dir: Path) -> None:
    helper = remote_nodes(run_dir, Listener(), nodes=NODES)

    helper.watch(100.0)
    helper.watch(129.0)

    assert helper.pid is None


def test_nodes_are_named_where_ray_is_gone(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{probe.getsockname()[1]}")
        listener = Listener()
        helper = remote_nodes(run_dir, listener, nodes=NODES)

        helper.begin_end(1.0)
        cleanup = helper.finish_end(CLEANUP, is_hurried=False)

    assert cleanup == {**CLEANUP, "nodes_unchecked": ["blue (10.0.0.2)"]}
    assert any("Ray does not answer" in line for line in listener.lines)


def test_nodes_that_the_trainer_does_not_tell_of_are_told_by_whoever_writes_its_events(run_dir: Path) -> None:
    told: list[tuple[str, Any]] = []
    helper = remote_nodes(run_dir, Listener(), nodes=[], tell=lambda text, nodes: told.append((text, nodes)))

    helper._take({"nodes": NODES, "text": "1 × Worker on node 1, blue"})
    is_told_from_its_own_thread = bool(told)
    helper.watch(0.0)
    helper.watch(1.0)

    assert not is_told_from_its_own_thread
    assert told == [("1 × Worker on node 1, blue", NODES)]


def test_a_trainer_that_does_not_talk_to_ray_has_no_helper(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ray:
        address = f"127.0.0.1:{ray.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        helper = remote_nodes(run_dir, Listener(), nodes=[], tell=lambda *_: None)

        helper.watch(0.0, trainer=os.getpid())
        helper.watch(1e6, trainer=os.getpid())
        with socket.create_connection(ray.getsockname()):
            talks = talks_to_ray(os.getpid(), address)

    assert helper.pid is None
    assert talks


def test_one_cleanup_report_speaks_for_all_nodes() -> None:
    there = {**CLEANUP, "processes_left": 2, "device_bytes_left": 7, "ended": ["12 sleep"], "nodes": ["blue"]}

    found = merge(CLEANUP, {"blue (10.0.0.2)": there}, [])

    assert found["processes_left"] == 2
    assert found["device_bytes_left"] == 7
    assert found["ended"] == ["blue (10.0.0.2): 12 sleep"]
    assert found["nodes"] == ["head", "blue (10.0.0.2)"]
    assert "nodes_unchecked" not in found


def test_memory_that_one_node_cannot_read_is_not_called_zero() -> None:
    found = merge(CLEANUP, {"blue": {**CLEANUP, "device_bytes_left": None}}, [])

    assert found["device_bytes_left"] is None


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, "PITWALL_RUN": RUN, "PITWALL_ATTEMPT": str(ATTEMPT)}
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env)
    yield process
    process.kill()
    process.wait()


# Apart from this process, whose children, a Ray head of other tests among them, would be orphan processes as well.
KILL_ORPHANS = """
import json, sys
from jobs.runner.nodes.orphans import kill_orphans, find
run, attempt, helper = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
found = [process.pid for process in find(run=run, attempt=attempt, session=None)]
cleanup = kill_orphans(run=run, attempt=attempt, helper=helper, leave_seconds=0.0)
print(json.dumps([found, cleanup["ended"]]))
"""


def test_the_helper_is_no_orphan(child: subprocess.Popen[bytes]) -> None:
    argv = [sys.executable, "-c", KILL_ORPHANS, RUN, str(ATTEMPT), str(child.pid)]

    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout

    assert json.loads(said) == [[child.pid], []]
    assert child.poll() is None
