"""`manage.py launch`: through the API, problems beside their fields, an exit code that says what became of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from console.api.runs import runs as runs_api
from console.command_line import api_client, api_command
from console.command_line.run_table import run_table
from console.sign_in.api_token import make_token
from jobs.models import Frame, Membership, Metric, Run
from jobs.runs import lifecycle
from jobs.runs.environment import hand_out
from jobs.telemetry.frames import encode_frame
from profiling.events import metric
from tests.console.commands import run_command
from tests.rows import NOW, make_project, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _in_process(served_here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_api, "check_launchable", lambda *_, **__: [])


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    user = make_user("ada", project=make_project("pit"))
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=user, name="cli")[1])


def launch(spec: Any, tmp_path: Path, *options: str) -> tuple[int, str, str]:
    """Return exit code, output and errors of the command on a spec."""
    path = tmp_path / "spec.json"
    path.write_text(spec if isinstance(spec, str) else json.dumps(spec))
    return run_command("launch", str(path), *options)


def test_it_queues_the_spec_and_prints_id_and_link(tmp_path: Path) -> None:
    code, out, _err = launch({"name": "from the shell"}, tmp_path)

    run = Run.objects.get()
    assert code == 0
    assert out.startswith(f"{run.pk} queued: http")
    assert out.strip().endswith(f"/runs/{run.pk}")


def test_the_same_key_launches_once(tmp_path: Path) -> None:
    launch({}, tmp_path, "--key", "k")
    _code, out, _err = launch({}, tmp_path, "--key", "k")

    assert "was launched before with this key" in out
    assert Run.objects.count() == 1


def test_problems_stand_beside_their_fields(tmp_path: Path) -> None:
    code, _out, err = launch(
        {"algorithm": "ppo", "trainer": {"name": "trl"}, "knobs": {"optimizer.learning_rat": 1}}, tmp_path
    )

    assert code == api_command.REFUSED
    assert "  algorithm: PPO is not trained by TRL 1.16.0. Use " in err
    assert "  knobs.optimizer.learning_rat: There is no knob" in err
    assert not Run.objects.exists()


def test_a_file_that_is_no_json_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"spec\.json is not JSON: Expecting property name .* line 1 column 2"):
        launch("{oops", tmp_path)
    with pytest.raises(CommandError, match=r"Cannot read nowhere\.json: No such file"):
        call_command("launch", "nowhere.json")


def test_without_a_token_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PITWALL_API_TOKEN")

    with pytest.raises(CommandError, match="Make one on the console's account page"):
        launch({}, tmp_path)


def test_a_wrong_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", "pw_wrong")

    code, _out, err = launch({}, tmp_path)

    assert code == api_command.REFUSED
    assert "send a valid API token" in err


def test_a_token_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text(f"{api_command.read_token(None)}\n")
    monkeypatch.delenv("PITWALL_API_TOKEN")

    assert launch({}, tmp_path, "--token-file", str(path))[0] == 0


def test_a_console_that_is_away_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_command, "ApiClient", api_client.ApiClient)

    code, _out, err = launch({}, tmp_path, "--url", "http://127.0.0.1:9")

    assert code == api_command.AWAY
    assert "No console answers at http://127.0.0.1:9" in err


@pytest.mark.parametrize(("state", "code"), [("finished", 0), ("failed", 1), ("stopped", 2)])
def test_waiting_follows_to_the_end_and_leaves_with_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, code: int
) -> None:
    seen: list[str] = []

    def advance(_seconds: float) -> None:
        """The run's life, one change for each time the command looks again."""
        run = Run.objects.get()
        seen.append(run.state)
        if run.state == "queued":
            lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
        elif run.state == "starting":
            lifecycle.mark_running(run_id=run.pk, attempt=1, now=NOW)
            Run.objects.update(step=7)
        else:
            cause = {} if state == "finished" else {"side": "trainer", "text": "loss is NaN", "log_line": "step 7: nan"}
            lifecycle.finish(run_id=run.pk, attempt=1, state=state, cause=cause, cleanup={}, now=NOW)

    monkeypatch.setattr(api_client.time, "sleep", advance)

    left, out, _err = launch({}, tmp_path, "--wait")

    assert left == code
    assert seen == ["queued", "starting", "running"]
    assert "running, step 7 of 60" in out
    assert f"state  {state}" in out
    assert ("loss is NaN" in out) is (state != "finished")


def test_the_table_is_made_of_what_the_api_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(_seconds: float) -> None:
        run = Run.objects.get()
        for name in ("reward/mean", "time/rollout_seconds"):
            Metric.objects.create(run=run, name=name)
        for step in (1, 2, 3):
            events = [metric({"reward/mean": step / 4, "time/rollout_seconds": 0.5}, attempt=1, step=step, t=step)]
            payload = encode_frame(seq=step, attempt=1, events=events, logs=[])
            Frame.objects.create(run=run, seq=step, attempt=1, batch=step, at=NOW, payload=payload)
        Run.objects.update(seq=3, step=3)
        lifecycle.admit(run_id=run.pk, attempt=1, now=NOW)
        lifecycle.finish(run_id=run.pk, attempt=1, state="finished", cause={}, cleanup={}, now=NOW)

    monkeypatch.setattr(api_client.time, "sleep", train)

    _code, out, _err = launch({"knobs": {"train.num_steps": 3}}, tmp_path, "--wait")

    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "steps 3 of 3" in lines
    assert "Reward 0.250 -> 0.750 (means of the first and last step)" in lines
    assert "Rollout 0.500 s a step, 1.5 s in all" in lines


def test_the_table_shows_both_ends_and_where_the_time_went() -> None:
    header = {
        "id": "r-1",
        "name": "demo",
        "state": "finished",
        "step": 60,
        "num_steps": 60,
        "elapsed_seconds": 75.2,
        "cause": {},
    }
    series = [
        {"name": "reward/mean", "y": [0.2] * 20 + [0.5] * 20 + [0.9] * 20},
        {"name": "eval/accuracy", "y": [0.4, "NaN", None, 0.95]},
        {"name": "time/step_seconds", "y": [1.0, 1.0, 4.0]},
        {"name": "time/rollout_seconds", "y": [0.25, 0.75]},
    ]

    lines = [" ".join(line.split()) for line in run_table(header, series).splitlines()]

    assert "steps 60 of 60" in lines
    assert "took 75 s" in lines
    assert "Reward 0.200 -> 0.900 (means of the first and last 20 steps)" in lines
    assert "Held-out accuracy 0.400 -> 0.950" in lines
    assert "Step time median 1.000 s" in lines
    assert "Rollout 0.500 s a step, 1.0 s in all" in lines


def test_secrets_come_from_the_shell_or_a_file_and_never_from_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "value-in-the-shell")
    (tmp_path / "key").write_text("value-in-a-file\n")
    options = ("--env", "NCCL_DEBUG=INFO", "--secret", "HF_TOKEN", "--secret", f"WANDB_API_KEY=@{tmp_path / 'key'}")

    code, out, _err = launch({}, tmp_path, *options)
    with pytest.raises(CommandError) as refused:
        call_command("launch", str(tmp_path / "spec.json"), "--secret", "HF_TOKEN=value-on-the-line")

    run = Run.objects.get()
    assert code == 0
    assert run.spec["environment"] == {"variables": {"NCCL_DEBUG": "INFO"}, "secrets": ["HF_TOKEN", "WANDB_API_KEY"]}
    secrets = hand_out(run.attempts.get(), key="k" * 32)
    assert secrets == {"HF_TOKEN": "value-in-the-shell", "WANDB_API_KEY": "value-in-a-file"}
    assert "value-" not in out + str(refused.value)


def test_the_environment_of_a_project_is_set_shown_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    Membership.objects.update(role="admin")
    monkeypatch.setenv("HF_TOKEN", "value-in-the-shell")

    code, out, _err = run_command("environment", "pit", "--env", "NCCL_DEBUG=INFO", "--secret", "HF_TOKEN")
    _code, left, _err = run_command("environment", "pit", "--remove", "NCCL_DEBUG")

    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["HF_TOKEN", "(secret)"], ["NCCL_DEBUG", "INFO"]]
    assert left.split() == ["HF_TOKEN", "(secret)"]
