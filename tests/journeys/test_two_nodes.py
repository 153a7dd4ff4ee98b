"""A run on two nodes that share nothing, with each other or with the console: everything of it is in the browser.

How a run goes on where its files are not is in `make proof-resume`, that it does by itself in test_retried.py.
"""

import io
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.journeys.new_run import START_MS, STEPS, fill_small_run, launch, state, until
from tests.journeys.two_nodes import RUN_ROOT, Cluster, two_nodes
from tests.links import open_link
from tests.machines import Machine
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.engine, pytest.mark.ray]

FIRST_LINE = "I am the second of two"
LAST_LINE = "I can see my house from here"
OWN_PROGRAM = """
import os, pathlib, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(log_to_driver=False)
@ray.remote(num_cpus=1)
class Worker:
    def write(self, folder):
        log = pathlib.Path(folder) / "log"
        log.mkdir(parents=True, exist_ok=True)
        (log / "worker-0.stderr").write_text("far away")
here = ray.get_runtime_context().get_node_id()
(other,) = [node["NodeID"] for node in ray.nodes() if node["NodeID"] != here]
worker = Worker.options(scheduling_strategy=On(other, soft=False)).remote()
ray.get(worker.write.remote(os.environ["PITWALL_RUN_DIR"]))
print("step 1 loss 0.5", flush=True)
time.sleep(1000)
"""
"""A trainer that knows nothing of Pitwall, with an actor on the other node."""
POST = """async ([path, body]) => {
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value
        ?? document.cookie.match(/csrftoken=([^;]+)/)[1];
    const headers = {"Content-Type": "application/json", "X-CSRFToken": token};
    const answer = await fetch(path, {method: "POST", headers, body: JSON.stringify(body)});
    return [answer.status, await answer.json()];
}"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_nodes(tmp_path_factory.mktemp("two-nodes")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, cluster: Cluster) -> Iterator[Page]:
    """A browser that signed in through the one-time link; a test fails if one of its scripts did."""
    window = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", accept_downloads=True)
    tab = window.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    open_link(tab, cluster.manage("signin-link").strip())
    yield tab
    assert problems == []
    window.close()


@pytest.mark.slow("two Ray nodes and a console in namespaces of their own")
@pytest.mark.parametrize("nsys", ["off", pytest.param("auto", marks=pytest.mark.proof)])
def test_a_run_on_two_nodes_that_share_nothing(page: Page, cluster: Cluster, nsys: str) -> None:
    shares_nothing(cluster)
    page.goto(f"{cluster.url}/cluster")
    for node in (cluster.head, cluster.other):
        expect(page.locator('[data-part="nodes"]')).to_contain_text(node.address)

    knobs = {"checkpoint__every_steps": "2", "eval__every_steps": "0", "algorithm__kl_coefficient": "0"}
    fill_small_run(page, cluster, name="on two nodes", steps=2000, nsys_ready=nsys, layout="split", **knobs)
    run_id = launch(page)
    expect(state(page)).to_contain_text("running", timeout=START_MS)
    api = Api(page, f"{cluster.url}/api/runs/{run_id}")
    until(page, f"({STEPS}).length >= 2", seconds=START_MS / 1000)

    nodes = where_workers_are(api)
    assert nodes[0]["address"] == cluster.head.address  # Ray starts drivers at the head
    policy_node, vllm_node = (next(n for n in nodes if worker in n["workers"]) for worker in ("policy-0", "vllm-0"))
    assert policy_node["address"] != vllm_node["address"]
    a_capture_arrives_from_both_nodes(page, api, cluster)
    wait_until(lambda: ("cpu_percent", "node", 1) in names_of_metrics(api), 60)  # its agent starts cold

    machines = {cluster.head.address: cluster.head, cluster.other.address: cluster.other}
    # The second rank writes nothing of its own.
    second = next(machines[n["address"]] for n in nodes if "policy-1" in n["workers"])
    second.run("bash", "-c", f"echo '{FIRST_LINE}' >> {RUN_ROOT}/{run_id}/a1/log/policy-1.stderr")
    # It would write over that line when it ends: its own place in the file is still the beginning.
    wait_until(lambda: lines_of(api, "role=policy&rank=1", FIRST_LINE), 60, "the second rank's line did not come")
    machine_of_vllm = machines[vllm_node["address"]]
    marks = {"PATH": "/usr/bin:/bin", "PITWALL_RUN": run_id, "PITWALL_ATTEMPT": "1"}
    forgotten = machine_of_vllm.start("sleep", "1000", env=marks, log=Path(os.devnull))
    cut = None if nsys == "off" else start_a_report(api)
    kill_worker(machine_of_vllm, "vllm", run_id)

    expect(state(page)).to_contain_text("failed", timeout=300_000)
    expect(page.locator('[data-field="cause"]')).to_contain_text("vllm")
    assert api.get("")["cause"]["log_line"] == LAST_LINE
    for lane, words in (("role=vllm", LAST_LINE), ("role=policy&rank=1", FIRST_LINE)):
        assert lines_of(api, lane, words) == [words]
    proof = api.get("")["cleanup"]
    assert proof["processes_left"] == 0
    assert [name.partition(" ")[0] for name in proof["nodes"]] == ["head", "other"]
    assert any("sleep 1000" in ended for ended in proof["ended"]), proof
    assert "nodes_unchecked" not in proof
    assert forgotten.wait(5) != 0
    if cut:
        both_nodes_have_kept(page, cluster, api.get(f"/captures/{cut}"))

    (rewards,) = api.get("/series?metrics=reward/mean")["series"]
    assert rewards["x"] == list(range(1, len(rewards["x"]) + 1)), "every step once"
    everything_is_in_the_browser(page, api, cluster, run_id)


@pytest.mark.slow("beside the two nodes of the test before")
def test_nodes_of_a_trainer_that_does_not_tell_of_them_are_seen(page: Page, cluster: Cluster) -> None:
    knobs = {
        "own_command.argv": shlex.join([sys.executable, "-c", OWN_PROGRAM]),
        "own_command.patterns": "step (?P<step>\\d+) loss (?P<loss>\\S+)",
    }
    spec = {"name": "elsewhere", "algorithm": "sft", "trainer": {"name": "own_command"}, "knobs": knobs}
    page.goto(f"{cluster.url}/cluster")
    status, launched = Api(page, f"{cluster.url}/api").post("/runs", spec)
    assert status == 201, launched
    run_id = launched["run"]["id"]
    api = Api(page, f"{cluster.url}/api/runs/{run_id}")

    wait_until(lambda: ("cpu_percent", "node", 1) in names_of_metrics(api), 200)
    nodes = where_workers_are(api)
    marks = {"PATH": "/usr/bin:/bin", "PITWALL_RUN": run_id, "PITWALL_ATTEMPT": "1"}
    forgotten = cluster.other.start("sleep", "1000", env=marks, log=Path(os.devnull))
    api.post("/stop", {})
    wait_until(lambda: api.get("")["state"] == "stopped", 200)

    assert [(node["name"], node["workers"]) for node in nodes] == [("head", []), ("other", ["Worker-0"])]
    proof = api.get("")["cleanup"]
    assert [name.partition(" ")[0] for name in proof["nodes"]] == ["head", "other"]
    assert any("sleep 1000" in ended for ended in proof["ended"]), proof
    assert forgotten.wait(5) != 0
    assert cluster.head.has(f"{RUN_ROOT}/{run_id}/a1/log/worker-0.stderr"), "logs of the other node are brought"


class Api:
    """The API of one run, asked with the page's session."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url

    def get(self, path: str) -> Any:
        answer = self.page.request.get(f"{self.url}{path}")
        assert answer.ok, answer.text()
        return answer.json()

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        status, answer = self.page.evaluate(POST, [f"{self.url}{path}", body])
        return status, answer


def shares_nothing(cluster: Cluster) -> None:
    """Check that what one machine writes no other sees, and that the nodes do not have the code."""
    everyone = (cluster.head, cluster.other, cluster.console)
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        for machine in everyone:
            machine.run("touch", f"{folder}/mark-of-{machine.name}")
            seen = [other.name for other in everyone if other.has(f"{folder}/mark-of-{machine.name}")]
            assert seen == [machine.name]
    for machine in everyone:
        for folder in ("/", str(Path.home()), "/var/lib"):
            with pytest.raises(subprocess.CalledProcessError) as refused:
                machine.run("touch", f"{folder}/mark")
            assert "Read-only" in refused.value.stderr
    for node in (cluster.head, cluster.other):
        assert not node.has(__file__)
        assert "manage.py" not in node.run("ps", "-A", "-o", "args")


def names_of_metrics(api: Api) -> set[tuple[str, str, int]]:
    """Return the name, role and rank of every metric that the run has."""
    return {(s["name"], s["role"], s["rank"]) for s in api.get("/metrics")["metrics"]}


def lines_of(api: Api, lane: str, words: str) -> list[str]:
    """Return the lines of a role and rank that hold the words."""
    return [line["text"] for line in api.get(f"/logs?{lane}&q={words}")["lines"]]


def where_workers_are(api: Api) -> list[dict[str, Any]]:
    events = api.get("/events")["events"]
    (nodes,) = [event["data"]["nodes"] for event in events if "nodes" in event["data"]]
    assert len(nodes) == 2
    return list(nodes)


def a_capture_arrives_from_both_nodes(page: Page, api: Api, cluster: Cluster) -> None:
    """Record a step with torch on the policy's rank 0 and vLLM; check what is downloaded."""
    asked = {"tool": "torch", "num_steps": 1, "roles": ["policy", "vllm"], "ranks": [0]}
    status, capture = api.post("/captures", asked)
    assert status == 201, capture
    done = wait_until(partial(ended_capture, api, capture["id"]), seconds=300)
    assert done["state"] == "ready", done
    page.goto(f"{api.url.replace('/api/runs', '/runs')}/profile")
    expect(page.locator("[data-capture-states]")).to_contain_text("ready")
    check_downloaded(page, cluster, done, ".json")


def ended_capture(api: Api, name: str) -> dict[str, Any] | None:
    capture = api.get(f"/captures/{name}")
    return dict(capture) if capture["state"] in ("ready", "failed") else None


def check_downloaded(page: Page, cluster: Cluster, capture: Mapping[str, Any], suffix: str) -> None:
    """Check that the archive of a capture holds a file of each role."""
    archive = page.request.get(f"{cluster.url}{capture['zip_url']}").body()
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        names = [name for name in opened.namelist() if suffix in name]
        for role in ("policy", "vllm"):
            (name,) = [name for name in names if role in name]
            assert len(opened.read(name)) > 1000


def start_a_report(api: Api) -> str:
    """Let nsys record the policy's rank 0 and vLLM for longer than they live; return the capture's id."""
    asked = {"tool": "nsys", "seconds": 300, "roles": ["policy", "vllm"], "ranks": [0]}
    status, capture = api.post("/captures", asked)
    assert status == 201, capture
    wait_until(lambda: api.get(f"/captures/{capture['id']}")["state"] == "recording", 60)
    return str(capture["id"])


def both_nodes_have_kept(page: Page, cluster: Cluster, capture: Mapping[str, Any]) -> None:
    """Check a capture that vLLM's death cut short: its report comes from its own node, after that of the policy."""
    assert (capture["state"], capture["problem"]) == ("ready", ""), capture
    assert {file["role"]: file["size"] > 1000 for file in capture["files"]} == {"policy": True, "vllm": True}
    assert "vllm" in capture["meta"]["truncated"].lower()
    check_downloaded(page, cluster, capture, ".nsys-rep")


def kill_worker(machine: Machine, role: str, run_id: str) -> None:
    """End a Ray worker as the kernel would, right after its last line: the process that writes the log of its role."""
    log = f"{RUN_ROOT}/{run_id}/a1/log/{role}-0"
    find = f"for p in /proc/[0-9]*; do case $(readlink $p/fd/1) in {log}.stdout) echo ${{p#/proc/}};; esac; done"
    pids = machine.run("bash", "-c", find).split()
    assert pids
    machine.run("bash", "-c", f"echo '{LAST_LINE}' >> {log}.stderr; kill -9 {' '.join(pids)}")


def everything_is_in_the_browser(page: Page, api: Api, cluster: Cluster, run_id: str) -> None:
    """Look for logs of every role, readings of every node, and samples."""
    page.goto(f"{cluster.url}/runs/{run_id}/samples")
    expect(page.locator("[data-samples]:visible").first).to_contain_text("####")
    wanted = {("cpu_percent", "runner", 0), ("cpu_percent", "node", 1), ("running_requests", "vllm", 0)}
    assert wanted <= names_of_metrics(api)

    page.goto(f"{cluster.url}/runs/{run_id}/logs")
    for role in ("driver", "policy 1", "vLLM 0"):
        expect(page.locator("[data-log-stream]")).to_contain_text(role)

    page.goto(f"{cluster.url}/runs/{run_id}/files")
    logs = zipfile.ZipFile(io.BytesIO(download(page, "logs.zip")))
    written = {name.rpartition(".")[0] for name in logs.namelist()}
    assert {"driver-0", "policy-0", "policy-1", "vllm-0"} <= written


def download(page: Page, name: str) -> bytes:
    row = page.get_by_role("row").filter(has_text=name).first
    with page.expect_download() as waiting:
        row.get_by_role("link", name="Download").click()
    return Path(waiting.value.path()).read_bytes()
