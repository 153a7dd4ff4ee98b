"""`python -m jobs.runner.nodes.agents`: the runner's helper that talks to Ray, on runs that use several nodes.

The runner itself never joins the cluster: this child does, so that a Ray that hangs or crashes takes only the helper
with it. Orders come as JSON lines on stdin: first `{"run_dir", "nodes": [...], "looks"}` with the other nodes of the
attempt (`jobs.engine.workers.node_placement.told`), or with `looks` for the order to look where the trainer's actors
are (job_nodes.py); then at most one `{"end": seconds, "write": seconds, "captures": {id: tool}}`, with the captures
that the trainer left open. Answers go as JSON lines to stdout: `{"index", "values"}` every two seconds for each node,
`{"nodes", "text"}` where others are seen, `{"alone"}` where there are none, `{"say"}`, `{"cleanups", "unchecked"}`,
`{"left": {name: why it is of no use}}` of those captures' files, and at the end, when logs and files of those nodes are
here too, `{"done"}`.
"""

import contextlib
import io
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from jobs.runner.nodes.job_nodes import LOOK_SECONDS, JobNodes, sentence_of
from jobs.runner.nodes.node_agent import NodeAgent
from jobs.runner.nodes.orphans import Cleanup
from jobs.runner.reporting.trainer_progress import node_name
from jobs.runner.trainer import end_with_parent
from profiling.captures.capture import recordings

PERIOD_SECONDS = 2.0
CONNECT_SECONDS = 5.0
START_SECONDS = 15.0  # what a fresh process on another node may take
FETCH_SECONDS = 20.0  # for one piece of a file
_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"


class Agents:
    """The agents of an attempt, by the index of their node. A node that is gone is said once, and left out."""

    def __init__(self, order: Mapping[str, Any], *, run: str, attempt: int, say: Callable[[str], None]) -> None:
        self._run_dir = Path(order["run_dir"])
        self._run, self._attempt, self._say = run, attempt, say
        self._logged: set[str] = set()
        self._names: dict[int, str] = {}
        self._actors: dict[int, Any] = {}
        self.add(order["nodes"])

    def add(self, nodes: Sequence[Any]) -> None:
        """Have an agent on each of these nodes (`OtherNode`) that has none yet."""
        for node in nodes:
            index = int(node["index"])
            if not index or index in self._names:
                continue
            self._names[index] = node_name(node)
            strategy = NodeAffinitySchedulingStrategy(node["node"], soft=False)
            actor = ray.remote(NodeAgent).options(num_cpus=0, scheduling_strategy=strategy)
            self._actors[index] = actor.remote(run=self._run, attempt=self._attempt, run_dir=str(self._run_dir))

    def readings(self) -> dict[int, Mapping[str, float]]:
        """Return the readings of the nodes that answer within two seconds."""
        return self._ask("readings", seconds=PERIOD_SECONDS)

    def kill_orphans(self, leave_seconds: float, write_seconds: float) -> tuple[dict[int, Cleanup], list[str]]:
        """End what is left on each node; return the clean-up reports, and the names of the nodes that gave none."""
        seconds = leave_seconds + write_seconds + START_SECONDS
        cleanups = self._ask("kill_orphans", leave_seconds, write_seconds, seconds=seconds)
        return cleanups, [name for index, name in self._names.items() if index not in cleanups]

    def _ask(self, method: str, *arguments: Any, seconds: float) -> dict[int, Any]:
        references = {getattr(actor, method).remote(*arguments): index for index, actor in self._actors.items()}
        ready, _ = ray.wait(list(references), num_returns=len(references), timeout=seconds) if references else ([], [])
        answers = {}
        for reference in ready:
            index = references[reference]
            try:
                answers[index] = ray.get(reference)
            except RayTaskError as error:
                self._say_once(f"{self._names[index]} could not do {method}: {error.cause!r}")
            except Exception as error:
                why = (str(error).strip().splitlines() or [type(error).__name__])[0]
                self._say_once(f"Nothing more is read from {self._names[index]}: {why}")
                self._actors.pop(index, None)
        return answers

    def _say_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            self._say(text)

    def fetch_logs(self) -> None:
        """Bring the log files of the other nodes beside those of this one."""
        for index, sizes in self._ask("log_sizes", seconds=START_SECONDS).items():
            for name, size in sizes.items():
                self._fetch(index, "read_log", size, self._run_dir / "log" / Path(name).name)

    def fetch_left(self, tools: Mapping[str, str]) -> dict[str, str]:
        """Bring what workers there left of captures (id -> tool); return of each file why it is of no use, "" if it is
        whole.
        """
        problems = {}
        for index, files in self._ask("left", dict(tools), seconds=FETCH_SECONDS).items():
            for name, file in files.items():
                target = recordings(self._run_dir) / Path(name).name
                problems[target.name] = file.problem or self._fetch(index, "read_left", file.size, target)
        return problems

    def _fetch(self, index: int, method: str, size: int, target: Path) -> str:
        """Bring a file from a node; return why it is not here, which is said as well."""
        if target.exists():
            return ""  # a file system that is shared after all
        draft = target.with_name(f".{target.name}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                while file.tell() < size:
                    reference = getattr(self._actors[index], method).remote(target.name, file.tell())
                    piece = ray.get(reference, timeout=FETCH_SECONDS)
                    if not piece:
                        break
                    file.write(piece)
            draft.rename(target)
        except Exception as error:
            problem = f"{target.name} stays on {self._names[index]}: {type(error).__name__}"
            self._say(problem)
            return problem
        return ""


def main() -> int:
    """Serve the runner until it says `end` or goes away; return the exit code."""
    end_with_parent(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed is no answer

    def answer(**fields: Any) -> None:
        out.write(json.dumps(fields) + "\n")

    orders = io.FileIO(0)  # unbuffered, so that `select` sees what was not read
    line = orders.readline()
    if not line:
        return 0
    order = json.loads(line)
    try:
        _join(os.environ)
    except OSError as error:
        answer(say=f"The other nodes cannot be asked: Ray does not answer ({error.strerror or error})")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the runner gets them too, and decides what is done
    agents = Agents(
        order,
        run=os.environ["PITWALL_RUN"],
        attempt=int(os.environ["PITWALL_ATTEMPT"]),
        say=lambda text: answer(say=text),
    )
    try:
        _serve(agents, orders, answer, JobNodes(int(sys.argv[1])) if order.get("looks") else None)
    finally:
        ray.shutdown()
    return 0


def _serve(agents: Agents, orders: io.FileIO, answer: Callable[..., None], job_nodes: JobNodes | None) -> None:
    due = look_due = time.monotonic()
    while True:
        has_order, _, _ = select.select([orders], [], [], max(0.0, due - time.monotonic()))
        if has_order:
            line = orders.readline()
            if line:
                order = json.loads(line)
                cleanups, unchecked = agents.kill_orphans(float(order["end"]), float(order["write"]))
                answer(cleanups=cleanups, unchecked=unchecked)
                agents.fetch_logs()
                if order["captures"]:
                    answer(left=agents.fetch_left(order["captures"]))
                answer(done=True)
            return
        due = time.monotonic() + PERIOD_SECONDS
        if job_nodes is not None and due > look_due:
            look_due = due + LOOK_SECONDS
            try:
                nodes = job_nodes.look()
            except Exception as error:  # of Ray's insides nothing is promised
                answer(say=f"Nothing more is known of where the trainer's actors are: {error!r}")
                job_nodes, nodes = None, []
            if nodes:
                agents.add(nodes)
                answer(nodes=nodes, text=sentence_of(nodes))
            if job_nodes is not None and job_nodes.is_alone:
                answer(alone=True)
                return
        for index, values in agents.readings().items():
            answer(index=index, values=values)


def _join(environ: Mapping[str, str]) -> None:
    """Join the cluster with the code of the run's job, but without the marks by which the run's processes are known.

    Raises: OSError if nobody listens at RAY_ADDRESS.
    """
    config = json.loads(environ.get(_JOB_CONFIG) or "{}")
    runtime_env = dict(config.get("runtime_env") or {})
    variables = runtime_env.pop("env_vars", None) or {}
    runtime_env["env_vars"] = {name: value for name, value in variables.items() if not name.startswith("PITWALL_")}
    os.environ.pop(_JOB_CONFIG, None)
    address = environ.get("RAY_ADDRESS") or "auto"
    host, colon, port = address.rpartition(":")
    if colon:  # Ray itself would try for minutes where nobody listens
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    ray.init(
        address=address,
        runtime_env=runtime_env,
        log_to_driver=False,
        logging_level="ERROR",
        configure_logging=False,
    )


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):  # the runner is gone
        sys.exit(main())
