"""Talking to Ray's Job API: a small server that answers like it, and once the real one."""

import contextlib
import io
import secrets
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ray.runtime_env import RuntimeEnv

from jobs.cluster import package
from jobs.cluster import ray_api as cluster
from tests.jobs.fake_ray import TOKEN, FakeRay, serve
from tests.ray_head import NUM_CPUS, RayHead
from tests.waiting import wait_until


@pytest.fixture
def ray(settings: Any) -> Iterator[FakeRay]:
    with serve() as server:
        settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN = server.address, TOKEN
        cluster.forget_state()
        yield server
        cluster.forget_state()


def submit(name: str = "run-r-1-a1", **changes: Any) -> None:
    cluster.submit_job(
        **{
            "submission_id": name,
            "module": "jobs.runner",
            "environment": {"PITWALL_RUN": "r-1"},
            "metadata": {"pitwall_run": "r-1"},
            **changes,
        }
    )


def test_a_job_in_a_container_image_carries_nothing_else_that_ray_would_refuse(ray: FakeRay) -> None:
    submit(runtime={"image_uri": "some/verl:0.9.1"})

    (asked,) = ray.submitted
    assert asked["entrypoint"] == "python -m jobs.runner"
    assert asked["runtime_env"]["image_uri"] == "some/verl:0.9.1"
    assert set(asked["runtime_env"]) == {"image_uri", "env_vars"}
    assert ray.packages == {}
    RuntimeEnv(**asked["runtime_env"])  # Ray's own check of what goes together


def test_workers_of_a_job_may_have_an_interpreter_of_their_own(ray: FakeRay) -> None:
    submit(runtime={"py_executable": "/srv/o/bin/python"})

    (asked,) = ray.submitted
    assert set(asked["runtime_env"]) == {"py_executable", "working_dir", "env_vars"}


def test_a_job_carries_our_code_environment_and_entry_point(ray: FakeRay, settings: Any) -> None:
    settings.RUNNER_PYTHON = "/srv/my python/bin/python"

    submit()

    (job,) = ray.submitted
    assert job["submission_id"] == "run-r-1-a1"
    assert job["entrypoint"] == "'/srv/my python/bin/python' -m jobs.runner"
    assert job["runtime_env"]["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "20", "PITWALL_RUN": "r-1"}
    uri = job["runtime_env"]["working_dir"]
    assert uri.startswith("gcs://_ray_pkg_")
    assert f"/api/packages/{uri.replace('://', '/')}" in ray.packages


def test_code_is_uploaded_once(ray: FakeRay) -> None:
    submit("a")
    submit("b")

    assert [method for method, path in ray.requests if "/packages/" in path] == ["GET", "PUT", "GET"]


def test_submitting_the_same_name_again_is_no_error(ray: FakeRay) -> None:
    submit()
    submit()

    assert len(ray.submitted) == 1


def test_what_ray_refuses_is_told_from_what_it_cannot_do_yet(ray: FakeRay) -> None:
    ray.break_submit = "Traceback ...\nNo available agent to submit job, please try again later."
    with pytest.raises(cluster.ClusterUnreachable, match="No available agent"):
        submit()

    ray.break_submit, ray.refuse_submit = "", "Traceback ...\nValueError: runtime_env is wrong"
    with pytest.raises(cluster.JobRefused, match="runtime_env is wrong"):
        submit()


def test_jobs_are_listed_by_submission_id(ray: FakeRay) -> None:
    submit("a")
    ray.end("a", "FAILED", "exit code 3", 3)

    assert cluster.list_jobs() == {
        "a": cluster.JobInfo(submission_id="a", status="FAILED", message="exit code 3", exit_code=3)
    }


def test_stopping_says_whether_ray_knows_the_job(ray: FakeRay) -> None:
    submit("a")

    assert cluster.stop_job("a")
    assert not cluster.stop_job("nope")
    assert ray.stopped == ["a"]


def test_state_counts_live_nodes(ray: FakeRay) -> None:
    ray.set_gpus(4, cpus=32)
    ray.nodes.append({**ray.nodes[0], "node_id": "dead", "state": "DEAD"})

    state = cluster.read_state()

    assert (state.is_reachable, state.cpus_total, state.gpus_total, state.device) == (True, 32.0, 4.0, "cuda")
    assert [(n.id, n.is_head, n.accelerator) for n in state.nodes] == [("n1", True, "H200")]


def test_state_is_asked_again_only_when_old(ray: FakeRay) -> None:
    cluster.cluster_state()
    cluster.cluster_state()

    assert len([1 for _, path in ray.requests if path == "/api/v0/nodes"]) == 1


def test_a_wrong_token_is_said_with_what_to_set(ray: FakeRay, settings: Any) -> None:
    settings.RAY_AUTH_TOKEN = "wrong"

    state = cluster.read_state()

    assert not state.is_reachable
    assert "Set RAY_AUTH_TOKEN" in state.problem


def test_an_absent_ray_is_a_state_with_a_beginning(settings: Any) -> None:
    settings.RAY_ADDRESS = "http://127.0.0.1:9"

    first, second = cluster.read_state(), cluster.read_state()

    assert not first.is_reachable
    assert "does not answer at http://127.0.0.1:9" in first.problem
    assert first.away_since is not None
    assert first.away_since == second.away_since
    with pytest.raises(cluster.ClusterUnreachable):
        cluster.list_jobs()


def test_something_else_at_the_address_is_not_taken_for_ray(ray: FakeRay) -> None:
    ray.nodes = "hello"  # type: ignore[assignment]

    assert "not Ray's dashboard" in cluster.read_state().problem


@pytest.mark.parametrize(
    ("address", "is_local"),
    [("http://127.0.0.1:8265", True), ("http://localhost:8265", True), ("http://ray.example:8265", False)],
)
def test_local_means_loopback(settings: Any, address: str, is_local: bool) -> None:
    settings.RAY_ADDRESS = address

    assert cluster.is_local() is is_local


def test_the_same_sources_make_the_same_package() -> None:
    contents = {"b.py": b"2", "a/c.py": b"1"}

    assert package.build(contents) == package.build(dict(reversed(contents.items())))
    assert package.build(contents) != package.build({**contents, "b.py": b"3"})


def test_the_package_holds_the_cluster_side_and_no_django() -> None:
    names = zipfile.ZipFile(io.BytesIO(package.package().content)).namelist()

    assert {
        "jobs/__init__.py",
        "jobs/runner/__main__.py",
        "jobs/catalog/spec/runspec.py",
        "profiling/events.py",
    } <= set(names)
    assert "jobs/catalog/knobs/train.toml" in names
    assert not [n for n in names if n.startswith("jobs/models")]
    assert not [n for n in names if "__pycache__" in n or n.endswith(".pyc")]
    assert package.package().uri.startswith("gcs://_ray_pkg_")


PROBE = """
import os, sys, time
print(os.environ["PITWALL_RUN"], flush=True)
time.sleep(float(os.environ["NAP"]))
sys.exit(3)
"""


@pytest.mark.ray
def test_a_real_ray_head_takes_runs_and_ends_our_jobs(
    ray_head: RayHead, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RAY_ADDRESS, settings.RAY_AUTH_TOKEN = ray_head.api, ray_head.token
    settings.RUNNER_PYTHON = sys.executable
    content = package.build({"pw_probe.py": PROBE.encode()})
    monkeypatch.setattr(
        cluster, "package", lambda: package.Package(uri=f"gcs://_ray_pkg_{secrets.token_hex(8)}.zip", content=content)
    )
    state = wait_until(_reachable, seconds=90)
    assert (state.cpus_total, state.gpus_total, len(state.nodes)) == (NUM_CPUS, 0.0, 1)

    for _ in range(2):  # the second is a duplicate, and no error
        _asked(lambda: submit("failing", module="pw_probe", environment={"PITWALL_RUN": "r-real", "NAP": "0"}))
    _asked(lambda: submit("sleeping", module="pw_probe", environment={"PITWALL_RUN": "r-real", "NAP": "600"}))
    failed = wait_until(lambda: _ended("failing"), seconds=180)
    wait_until(lambda: _status("sleeping") == "RUNNING", seconds=180)
    assert _asked(lambda: cluster.stop_job("sleeping"))
    stopped = wait_until(lambda: _ended("sleeping"), seconds=180)

    assert (failed.status, failed.exit_code) == ("FAILED", 3)
    assert "r-real" in failed.message
    assert stopped.status == "STOPPED"
    assert not _asked(lambda: cluster.stop_job("nope"))
    settings.RAY_AUTH_TOKEN = "wrong"
    wait_until(lambda: "refuses our token" in cluster.read_state().problem, seconds=60)


# A head that has much else to do may miss an answer, which the console survives by asking again.


def _reachable() -> cluster.ClusterState | None:
    state = cluster.read_state()
    return state if state.is_reachable else None


def _asked(call: Callable[[], Any]) -> Any:
    answers: list[Any] = []

    def is_answered() -> bool:
        with contextlib.suppress(cluster.ClusterUnreachable):
            answers.append(call())
        return bool(answers)

    wait_until(is_answered, seconds=60)
    return answers[0]


def _job(name: str) -> cluster.JobInfo | None:
    with contextlib.suppress(cluster.ClusterUnreachable):
        return cluster.list_jobs().get(name)
    return None


def _status(name: str) -> str:
    job = _job(name)
    return job.status if job else ""


def _ended(name: str) -> cluster.JobInfo | None:
    job = _job(name)
    return job if job is not None and job.status in cluster.JOB_ENDED else None
