"""The real runner against the real web, ingest and Valkey processes, each of them killed while a run is shipping."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.embedded.ports import free_block
from tests.jobs.runner.conftest import REPOSITORY, House
from tests.jobs.runner.fake_console import FakeConsole
from tests.migrated_database import put_database
from tests.services import Valkey
from tests.waiting import wait_until

pytestmark = pytest.mark.stack

MAKE_RUN = """
from datetime import UTC, datetime
from jobs.runs import launch, lifecycle
from jobs.models import Project
project, _ = Project.objects.get_or_create(slug="p", name="p")
now = datetime.now(UTC)
run, _ = launch.create_run(project=project, spec={}, user=None, idempotency_key=None, now=now)
lifecycle.admit(run_id=run.pk, attempt=1, now=now)
print("JSON", json.dumps({"run": run.pk, "token": launch.ingest_token(run.pk, 1)}))
"""
READ_RUN = """
from jobs.telemetry.frames import decode_frame
from jobs.models import Attempt, Artifact, Command, Frame, LogChunk, Run
run = Run.objects.get(pk=RUN)
attempt = Attempt.objects.get(run=run)
frames = list(Frame.objects.filter(run=run).order_by("seq"))
steps = [s for f in frames for m in decode_frame(f.payload)["metrics"] if m["role"] == "driver" for s in m["steps"]]
chunks = LogChunk.objects.filter(run=run, role="driver").order_by("seq", "first_line")
lines = [line for chunk in chunks for line in chunk.text.split("\\n")]
print("JSON", json.dumps({
    "state": run.state, "cause": run.cause, "step": run.step, "cleanup": attempt.cleanup,
    "steps": steps, "lines": lines,
    "seqs": [f.seq for f in frames], "batches": [f.batch for f in frames], "durable": attempt.durable_batch,
    "artifacts": {a.name: a.is_ready for a in Artifact.objects.filter(run=run)},
    "answers": [c.answer for c in Command.objects.filter(attempt=attempt)],
}))
"""
STOP_RUN = """
from datetime import UTC, datetime
from jobs.runs import lifecycle
print("JSON", json.dumps(lifecycle.request_stop(run_id=RUN, user=None, now=datetime.now(UTC))))
"""
SAVE_RUN = """
from jobs.models import Attempt
command = Attempt.objects.get(run=RUN).commands.create(verb="checkpoint")
print("JSON", command.pk)
"""


SHELL = """
import json, sys, traceback
for line in sys.stdin:
    try:
        exec(json.loads(line), {})
    except Exception:
        print("FAILED", json.dumps(traceback.format_exc()))
    sys.stdout.flush()
"""


class Console:
    """Web, ingest and Valkey in a data directory of their own; no Ray, no worker."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_block(1, seed=f"runner {folder}")
        self.valkey = Valkey(folder)
        self.env = {**os.environ, "PITWALL_DATA_DIR": str(folder), "REDIS_URL": self.valkey.url}
        self.env |= {"RAY_ADDRESS": "http://127.0.0.1:9", "DJANGO_SETTINGS_MODULE": "console.settings"}
        self.env["PITWALL_PORT"] = str(self.port)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = folder / "log.txt"
        self.valkey.start()
        put_database(folder)
        self.start("web")
        self.start("ingest")

    def start(self, name: str) -> None:
        with self.log.open("ab") as log:
            self.processes[name] = subprocess.Popen([*self._manage(), name], env=self.env, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def is_answering(self) -> bool:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    def shell(self, script: str, run: str = "") -> Any:
        """Run a script in the console's Django and return what it prints as JSON.

        One process runs them all: to start Django costs a second of a core.
        """
        if "shell" not in self.processes:
            self.processes["shell"] = subprocess.Popen(
                [*self._manage(), "shell", "-v0", "-c", SHELL],
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        shell = self.processes["shell"]
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(json.dumps(f"import json\nRUN = {run!r}\n{script}").encode() + b"\n")
        shell.stdin.flush()
        for line in shell.stdout:
            if line.startswith(b"JSON "):
                return json.loads(line.removeprefix(b"JSON "))
            assert not line.startswith(b"FAILED "), json.loads(line.removeprefix(b"FAILED "))
        raise AssertionError("the console's shell has ended")

    def manage(self, *arguments: str) -> str:
        """Run a command to its end and return what it says."""
        argv = [*self._manage(), *arguments]
        return subprocess.run(argv, env=self.env, check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()
        self.valkey.kill()

    def _manage(self) -> list[str]:
        return [sys.executable, str(REPOSITORY / "manage.py")]


@pytest.fixture(scope="module")
def real() -> Iterator[Console]:
    folder = Path(tempfile.mkdtemp(prefix="pw-rc-"))  # short: Valkey's socket is in it
    made = Console(folder)
    try:
        wait_until(made.is_answering, 180)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def real_house(tmp_path: Path, real: Console) -> Iterator[House]:
    made = real.shell(MAKE_RUN)
    house = House(tmp_path, FakeConsole(run=made["run"], port=real.port))  # never started: only names run and port
    house.token = made["token"]
    yield house
    house.close()


def test_a_run_survives_the_death_of_every_part_of_the_console(real_house: House, real: Console) -> None:
    real_house.trainer(
        """
        def allowed():
            return int((run_dir / "allowed").read_text()) if (run_dir / "allowed").exists() else 0
        for step in range(1, 61):
            wait_until(lambda: step <= allowed())
            metric(step)
            print("step", step, flush=True)
            time.sleep(0.02)
        folder = run_dir / "model" / "final"
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(bytes(9 << 20))
        log.write(events.artifact("model-final", artifact="model", path="model/final", attempt=attempt, step=60))
        """
    )
    run = real_house.console.run
    runner = real_house.start()

    def allow(steps: int) -> None:
        (real_house.run_dir / "allowed.part").write_text(str(steps))
        (real_house.run_dir / "allowed.part").rename(real_house.run_dir / "allowed")

    def shipped(steps: int) -> None:
        wait_until(lambda: real.shell(READ_RUN, run)["steps"][-1:] == [steps], 180)

    wait_until(lambda: (real_house.run_dir / "launch.json").exists(), 180)
    allow(10)
    shipped(10)
    real.kill("web")
    allow(20)
    real.start("web")
    shipped(20)
    real.kill("ingest")
    allow(30)
    real.valkey.wipe()  # what ingest had not stored is lost, and what the ingest endpoint expected
    allow(40)
    real.valkey.start()
    real.start("ingest")
    shipped(40)
    real.valkey.kill()
    allow(50)
    real.valkey.start()
    allow(60)
    real_house.finish(runner, timeout=400)

    seen = real.shell(READ_RUN, run)
    assert seen["steps"] == list(range(1, 61))
    assert seen["lines"] == [f"step {step}" for step in range(1, 61)]
    assert seen["seqs"] == list(range(1, len(seen["seqs"]) + 1))
    assert seen["batches"] == list(range(1, seen["durable"] + 1))
    assert (seen["state"], seen["step"]) == ("finished", 60)
    assert seen["cleanup"]["processes_left"] == 0
    assert seen["artifacts"] == {"model-final.zip": True, "logs.zip": True}


@pytest.mark.proof
def test_a_run_that_was_live_at_the_backup_goes_on_with_the_restored_console(
    real_house: House, real: Console, tmp_path: Path
) -> None:
    real_house.trainer(
        """
        for step in range(1, 31):
            metric(step)
            print("step", step, flush=True)
        wait_until(lambda: (run_dir / "more").exists())
        for step in range(31, 61):
            metric(step)
            print("step", step, flush=True)
        wait_until(lambda: any(c["verb"] == "stop" for c in commands()))
        sys.exit(10)
        """
    )
    run = real_house.console.run
    runner = real_house.start()
    wait_until(lambda: real.shell(READ_RUN, run)["steps"][-1:] == [30], 180)
    real.manage("backup", str(tmp_path / "backup"))
    durable = real.shell(READ_RUN, run)["durable"]
    real.shell(SAVE_RUN, run)  # a command that the restored console has never heard of
    (real_house.run_dir / "more").touch()
    wait_until(lambda: real.shell(READ_RUN, run)["steps"][-1:] == [60], 180)
    wait_until(lambda: real.shell(READ_RUN, run)["answers"][0], 60)
    assert real.shell(READ_RUN, run)["durable"] > durable

    for name in ("web", "ingest", "shell"):
        real.kill(name)
    del real.processes["shell"]
    said = real.manage("restore", str(tmp_path / "backup"), "--replace")
    real.start("web")
    real.start("ingest")
    assert run in said
    wait_until(lambda: real.shell(READ_RUN, run)["steps"][-1:] == [60], 180)
    assert real.shell(STOP_RUN, run)
    real_house.finish(runner, timeout=400)

    seen = real.shell(READ_RUN, run)
    assert seen["steps"] == list(range(1, 61))
    assert seen["lines"] == [f"step {step}" for step in range(1, 61)]
    assert seen["batches"] == list(range(1, seen["durable"] + 1))
    assert seen["state"] == "stopped"
    assert seen["answers"] == [{"accepted": True}]


def test_a_stop_asked_of_the_console_reaches_the_trainer(real_house: House, real: Console) -> None:
    real_house.trainer("metric(1)\nwait_until(commands)\nmetric(2)\nsys.exit(10)\n")
    run = real_house.console.run
    runner = real_house.start()
    wait_until(lambda: real.shell(READ_RUN, run)["state"] == "running", 180)

    assert real.shell(STOP_RUN, run)
    real_house.finish(runner, timeout=400)

    seen = real.shell(READ_RUN, run)
    assert (seen["state"], seen["steps"]) == ("stopped", [1, 2])
    assert seen["cause"]["side"] == "user"
    assert seen["answers"] == [{"accepted": True}]


def test_the_clean_up_of_a_killed_runner_is_let_in_after_the_run_has_ended(real_house: House, real: Console) -> None:
    real_house.trainer("metric(1)\ntime.sleep(600)\n")
    run = real_house.console.run
    runner = real_house.start()
    wait_until(lambda: real.shell(READ_RUN, run)["state"] == "running", 180)
    runner.kill()
    runner.wait()
    with (real_house.run_dir / "events.jsonl").open("a") as log:
        log.write('{"kind":"metric","attempt":1,"step":2,"role":"driver","rank":0,"t":4,"values":{"loss":1}}\n')
    real.shell(
        "from datetime import UTC, datetime\nfrom jobs.runs import lifecycle\n"
        "print('JSON', lifecycle.finish(run_id=RUN, attempt=1, state='failed', cause={'side': 'cluster', 'text': 'x'},"
        " cleanup={}, now=datetime.now(UTC)) and 1)",
        run,
    )

    real_house.finish(real_house.start("jobs.runner.cleanup", PITWALL_LEAVE_SECONDS="0.2"), timeout=400)

    seen = real.shell(READ_RUN, run)
    assert seen["state"] == "failed"
    assert seen["steps"] == [1, 2]
    assert seen["cleanup"]["processes_left"] == 0
    assert seen["artifacts"] == {"logs.zip": True}
