"""docker-compose.yml and Dockerfile: what they name exists, and what they start works, two web processes at once."""

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.journeys.compose import EXAMPLE, FILE, ROOT, SECRETS, Composition, Unset, example, read, running
from tests.journeys.conftest import Stack
from tests.journeys.proxy import Proxy
from tests.links import press
from tests.loopback import HTTP
from tests.services import find_postgres
from tests.waiting import wait_until

DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = ("web", "worker", "ingest", "reconcile", "migrate")
ADDRESS = "203.0.113.9"  # of the person, as the proxy tells it
AUDIT = "from jobs.models import AuditEvent; print(AuditEvent.objects.get(verb='run.create').ip)"
pinned = runpy.run_path(str(ROOT / "requirements" / "pin_images.py"))["pinned"]
STEPS = 4
PINNED = re.compile(r"[\w./-]+:\d+\.\d+\.?[\w.-]*@sha256:[0-9a-f]{64}")
SPEC = {
    "name": "through compose",
    "profile": {"nsys_ready": "off"},
    "knobs": {
        "train.num_steps": STEPS,
        "rollout.prompts_per_step": 4,
        "rollout.samples_per_prompt": 4,
        "algorithm.kl_coefficient": 0,
        "eval.num_prompts": 0,
    },
}


def settings_known() -> set[str]:
    """Return every variable that console/settings.py reads."""
    tree = ast.parse((ROOT / "console" / "settings.py").read_text())
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    named = [c.args[0].value for c in calls if c.args and isinstance(c.args[0], ast.Constant)]
    return {name for name in named if isinstance(name, str) and name.isupper()}


def test_every_variable_of_a_service_of_ours_is_one_that_the_settings_read() -> None:
    services = read(example())["services"]

    for name in OURS:
        unknown = set(services[name]["environment"]) - settings_known()
        assert not unknown, f"{name} is given {unknown}, which nothing reads"


def test_every_secret_must_be_set_and_none_has_a_default() -> None:
    for name in SECRETS:
        assert f"{name}=\n" in EXAMPLE.read_text()
        with pytest.raises(Unset, match=name):
            read({k: v for k, v in example().items() if k != name})


def test_the_example_names_every_variable_that_people_set() -> None:
    asked = set(re.findall(r"\$\{(\w+)", FILE.read_text()))
    told = set(re.findall(r"^#?(\w+)=", EXAMPLE.read_text(), re.MULTILINE))
    documented = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "operate" / "production.md").read_text()))

    assert asked - told - documented == set()
    assert told - asked == set()


def test_a_service_of_ours_has_the_name_of_its_command() -> None:
    services = read(example())["services"]
    commands = {path.stem for path in (ROOT / "console" / "management" / "commands").glob("*.py")} | {"migrate"}

    for name in OURS:
        assert services[name]["command"][:3] == ["python", "manage.py", name]
        assert name in commands
        assert services[name]["image"].startswith("pitwall-console:")
        assert services[name]["build"]["target"] == "console"


def test_every_service_comes_back_and_has_time_to_end() -> None:
    for name, service in read(example())["services"].items():
        assert service["restart"] == ("no" if name == "migrate" else "unless-stopped"), name
        assert name == "migrate" or service["stop_grace_period"].endswith("s"), name
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in yaml.safe_load(FILE.read_text())["volumes"], volume


def test_an_image_of_others_is_named_by_its_version_and_digest() -> None:
    for name, service in read(example())["services"].items():
        if "build" not in service:
            assert PINNED.fullmatch(service["image"]), (
                f"{name}: {service['image']}; `make pin-images` writes the digest"
            )


def test_the_digests_that_docker_tells_are_written_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text('#!/bin/sh\ncase "$4" in postgres*) exit 1;; esac\necho sha256:' + "a" * 64 + "\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    text = FILE.read_text()
    proxy = re.sub(r"(?s)\n  postgres:.*", "", text)

    written = pinned(proxy)

    assert re.sub(r"@sha256:\w+", "", written) == re.sub(r"@sha256:\w+", "", proxy)
    assert f"caddy:2.11.4-alpine@sha256:{'a' * 64}\n" in written
    with pytest.raises(SystemExit, match="docker does not know the digest of postgres:"):
        pinned(text)


def test_every_service_of_the_console_has_limits_and_cannot_write_to_its_image() -> None:
    for name, service in read(example())["services"].items():
        if name.startswith("ray-"):
            continue
        limits = service["deploy"]["resources"]["limits"]
        assert set(limits) == {"cpus", "memory", "pids"}, name
        assert re.fullmatch(r"\d+[mg]", limits["memory"]), name
        assert service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert name == "valkey" or service["cap_drop"] == ["ALL"], name
    environment = read(example())["x-settings"]
    assert {"pitwall-web-1", "pitwall-web-2"} <= set(environment["PITWALL_ALLOWED_HOSTS"].split(","))


def test_ray_nodes_reach_neither_database_nor_valkey() -> None:
    services = read(example())["services"]
    networks = {name: set(service["networks"]) for name, service in services.items()}

    for node in ("ray-head", "ray-worker"):
        assert not networks[node] & (networks["postgres"] | networks["valkey"])
        assert networks[node] & networks["proxy"], "runs report through the proxy"
        assert not set(services[node]["environment"]) & {"DATABASE_URL", "REDIS_URL", "PITWALL_SECRET_KEY"}


def test_the_proxy_reaches_web_only_by_the_network_whose_headers_are_believed() -> None:
    """A name in two networks is answered with either of them; then all people would have the address of the proxy."""
    services = read(example())["services"]
    targets = set(re.findall(r"dynamic a (\S+) 8000", FILE.read_text()))

    aliases = {network: set((more or {}).get("aliases", ())) for network, more in services["web"]["networks"].items()}

    assert targets
    assert targets <= aliases.pop("front")
    assert not targets & ({"web"} | {name for names in aliases.values() for name in names})
    assert "front" in services["proxy"]["networks"]


def test_ray_understands_the_commands_of_its_nodes() -> None:
    help_text = subprocess.run(
        [sys.executable, "-m", "ray.scripts.scripts", "start", "--help"], capture_output=True, text=True, check=True
    ).stdout
    services = read(example())["services"]

    for node in ("ray-head", "ray-worker"):
        program, verb, *options = services[node]["command"]
        assert (program, verb) == ("ray", "start")
        assert all(option.partition("=")[0] in help_text for option in options), options


def test_the_images_copy_what_exists_and_run_as_nobody_special() -> None:
    names = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    parts = re.split(r"^FROM .* AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)[1:]
    bodies = dict(zip(parts[::2], parts[1::2], strict=True))

    for stage, body in bodies.items():
        for source in re.findall(r"^COPY (?!--from)(\S+)", body, re.MULTILINE):
            assert (ROOT / source).exists(), f"{stage}: COPY {source}"
            assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
        assert set(re.findall(r"--from=(\S+)", body)) <= names
    for final in ("console", "engine"):
        assert re.findall(r"^USER (\S+)$", bodies[final], re.MULTILINE)[-1] == "pitwall"
    assert "install.py console" in bodies["console-packages"]
    assert "HEALTHCHECK" in bodies["console"]
    kept = set(re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "console.lock").read_text(), re.MULTILINE))
    assert not kept & {"torch", "ray", "vllm", "deepspeed"}
    assert "set=engine" in bodies["engine-packages"]


@pytest.fixture(scope="module")
def composition(stack: Stack) -> Iterator[Composition]:
    """Everything of the file that a console needs, running; Ray is that of a console beside it."""
    if find_postgres() is None:
        pytest.skip("no PostgreSQL server programs (initdb); install the package postgresql")
    address, token = stack.ray()
    with running(example(), ray_address=address, ray_token=token) as made:
        yield made


class Browser:
    """A signed-in person whose requests go to the web process they name, as a proxy might send them."""

    def __init__(self, made: Composition, webs: list[str]) -> None:
        self.webs = webs
        link = made.run("web", "python", "manage.py", "signin-link").strip()
        self.cookies: dict[str, str] = {}
        path = httpx.URL(link).raw_path.decode()
        fields = press(self.get(0, path).text)
        assert self._request(0, "POST", path, data=fields).status_code == 302
        self.get(0, "/")  # gives the token for writing

    def _request(self, web: int, method: str, path: str, **more: Any) -> httpx.Response:
        cookie = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        headers = {"Host": "localhost:8000", "Cookie": cookie, "X-CSRFToken": self.cookies.get("csrftoken", "")}
        headers["X-Forwarded-For"] = ADDRESS
        answer = HTTP.request(method, f"http://{self.webs[web]}:8000{path}", headers=headers, timeout=90, **more)
        self.cookies |= dict(answer.cookies)
        return answer

    def get(self, web: int, path: str) -> httpx.Response:
        return self._request(web, "GET", path)

    def post(self, web: int, path: str, body: Any) -> httpx.Response:
        return self._request(web, "POST", path, json=body)

    def follow(self, web: int, path: str, seen: list[dict[str, Any]]) -> threading.Thread:
        """Keep every message of a websocket in `seen`, until it closes."""

        def listen() -> None:
            with contextlib.suppress(ConnectionClosed):  # a server that is stopped or killed says so, or nothing
                follow()

        def follow() -> None:
            line = socket.create_connection((self.webs[web], 8000))
            cookie = {"Cookie": f"pitwall_session={self.cookies['pitwall_session']}"}
            url, origin = f"ws://localhost:8000{path}", "http://localhost:8000"
            with connect(url, sock=line, origin=origin, additional_headers=cookie, max_size=None) as ws:
                seen.extend(json.loads(text) for text in ws)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        return thread


@pytest.mark.proof
@pytest.mark.slow("every service of the composition, and a whole run")
@pytest.mark.stack
@pytest.mark.engine
def test_the_demo_runs_through_it_though_a_web_process_is_killed(composition: Composition) -> None:
    made = composition
    webs = [made.addresses["web"], f"{made.network}.102"]
    with Proxy(made.addresses["proxy"], 8080, [(web, 8000) for web in webs]) as proxy:
        browser = Browser(made, webs)
        launched = browser.post(1, "/api/runs", SPEC)
        assert launched.status_code == 201, launched.text
        run = launched.json()["run"]["id"]
        seen: list[dict[str, Any]] = []
        browser.follow(1, f"/ws/runs/{run}?after=0", seen)

        assert run in browser.get(0, f"/runs/{run}").text
        wait_until(lambda: _steps(seen), seconds=600, what=f"no step came; {made.log('worker-1')[-2000:]}")
        both = set(proxy.taken)
        made.running["web-1"].send_signal(signal.SIGKILL)
        made.running.pop("web-1").wait(10)
        wait_until(lambda: _state(seen) in ("finished", "failed", "stopped"), seconds=600, what="the run did not end")
        made.start("web", number=1)  # what its restart policy does
        wait_until(lambda: made.is_healthy("web", own=webs[0]), seconds=400, what="web did not come back")

        assert _state(seen) == "finished", seen[-1]
        assert both == set(webs), "reports went to both web processes"
        header = browser.get(0, f"/api/runs/{run}").json()
        (model,) = wait_until(lambda: models(browser, run), seconds=200, what="no model arrived")
        series = browser.get(1, f"/api/runs/{run}/series?metrics=reward/mean").json()["series"]
        packed = browser.get(0, f"/runs/{run}/files/{model['id']}").content

    assert _seqs(seen) == list(range(1, len(_seqs(seen)) + 1)), "every frame once and in order, whoever died"
    assert [s["x"] for s in series] == [list(range(1, STEPS + 1))], "every step once"
    assert header["step"] == STEPS
    assert made.run("web", "python", "manage.py", "shell", "--verbosity", "0", "-c", AUDIT).strip() == ADDRESS
    assert hashlib.sha256(packed).hexdigest() == model["sha256"]
    assert any(name.endswith("model.safetensors") for name in zipfile.ZipFile(io.BytesIO(packed)).namelist())
    folder = made.folder / "runs" / run / "a1"
    written = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {e["step"] for e in written if e["kind"] == "metric" and "reward/mean" in e["values"]} == set(
        range(1, STEPS + 1)
    )


def models(browser: Browser, run: str) -> list[dict[str, Any]]:
    artifacts = browser.get(0, f"/api/runs/{run}/artifacts").json()["artifacts"]
    return [a for a in artifacts if a["is_ready"] and a["type"] == "model"]


def _steps(seen: list[dict[str, Any]]) -> int:
    return max((m["run"]["step"] for m in seen if m["type"] == "run"), default=0)


def _state(seen: list[dict[str, Any]]) -> str:
    return next((m["run"]["state"] for m in reversed(seen) if m["type"] == "run"), "")


def _seqs(seen: list[dict[str, Any]]) -> list[int]:
    return [m["seq"] for m in seen if m["type"] == "frame"]


@pytest.mark.proof
def test_nothing_in_a_command_line_is_a_secret(composition: Composition) -> None:
    for name, process in composition.running.items():
        argv = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        assert not any(secret in argv for secret in SECRETS.values()), name
