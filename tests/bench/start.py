"""From the click to the first step of the demo, on a console whose Ray runs: `make bench-start`.

Each click is a POST through the API, on a console that has been at rest for a while. With a revision, its whole console
runs beside this one, and clicks go to the two by turns, so that both meet the same machine. What a stage takes stands
in the run's own events; `--install` also measures how long each installs its packages into an empty folder.
"""

import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from console.embedded.ports import free_block
from tests.bench.engine.builtin_side import changed
from tests.bench.stage import ROOT, Result, print_table
from tests.revision import write_revision
from tests.services import own_environment

COMMAND = "make bench-start"
STEPS = 2
REST_SECONDS = 20.0
"""Given to a console after it says that it is ready, and after each run: what is started in advance has its time."""
START_SECONDS = 300.0
END_SECONDS = 600.0
INSTALL_SECONDS = 1800.0
POLL_SECONDS = 0.05
_TOKEN = """
try:
    from console.sign_in.api_token import make_token
except ImportError:  # revisions before it moved
    from console.api_token import make_token
from console.embedded.first_admin import ensure_admin
print("token", make_token(user=ensure_admin(), name="bench")[1])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A console under measurement: its code, and what its runs change of the demo (knobs, or `hardware.` fields)."""

    name: str
    code: Path
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A side whose console answers at `client`, with its run directories below `runs`."""

    side: Side
    client: httpx.Client
    runs: Path


@contextmanager
def running(side: Side, data_dir: Path) -> Iterator[Running]:
    """Start the side's console in an empty directory, and yield it once its Ray is ready; end it."""
    data_dir.mkdir()
    (port,) = free_block(1, seed=f"web of {data_dir}")
    env = own_environment() | {
        "PITWALL_WARM_WORKERS": "1",
        "PITWALL_DATA_DIR": str(data_dir),
        "PITWALL_PORT": str(port),
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }
    url = f"http://127.0.0.1:{port}"
    terminal = data_dir / "terminal.log"
    with terminal.open("wb") as output:
        command = [sys.executable, "manage.py", "up", "--port", str(port)]
        console = subprocess.Popen(command, env=env, cwd=side.code, stdout=output, stderr=subprocess.STDOUT)
    try:
        _until_ready(terminal)
        command = [sys.executable, "manage.py", "shell", "-c", _TOKEN]
        told = subprocess.run(command, env=env, cwd=side.code, check=True, capture_output=True, text=True).stdout
        token = re.search(r"^token (\S+)", told, re.MULTILINE)
        assert token, told
        headers = {"Authorization": f"Bearer {token[1]}"}
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
            yield Running(side=side, client=client, runs=data_dir / "runs")
    finally:
        console.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            console.wait(90)
        console.kill()


def _until_ready(terminal: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not all(line in terminal.read_text(errors="replace") for line in ("Pitwall is at", "Ray is ready")):
        if time.monotonic() > deadline:
            raise SystemExit(f"A console did not start:\n{terminal.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)


def click(console: Running) -> dict[str, float]:
    """Launch the demo for a few steps and wait for its end; return the seconds from the click to each stage."""
    knobs = {"train.num_steps": STEPS, "eval.num_prompts": 0}
    spec = changed({"name": "bench", "knobs": knobs}, console.side.changes)
    clicked, begin = time.time(), time.monotonic()
    answer = console.client.post("/api/runs", json=spec)
    answer.raise_for_status()
    run = answer.json()["run"]["id"]
    seen = 0.0
    while True:
        header = console.client.get(f"/api/runs/{run}").raise_for_status().json()
        header = header.get("run", header)
        now = time.monotonic() - begin
        if not seen and header["step"] >= 1:
            seen = now
        if header["state"] in ("finished", "failed", "stopped"):
            break
        if now > END_SECONDS:
            raise SystemExit(f"The run did not end within {END_SECONDS:.0f} s; it is {header['state']}.")
        time.sleep(POLL_SECONDS)
    if header["state"] != "finished":
        raise SystemExit(f"The run ended {header['state']}: {header.get('cause')}")
    (log,) = (console.runs / run).glob("*/events.jsonl")
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return {**stages(events, clicked), "the page shows the first step": seen}


def stages(events: Sequence[Mapping[str, Any]], clicked: float) -> dict[str, float]:
    """Return the seconds from `clicked` (Unix time) to each stage of a run's start, in order, by its events."""
    at: dict[str, float] = {}

    def note(name: str, event: Mapping[str, Any]) -> None:
        at.setdefault(name, event["t"] / 1e9 - clicked)

    for event in events:
        if event["kind"] == "state":
            text = str(event.get("text", ""))
            if text == "Reading the spec":
                note("driver has its imports", event)
            elif text.startswith("Starting "):
                note("actors are placed", event)
            elif event["state"] == "ready":
                note("all workers have the model", event)
            elif event["state"] == "training":
                note("training begins", event)
        elif event["kind"] == "metric" and "time/step_seconds" in event["values"]:
            note("first step", event)
    return at


def install_seconds(code: Path, chosen: str) -> float:
    """Return how long that code's installer takes to install a set into an empty folder."""
    with tempfile.TemporaryDirectory(prefix="pw-install-") as folder:
        command = [sys.executable, "requirements/install.py", chosen, "--venv", str(Path(folder) / "venv")]
        begin = time.monotonic()
        subprocess.run(command, cwd=code, check=True, timeout=INSTALL_SECONDS, stdout=subprocess.DEVNULL)
        return time.monotonic() - begin


def main() -> None:
    """Measure clicks of all sides by turns, and installing where it is asked for."""
    parser = argparse.ArgumentParser(description="Measure how long the demo takes from the click to its first step.")
    parser.add_argument("--revision", help="measure the console of this revision, too, by turns")
    parser.add_argument("--clicks", type=int, default=5, help="runs on each side (default: %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="change the demo of this code")
    parser.add_argument("--install", action="store_true", help="also install the set engine into an empty folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pw-start-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        sides = [Side(name="this code", code=ROOT, changes=dict(_change(text) for text in given.set))]
        if given.revision:
            sides.append(Side(name=given.revision, code=write_revision(given.revision, Path(folder) / "code")))
        results = []
        if given.install:
            for side in sides:
                results.append(_result(f"{side.name}: install", [install_seconds(side.code, "engine")]))
        print_table([*results, *_measure(sides, Path(folder), given.clicks)])


def _change(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SystemExit(f"--set {text!r} is not NAME=VALUE, for example hardware.layout=split.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _measure(sides: Sequence[Side], folder: Path, clicks: int) -> list[Result]:
    found: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    with ExitStack() as stack:
        consoles = [stack.enter_context(running(side, folder / f"data{number}")) for number, side in enumerate(sides)]
        for number in range(clicks):
            for console in consoles if number % 2 else reversed(consoles):
                time.sleep(REST_SECONDS)
                found[console.side.name].append(click(console))
                print(f"{console.side.name}: {found[console.side.name][-1]['first step']:.2f} s", flush=True)
    return [
        _result(f"{name}: click to {stage}", [one[stage] for one in many])
        for name, many in found.items()
        for stage in many[0]
    ]


def _result(what: str, values: list[float]) -> Result:
    spread = (min(values), max(values))
    return Result(what=what, median=statistics.median(values), spread=spread, unit="s", command=COMMAND)


if __name__ == "__main__":
    main()
