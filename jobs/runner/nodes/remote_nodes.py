"""The other nodes of an attempt, as the runner sees them: through a helper that it starts, and can do without.

On a single node there is no helper, and nothing here costs anything. Where the trainer says that it has workers on
other nodes, `python -m jobs.runner.nodes.agents` is started once they are ready; it reads those nodes, and at the end
cleans up there. Of a trainer that says nothing it is started once that talks to Ray, and looks where its actors are; on
a cluster of one node it leaves then. If it does not come up, or Ray is gone, the clean-up report says which nodes were
not checked.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil

from jobs.runner.console_client.runner_job import RunnerJob
from jobs.runner.nodes.orphans import Cleanup
from jobs.runner.reporting.shipped_report import ShippedReport
from jobs.runner.reporting.trainer_progress import TrainerProgress, node_name
from jobs.runner.trainer import HIDDEN

RAY_LOOK_SECONDS = 3.0
START_AFTER_SECONDS = 30.0  # from the word on who sits where: a start is not slowed, and a long one is watched
END_SECONDS = 40.0  # for joining Ray, ending what is left, and fetching logs
LEFT_SECONDS = 120.0  # besides, for what workers there left of captures
HURRIED_SECONDS = 5.0


class RemoteNodes:
    """The helper of one attempt, started when it is needed.

    `tell` writes a note with the nodes of a trainer that does not tell of them: its text, and what it means for
    programs; None for one that does.
    """

    def __init__(
        self,
        job: RunnerJob,
        report: ShippedReport,
        progress: TrainerProgress,
        *,
        tell: Callable[[str, Sequence[Mapping[str, Any]]], None] | None = None,
    ) -> None:
        self._job, self._report, self._progress, self._tell = job, report, progress, tell
        self._seen: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._next_look = 0.0
        self._is_alone = False
        self._nodes_known_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: Mapping[str, Any] | None = None
        self._is_done = threading.Event()
        self._end_seconds = END_SECONDS
        self.left: dict[str, str] = {}  # name -> why a file that workers there left is of no use, "" if it is whole

    @property
    def pid(self) -> int | None:
        """The helper's process; it is no orphan of the attempt."""
        return self._process.pid if self._process is not None else None

    def watch(self, now: float, *, trainer: int | None = None) -> None:
        """Start the helper if the attempt has other nodes and its workers are ready, or slow to be.

        `trainer` is the process of a trainer that does not tell of them: then that talks to Ray is enough to look.
        """
        self._tell_seen()
        if self._process is not None:
            return
        if not self._progress.other_nodes:
            if self._tell is None or trainer is None or now < self._next_look:
                return
            self._next_look = now + RAY_LOOK_SECONDS
            if self._nodes_known_at is None and not talks_to_ray(trainer, os.environ.get("RAY_ADDRESS", "")):
                return
        self._nodes_known_at = self._nodes_known_at or now
        is_ready = self._progress.state not in ("", "loading")
        if is_ready or now - self._nodes_known_at > START_AFTER_SECONDS:
            self._start()

    def begin_end(
        self, leave_seconds: float, *, write_seconds: float = 0.0, captures: Mapping[str, str] | None = None
    ) -> None:
        """Begin to end what is left on the other nodes; `finish_end` waits for it.

        What workers there left of `captures` (id -> tool) is brought then.
        """
        self._tell_seen()
        self._progress.read()
        if not self._progress.other_nodes:
            return
        if self._process is None:
            self._start()
        if captures:
            self._end_seconds += write_seconds + LEFT_SECONDS
        self._order({"end": leave_seconds, "write": write_seconds, "captures": dict(captures or {})})

    def finish_end(self, cleanup: Cleanup, *, is_hurried: bool) -> Cleanup:
        """Return the clean-up report of this node with what was found on the others; `nodes_unchecked` names those
        without."""
        nodes = self._progress.other_nodes
        if not nodes:
            self._is_done.set()
            self.close()
            return cleanup
        self._is_done.wait(HURRIED_SECONDS if is_hurried else self._end_seconds)
        self.close()
        answer = self._answer or {"cleanups": {}, "unchecked": [node_name(node) for node in nodes]}
        names = {str(node["index"]): node_name(node) for node in nodes}
        return merge(
            cleanup, {names.get(i, i): report for i, report in answer["cleanups"].items()}, answer["unchecked"]
        )

    def close(self) -> None:
        """End the helper."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> None:
        env = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        path = self._job.run_dir / "log" / "agents-0.stderr"
        try:
            with path.open("ab") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "jobs.runner.nodes.agents", str(os.getpid())],
                    env=env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            self._report.say(f"The other nodes are not watched: {error.strerror or error}")
            self._is_done.set()
            return
        nodes = self._progress.other_nodes
        self._order({"run_dir": str(self._job.run_dir), "nodes": nodes, "looks": self._tell is not None})
        threading.Thread(target=self._listen, name="agents", daemon=True).start()

    def _tell_seen(self) -> None:
        """Write down what the helper has seen, in the thread that writes the trainer's events."""
        while self._tell is not None and not self._seen.empty():
            answer = self._seen.get()
            self._tell(str(answer["text"]), answer["nodes"])

    def _order(self, order: Mapping[str, object]) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # it has died; `_listen` sees the end of its output
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError, KeyError):  # what else is printed is no answer
                self._take(json.loads(line))
        if not self._is_done.is_set() and not self._is_alone:
            self._report.say("The helper that watches the other nodes has ended; see agents-0.stderr in the logs.")
        self._is_done.set()

    def _take(self, answer: Mapping[str, Any]) -> None:
        if "values" in answer:
            step = self._progress.step
            self._report.readings(answer["values"], step=step, role="node", rank=int(answer["index"]))
        elif "nodes" in answer:
            self._seen.put(answer)
        elif "alone" in answer:
            self._is_alone = True
        elif "say" in answer:
            self._report.say(str(answer["say"]))
        elif "cleanups" in answer:
            self._answer = answer
        elif "left" in answer:
            self.left = {str(name): str(problem) for name, problem in answer["left"].items()}
        elif "done" in answer:
            self._is_done.set()


def talks_to_ray(pid: int, address: str) -> bool:
    """Return True if the process, or one below it, is connected to the head of Ray's cluster at `address`."""
    port = address.rpartition(":")[2]
    with contextlib.suppress(psutil.Error):
        trainer = psutil.Process(pid)
        for process in [trainer, *trainer.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                if any(one.raddr and str(one.raddr.port) == port for one in process.net_connections("tcp")):
                    return True
    return False


def merge(cleanup: Cleanup, others: Mapping[str, Cleanup], unchecked: Sequence[str]) -> Cleanup:
    """Return one clean-up report for all nodes: `others` by the name of their node, `unchecked` those that gave
    none."""
    held = [cleanup["device_bytes_left"], *(other["device_bytes_left"] for other in others.values())]
    device_bytes = [left for left in held if left is not None]
    ended = list(cleanup["ended"])
    for name, other in others.items():
        ended += [f"{name}: {process}" for process in other["ended"]]
    merged: Cleanup = {
        **cleanup,
        "processes_left": cleanup["processes_left"] + sum(other["processes_left"] for other in others.values()),
        "device_bytes_left": sum(device_bytes) if len(device_bytes) == len(held) else None,
        "ended": ended[:50],
        "nodes": [*cleanup["nodes"], *others],
    }
    if unchecked:
        merged["nodes_unchecked"] = list(unchecked)
    return merged
