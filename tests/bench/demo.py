"""The whole way, measured on the real console: `python -m tests.bench.demo`.

Cold start, click to a running Ray job, click to the first step, and what the demo run itself reports: speed, seconds
per phase, memory per role, weight sync, and the cost of emitting events. Each click is a POST through the API.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from console.embedded.ports import free_block
from tests.bench.stage import ROOT, Result, print_table
from tests.services import own_environment

COMMAND = "python -m tests.bench.demo"
CLICK_STEPS = 2
START_SECONDS = 120.0
END_SECONDS = 420.0


def main() -> None:
    """Measure cold starts, then clicks and the demo on the last of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=3, help="cold starts to take the median of")
    parser.add_argument("--clicks", type=int, default=3, help="short runs to take the median of")
    parser.add_argument("--inside", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        given.out.write_text(json.dumps([asdict(result) for result in _inside(given.inside, given.clicks)]))
        return
    starts, results = [], []
    for number in range(given.starts):
        with _console() as (env, url, started):
            starts.append(started)
            if number == given.starts - 1:
                out = Path(env["PITWALL_DATA_DIR"]) / "bench.json"
                again = ["--inside", url, "--clicks", str(given.clicks), "--out", str(out)]
                subprocess.run([sys.executable, "-m", "tests.bench.demo", *again], cwd=ROOT, env=env, check=True)
                results = [Result(**{**row, "spread": tuple(row["spread"])}) for row in json.loads(out.read_text())]
    print_table([_result("console cold start to the first page", starts, "s"), *results])


@contextmanager
def _console() -> Iterator[tuple[dict[str, str], str, float]]:
    """Start a console in a fresh directory; yield its environment, its address and how long the first page took."""
    with tempfile.TemporaryDirectory(prefix="pw-demo-", ignore_cleanup_errors=True) as folder:
        (port,) = free_block(1, seed=f"web of {folder}")
        env = own_environment()
        env |= {"PITWALL_WARM_WORKERS": "1"}  # as for a person; consoles of tests go without
        env |= {"PITWALL_DATA_DIR": folder, "PITWALL_PORT": str(port), "DJANGO_SETTINGS_MODULE": "console.settings"}
        url = f"http://127.0.0.1:{port}"
        output = Path(folder) / "terminal.log"
        begin = time.monotonic()
        with output.open("wb") as file:
            command = [sys.executable, str(ROOT / "manage.py"), "up", "--port", str(port)]
            console = subprocess.Popen(command, env=env, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        try:
            _until_page(f"{url}/signin", begin)
            started = time.monotonic() - begin
            _until_line(output, "Ray is ready")
            yield env, url, started
        finally:
            console.send_signal(signal.SIGINT)
            console.wait(90)


def _until_page(url: str, begin: float) -> None:
    while True:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        if time.monotonic() - begin > START_SECONDS:
            raise SystemExit(f"The console did not show {url} within {START_SECONDS:.0f} s.")
        time.sleep(0.02)


def _until_line(output: Path, line: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not re.search(line, output.read_text(errors="replace")):
        if time.monotonic() > deadline:
            raise SystemExit(f"The console did not print {line!r}:\n{output.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)


def _inside(url: str, clicks: int) -> list[Result]:
    """Measure on the running console whose data directory is ours."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model

    from console.sign_in.api_token import make_token

    user = get_user_model().objects.filter(is_superuser=True).first() or get_user_model().objects.first()
    assert user is not None
    _, token = make_token(user=user, name="bench")
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        found = [_click(client, {"train.num_steps": CLICK_STEPS, "eval.num_prompts": 0}) for _ in range(clicks)]
        demo = _click(client, {})
    return [
        _result("click to Ray job running", [f["running"] for f in found], "s"),
        _result("click to the demo's first step", [f["first_step"] for f in [*found, demo]], "s"),
        _result("click to the finished demo, 60 steps", [demo["finished"]], "s"),
        *_reported(demo["run"]),
    ]


def _click(client: httpx.Client, knobs: dict[str, Any]) -> dict[str, Any]:
    """Launch a run and follow its row: seconds to the runner's first report, the first step, and the end."""
    from jobs.models import ENDED, Attempt, Run

    begin = time.monotonic()
    answer = client.post("/api/runs", json={"name": "bench", "knobs": knobs})
    answer.raise_for_status()
    run_id = answer.json()["run"]["id"]
    seen: dict[str, Any] = {"run": run_id}
    while "finished" not in seen:
        run = Run.objects.get(pk=run_id)
        now = time.monotonic() - begin
        if "running" not in seen and Attempt.objects.filter(run_id=run_id, last_contact_at__isnull=False).exists():
            seen["running"] = now
        if "first_step" not in seen and run.step >= 1:
            seen["first_step"] = now
        if run.state in ENDED:
            if run.state != "finished":
                raise SystemExit(f"The run ended {run.state}: {run.cause}")
            seen["finished"] = now
        if now > END_SECONDS:
            raise SystemExit(f"The run did not end within {END_SECONDS:.0f} s; it is {run.state} at step {run.step}.")
        time.sleep(0.02)
    return seen


def _reported(run_id: str) -> list[Result]:
    """Return what the demo reported of itself, medians over its steps."""
    from jobs.models import Metric
    from jobs.telemetry.series import read_series

    names = sorted(set(Metric.objects.filter(run_id=run_id).exclude(kind="span").values_list("name", flat=True)))
    series = read_series(run_id=run_id, names=names, num_points=10_000).series
    columns = {(s.name, s.role, s.rank): [float(y) for y in s.y] for s in series}
    driver = {name: values for (name, role, _), values in columns.items() if role == "driver"}
    steps = driver["time/step_seconds"]
    events = [e / s * 100 for e, s in zip(driver["time/event_seconds"], steps, strict=True)]
    rows = [
        _result("rollout", driver["throughput/rollout_tokens_per_second"], "tok/s"),
        _result("update", driver["throughput/update_tokens_per_second"], "tok/s"),
        _result("step", steps, "s"),
    ]
    for name in sorted(driver):
        if name.startswith("time/") and name not in ("time/step_seconds", "time/event_seconds"):
            rows.append(_result(f"phase {name[5:-8]}", driver[name], "s"))
    for (name, role, rank), values in sorted(columns.items()):
        if name == "memory_bytes" and role not in ("runner", "driver"):
            rows.append(_result(f"memory of {role} {rank}, highest", [max(values) / 2**20], "MiB"))
    rows.append(_result("largest vLLM and trainer log-prob difference", driver["sync/max_logprob_diff"], "nats"))
    return [*rows, _result("cost of emitting events", events, "% of step")]


def _result(what: str, values: list[float], unit: str) -> Result:
    spread = (min(values), max(values))
    return Result(what=what, median=statistics.median(values), spread=spread, unit=unit, command=COMMAND)


if __name__ == "__main__":
    main()
