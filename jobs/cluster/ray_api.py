"""Talk to Ray over its dashboard's REST API. The only web-side file that does; it never imports ray.

Paths and shapes: ray 2.60, dashboard/modules/job/job_head.py and state/state_head.py. Sign-in is the header
`Authorization: Bearer <token>` (ray/_private/authentication). Nothing here reads or writes rows.
"""

import functools
import shlex
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import quote

import httpx
from django.conf import settings

from jobs.cluster.loopback import is_loopback
from jobs.cluster.package import Package, package

JobStatus = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
JOB_ENDED = ("STOPPED", "SUCCEEDED", "FAILED")

STATE_MAX_AGE_SECONDS = 2.0
STOP_WAIT_SECONDS = 20  # what a job gets between SIGTERM and SIGKILL to save and clean up
_TIMEOUT = httpx.Timeout(5.0, connect=2.0)
_SUBMIT_TIMEOUT = httpx.Timeout(40.0, connect=2.0)  # Ray waits up to 30 s for an agent to hand the job to


class ClusterUnreachable(ConnectionError):
    """Ray gave no answer that says anything about jobs: away, starting, or refusing our token. The state is unknown."""


class JobRefused(ValueError):
    """Ray understood the request and will never accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine of the cluster as Ray counts it; memory in bytes."""

    id: str
    address: str
    is_head: bool
    cpus: float
    gpus: float
    memory_bytes: float
    accelerator: str

    @property
    def resource(self) -> str:
        """What Ray calls the resource that this node alone has, and 1 of it."""
        return f"node:{self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """What Ray says of itself; without an answer `problem` is a sentence and `away_since` when answers stopped."""

    is_reachable: bool
    problem: str
    away_since: datetime | None
    nodes: tuple[Node, ...]
    cpus_total: float
    gpus_total: float
    cpus_used: float = 0.0  # filled in from our own accounting, by jobs.runs.queries
    gpus_used: float = 0.0

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """What `auto` means here: cuda where the cluster has GPUs."""
        return "cuda" if self.gpus_total > 0 else "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """A job as Ray knows it; `message` says why it ended, with the tail of its log. `node`: Ray's id of the node that
    its own process is on, "" where Ray does not say."""

    submission_id: str
    status: JobStatus
    message: str
    exit_code: int | None
    node: str = ""


def read_state() -> ClusterState:
    """Ask Ray for its live nodes, now. Never raises: an unreachable cluster is an answer too."""
    try:
        answer = _call("GET", "/api/v0/nodes?limit=10000")
        rows = answer.json()["data"]["result"]["result"]
        nodes = tuple(_node(row) for row in rows if row["state"] == "ALIVE")
    except ClusterUnreachable as error:
        return _away(str(error))
    except (AttributeError, KeyError, TypeError, ValueError):
        return _away("What answers at RAY_ADDRESS is not Ray's dashboard.")
    if not nodes:
        return _away("Ray is starting: it has no live node yet.")
    _Away.since = None
    return ClusterState(
        is_reachable=True,
        problem="",
        away_since=None,
        nodes=nodes,
        cpus_total=sum(n.cpus for n in nodes),
        gpus_total=sum(n.gpus for n in nodes),
    )


def cluster_state() -> ClusterState:
    """Return what Ray said at most two seconds ago."""
    with _Latest.lock:
        if _Latest.state is None or time.monotonic() - _Latest.at > STATE_MAX_AGE_SECONDS:
            _Latest.state = read_state()
            _Latest.at = time.monotonic()
        return _Latest.state


def forget_state() -> None:
    """Make the next `cluster_state` ask again."""
    with _Latest.lock:
        _Latest.state = None


def list_jobs() -> dict[str, JobInfo]:
    """Return every submitted job that Ray remembers, by submission id.

    Raises: ClusterUnreachable.
    """
    rows = _call("GET", "/api/jobs/").json()
    return {row["submission_id"]: _job(row) for row in rows if row.get("submission_id")}


def submit_job(
    *,
    submission_id: str,
    module: str,
    environment: Mapping[str, str],
    metadata: Mapping[str, str],
    entrypoint_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    runtime: Mapping[str, Any] | None = None,
) -> None:
    """Start `python -m module` as a Ray job with our code as its working directory; once per submission id.

    With `entrypoint_gpus` Ray holds GPUs for the process itself; a runner needs none, its workers hold them. With
    `resources` of one node (`Node.resource`) it starts the process there; else on the head's node.
    `runtime` is what Ray's runtime_env of the job gets besides: `py_executable` of its workers, or an `image_uri`,
    which Ray takes without any working directory: our code is then the image's own.

    Raises: ClusterUnreachable (try again), JobRefused (never will).
    """
    more = dict(runtime or {})
    python = settings.RUNNER_PYTHON
    if "image_uri" in more:
        python = "python"
    else:
        code = package()
        _upload(code)
        more["working_dir"] = code.uri
    body: dict[str, object] = {
        "submission_id": submission_id,
        "entrypoint": shlex.join([python, "-m", module]),
        "runtime_env": {
            **more,
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_SECONDS), **environment},
        },
        "metadata": dict(metadata),
    }
    if entrypoint_gpus:
        body["entrypoint_num_gpus"] = entrypoint_gpus
    if resources:
        body["entrypoint_resources"] = dict(resources)
    answer = _call("POST", "/api/jobs/", json=body, timeout=_SUBMIT_TIMEOUT, accept=(400, 500))
    if answer.status_code == 200 or "already exists" in answer.text:
        return
    last_line = (answer.text.strip().splitlines() or ["no reason given"])[-1]
    if answer.status_code == 400:
        raise JobRefused(f"Ray refused the job: {last_line}")
    raise ClusterUnreachable(f"Ray could not take the job yet: {last_line}")


def stop_job(submission_id: str) -> bool:
    """Ask Ray to end the job: SIGTERM, then SIGKILL after 20 s. False if Ray does not know it.

    Raises: ClusterUnreachable.
    """
    answer = _call("POST", f"/api/jobs/{quote(submission_id, safe='')}/stop", accept=(404,), timeout=_SUBMIT_TIMEOUT)
    return answer.status_code != 404


def is_local() -> bool:
    """Return True if Ray runs on this machine only, so that its paths are ours."""
    return is_loopback(settings.RAY_ADDRESS)


class _Away:
    since: datetime | None = None


class _Latest:
    lock = threading.Lock()
    state: ClusterState | None = None
    at = 0.0


def _away(problem: str) -> ClusterState:
    _Away.since = _Away.since or datetime.now(UTC)
    return ClusterState(
        is_reachable=False, problem=problem, away_since=_Away.since, nodes=(), cpus_total=0.0, gpus_total=0.0
    )


def _node(row: Mapping[str, Any]) -> Node:
    resources = row.get("resources_total") or {}
    accelerators = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    return Node(
        id=row["node_id"],
        address=row.get("node_ip", ""),
        is_head=bool(row.get("is_head_node")),
        cpus=float(resources.get("CPU", 0)),
        gpus=float(resources.get("GPU", 0)),
        memory_bytes=float(resources.get("memory", 0)),
        accelerator=accelerators[0] if accelerators else "",
    )


def _job(row: Mapping[str, Any]) -> JobInfo:
    return JobInfo(
        submission_id=row["submission_id"],
        status=row["status"],
        message=row.get("message") or "",
        exit_code=row.get("driver_exit_code"),
        node=row.get("driver_node_id") or "",
    )


def _upload(code: Package) -> None:
    path = f"/api/packages/{code.uri.replace('://', '/')}"
    if _call("GET", path, accept=(404,)).status_code == 404:
        _call("PUT", path, content=code.content, timeout=_SUBMIT_TIMEOUT)


@functools.cache
def _client(address: str, token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # A proxy of the environment is for the world outside, not for this machine.
    return httpx.Client(base_url=address, headers=headers, timeout=_TIMEOUT, trust_env=not is_local())


def _call(method: str, path: str, *, accept: tuple[int, ...] = (), **request: Any) -> httpx.Response:
    """Return Ray's answer if it is a success or one of `accept`; all else says nothing about jobs."""
    try:
        answer = _client(settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN).request(method, path, **request)
    except httpx.HTTPError as error:
        raise ClusterUnreachable(f"Ray does not answer at {settings.RAY_ADDRESS} ({type(error).__name__}).") from error
    if answer.status_code in (401, 403):
        raise ClusterUnreachable(
            f"Ray at {settings.RAY_ADDRESS} refuses our token. Set RAY_AUTH_TOKEN to the cluster's."
        )
    if answer.is_success or answer.status_code in accept:
        return answer
    text = (answer.text.strip().splitlines() or [""])[-1][:200]
    raise ClusterUnreachable(f"Ray answered {answer.status_code}: {text}")
