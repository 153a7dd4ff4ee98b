"""The rules and the dashboard of docs/operate/prometheus, judged by Prometheus: its checker, and a real one that
scrapes a real console.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from django.contrib.auth.models import User
from django.utils import timezone

from console.embedded.ports import free_block
from console.monitoring.families import VALUES
from console.sign_in.api_token import make_token
from tests.console.live_console import LiveConsole
from tests.loopback import HTTP
from tests.rows import make_run
from tests.waiting import wait_until

FILES = Path(__file__).resolve().parents[3] / "docs" / "operate" / "prometheus"
PAGE = FILES.parent / "monitoring.md"
DASHBOARD = json.loads((FILES / "pitwall-dashboard.json").read_text())
RULES = yaml.safe_load((FILES / "pitwall-rules.yml").read_text())
NAME = re.compile(r"\b(?:pitwall|process)_\w+")
SERIES_ENDINGS = re.compile(r"_(?:bucket|count|sum|total|info)$")
SCRAPE_SECONDS = 240
_TWICE = "rate(pitwall_ingest_batches_total[1m])"


def program(name: str) -> str:
    """Return where the program is; skips where it is not installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}; install the package prometheus")
    return path


def check(*arguments: str, stdin: bytes = b"", folder: Path = FILES) -> str:
    """Return what promtool says; fails if it finds anything wrong."""
    done = subprocess.run([program("promtool"), *arguments], input=stdin, capture_output=True, cwd=folder, check=False)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


def expressions() -> dict[str, str]:
    """Return every expression of the dashboard, its variables filled in, and of the rules."""
    panels = {
        f"panel {panel['title']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }
    panels["annotation"] = DASHBOARD["annotations"]["list"][0]["expr"]
    rules = {f"rule {rule['alert']}": rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
    filled = {where: re.sub(r"\$(job|project|run)\b", ".*", expr) for where, expr in (panels | rules).items()}
    return {where: expr.replace("$__rate_interval", "1m") for where, expr in filled.items()}


def test_promtool_accepts_the_files_and_the_rules_fire_when_they_should(tmp_path: Path) -> None:
    check("check", "rules", "pitwall-rules.yml")
    check("test", "rules", "pitwall-rules-test.yml")
    for file in ("prometheus.yml", "pitwall-rules.yml"):
        shutil.copy(FILES / file, tmp_path)
    (tmp_path / "pitwall-token").write_text("x")
    check("check", "config", "prometheus.yml", folder=tmp_path)
    tested = (FILES / "pitwall-rules-test.yml").read_text()
    untested = [rule["alert"] for group in RULES["groups"] for rule in group["rules"] if rule["alert"] not in tested]
    assert untested == []


class Prometheus:
    """A real one on loopback that scrapes a console with a token."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **query: str) -> Any:
        answer = HTTP.get(f"{self._url}/api/v1/{path}", params=query, timeout=30)
        assert answer.status_code == 200, f"{query}: {answer.text}"
        return answer.json()["data"]

    def value(self, expression: str) -> list[Any]:
        """Return the samples of an expression now."""
        samples: list[Any] = self.ask("query", query=expression)["result"]
        return samples

    def is_up(self) -> bool:
        """Whether it has scraped the console twice."""
        try:
            is_ready = HTTP.get(f"{self._url}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False
        return is_ready and bool(self.value('up{job="pitwall"} == 1') and self.value(_TWICE))


@pytest.fixture(scope="module")
def token(live_console: LiveConsole, django_db_blocker: object) -> str:
    """A superuser's token, in a project with runs in several states."""
    with django_db_blocker.unblock():  # type: ignore[attr-defined]
        values = dict.fromkeys(VALUES, 0.5)
        make_run(live_console.project, state="running", now=timezone.now(), latest_values=values, num_steps=9)
        make_run(live_console.project, now=timezone.now())
        User.objects.filter(pk=live_console.user.pk).update(is_superuser=True)
        user = User.objects.get(pk=live_console.user.pk)
        return make_token(user=user, name="prometheus")[1]


@pytest.fixture(scope="module")
def prometheus(live_console: LiveConsole, token: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with our configuration, but for where the console is and how often it is asked."""
    server = program("prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    config = yaml.safe_load((FILES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [live_console.url.removeprefix("http://")]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / "pitwall-token").write_text(token)
    shutil.copy(FILES / "pitwall-rules.yml", folder)
    (port,) = free_block(1, seed=f"prometheus of {folder}")
    listen = f"--web.listen-address=127.0.0.1:{port}"
    command = [server, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", listen]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    made = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_until(made.is_up, SCRAPE_SECONDS, what=lambda: (folder / "log").read_text()[-3000:])
        yield made
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.browser  # in the part of the tests that have a live console
def test_the_page_passes_the_checker(live_console: LiveConsole, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}

    page = HTTP.get(f"{live_console.url}/metrics", headers=headers, timeout=30)

    assert page.status_code == 200
    advice = check("check", "metrics", stdin=page.content).splitlines()
    # What the library calls so for all programs; a number of tokens a second is what a trainer reports, not a counter.
    excused = ("process_", "pitwall_run_info")
    assert [line for line in advice if not line.startswith(excused)] == []


@pytest.mark.browser
def test_every_expression_has_an_answer_from_what_is_exposed(prometheus: Prometheus) -> None:
    named = expressions()
    exposed = {entry["metric"] for entry in prometheus.ask("targets/metadata")}
    bare = {SERIES_ENDINGS.sub("", name) for name in exposed}
    for where, expression in named.items():
        unknown = {n for n in NAME.findall(expression) if n not in exposed and SERIES_ENDINGS.sub("", n) not in bare}
        assert not unknown, f"{where} asks for {unknown}, which the console does not expose"
        prometheus.value(expression)

    empty = [
        where for where, expression in named.items() if where.startswith("panel") and not prometheus.value(expression)
    ]
    assert empty == [], "panels without data, though all of it is there"
    documented = {SERIES_ENDINGS.sub("", name) for name in NAME.findall(PAGE.read_text())}
    assert {name for name in bare if name.startswith("pitwall_")} - documented == set(), "not in monitoring.md"
    states = {sample["metric"]["state"] for sample in prometheus.value("pitwall_run_state")}
    assert states == {"running", "queued"}
    firing = {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}
    assert "PitwallRedisDown" not in firing
    assert time.time() - float(prometheus.value("max(process_start_time_seconds)")[0]["value"][1]) < 3600
