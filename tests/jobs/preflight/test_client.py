"""The trial process: real children, well-behaved and not."""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs.preflight import client
from jobs.preflight.client import TrialFailed, run_trial
from jobs.preflight.sandbox import Allowance, Confinement, why_not
from tests.waiting import wait_until

HANG_SECONDS = 60.0
ECHO = "import json, sys; op = json.load(sys.stdin); json.dump({'op': op['op'], 'n': op['samples']}, sys.stdout)"


def child(code: str) -> list[str]:
    return [sys.executable, "-X", "faulthandler", "-c", code]


def failure(code: str, *, op: str = "reward", timeout_seconds: float = 10, told: Path | None = None) -> TrialFailed:
    """Return why the trial failed; it may write where `told` is."""
    allowance = Allowance(write=(told.parent,) if told else ())
    with pytest.raises(TrialFailed) as caught:
        run_trial({"op": op}, timeout_seconds=timeout_seconds, command=child(code), allowance=allowance)
    return caught.value


@pytest.fixture(params=["namespaces", "landlock", "none"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Close trials in to this level, if this machine can."""
    if request.param != "none" and (reason := why_not(request.param)):
        pytest.skip(reason)
    monkeypatch.setattr(client, "confinement", lambda: Confinement(level=request.param))
    return str(request.param)


def test_the_operation_goes_in_as_json_and_the_answer_comes_out() -> None:
    answer = run_trial({"op": "preview", "samples": 5}, timeout_seconds=60, command=child(ECHO))

    assert answer == {"op": "preview", "n": 5}


def test_what_a_reward_file_prints_does_not_spoil_the_answer() -> None:
    code = "import json; print('debugging'); print(json.dumps({'results': []}))"

    assert run_trial({"op": "reward"}, timeout_seconds=60, command=child(code)) == {"results": []}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('[' * 200_000)", "without an answer"),
        ("print('{\"a\": ' + '[' * 50_000 + ']' * 50_000 + '}')", "without an answer"),
        ("print('{\"metrics\": [\"' + 'x' * (8 << 20) + '\"]}')", "answered more than 8 MiB"),
        ("print('{\"problem\": {\"message\": \"' + 'x' * (7 << 20) + '\"}}')", "xxxx"),
    ],
)
def test_an_answer_that_hurts_whoever_reads_it_is_none(code: str, said: str) -> None:
    failed = failure(code)

    assert said in failed.message
    assert len(failed.message) <= 4000


def test_a_problem_becomes_a_sentence_beside_its_field() -> None:
    failed = failure(
        """print('{"problem": {"field": "data.answer_column", "message": "There is no column x."}}')""", op="preview"
    )

    assert (failed.field, failed.message) == ("data.answer_column", "There is no column x.")


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file; once a child has made it, all the time that the child had is over, in a blink."""
    path = tmp_path / "hangs"

    class Hurry(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout != HANG_SECONDS:
                return super().wait(timeout)
            wait_until(lambda: path.exists() and bool(path.read_text()), timeout, "the child does not hang")
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(subprocess, "Popen", Hurry)
    return path


@pytest.mark.usefixtures("level")
def test_a_hanging_reward_is_ended_and_its_line_is_named(hangs: Path) -> None:
    reward = f"def reward(path):\n    open(path, 'w').write('1')\n    while True:\n        pass\nreward({str(hangs)!r})"
    code = f"exec(compile({reward!r}, 'my_reward.py', 'exec'))"

    failed = failure(code, timeout_seconds=HANG_SECONDS, told=hangs)

    assert failed.field == "reward.source"
    assert "did not end within 60 s: it hangs in line" in failed.message
    assert "in reward." in failed.message


def test_a_hanging_download_names_the_model() -> None:
    failed = failure("import time; time.sleep(60)", op="model", timeout_seconds=0.5)

    assert failed.field == "model.id"
    assert failed.message.startswith("Reading the model's configuration did not end within 0.5 s.")


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("own_session", [False, True])
def test_nothing_of_a_hanging_child_is_left(hangs: Path, own_session: bool) -> None:
    start = f"p = subprocess.Popen({sleeper(hangs)}, start_new_session={own_session}); "
    code = f"import pathlib, subprocess; {start}pathlib.Path({str(hangs)!r}).write_text('1'); p.wait()"

    failure(code, timeout_seconds=HANG_SECONDS, told=hangs)

    wait_until(lambda: not is_left(hangs), 30)  # the killed grandchild is reaped by init, which sends no event


@pytest.mark.usefixtures("level")
def test_nothing_is_left_of_a_child_that_answered(tmp_path: Path) -> None:
    code = f"import subprocess; subprocess.Popen({sleeper(tmp_path)}, start_new_session=True); print('{{}}')"

    assert run_trial({"op": "reward"}, timeout_seconds=60, command=child(code)) == {}

    wait_until(lambda: not is_left(tmp_path), 30)


def sleeper(mark: Path) -> list[str]:
    """Return a command that sleeps, and shows the mark to whoever lists processes."""
    return [sys.executable, "-c", "import time; time.sleep(60)", str(mark)]


def is_left(mark: Path) -> bool:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if file.read_bytes().split(b"\0")[:-1] == [part.encode() for part in sleeper(mark)]:
                return True
    return False


def test_a_child_that_dies_without_an_answer_is_told_apart_from_one_that_hangs() -> None:
    assert "ended with exit code 7" in failure("import os; os._exit(7)").message
    assert "was ended by SIGKILL" in failure("import os; os.kill(os.getpid(), 9)").message
    assert "NameError" in failure("nonsense").message


def test_a_flood_of_output_is_cut() -> None:
    failed = failure("import sys\nwhile True: sys.stdout.write('x' * 100000)", timeout_seconds=20)

    assert failed.field == "reward.source"


def test_a_greedy_child_runs_out_of_its_own_memory() -> None:
    assert "MemoryError" in failure("x = bytearray(20 << 30)").message


def test_secrets_of_the_console_do_not_reach_the_child(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setenv("PITWALL_SECRET_KEY", "s3cret")
    monkeypatch.setenv("DATABASE_URL", "postgres://u:p@h/d")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:p@proxy")
    settings.HF_TOKEN = "hf_x"
    code = "import json, os; print(json.dumps({'env': sorted(os.environ)}))"

    def names(allowance: Allowance) -> set[str]:
        answer = run_trial({"op": "model"}, timeout_seconds=60, command=child(code), allowance=allowance)
        return set(answer["env"])

    closed, on_the_hub = names(Allowance()), names(Allowance(has_network=True))

    assert not {"PITWALL_SECRET_KEY", "DATABASE_URL", "HF_TOKEN", "HTTPS_PROXY", "DJANGO_SETTINGS_MODULE"} & closed
    assert not {"PITWALL_SECRET_KEY", "DATABASE_URL", "DJANGO_SETTINGS_MODULE"} & on_the_hub
    assert {"HF_TOKEN", "HTTPS_PROXY"} <= on_the_hub
    assert {"PATH", "HF_HUB_OFFLINE"} <= closed
