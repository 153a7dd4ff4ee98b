"""`manage.py change`: knobs of a running run from a shell, listed and changed, refused with an exit code."""

import pytest
from django.core.management import CommandError

from console.command_line.api_command import REFUSED
from console.sign_in.api_token import make_token
from jobs.models import Command, Run
from tests.attempts import train
from tests.console.commands import run_command
from tests.rows import make_project, make_run, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("served_here")]
CRITIC = "optimizer.critic_learning_rate"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of PPO that trains."""
    project = make_project("pit")
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=make_user("ada", project=project), name="cli")[1])
    run = make_run(project=project, state="running", spec={"algorithm": "ppo"})
    train(run, range(1, 3))
    return run


def test_without_knobs_it_lists_those_that_can_change(run: Run) -> None:
    code, out, _err = run_command("change", run.pk)

    assert code == 0
    assert f"{CRITIC}=0.001 (" in out
    assert "optimizer.beta1" not in out


def test_it_asks_the_trainer_once_for_all_of_them_together(run: Run) -> None:
    wanted = (f"{CRITIC}=2e-3", "rollout.temperature=0.8")
    code, out, _err = run_command("change", run.pk, *wanted)
    again, out_again, _ = run_command("change", run.pk, *wanted)
    _, listed, _ = run_command("change", run.pk)

    assert (code, out) == (0, f"{run.pk} goes on with {', '.join(wanted)} from its next step on\n")
    assert (again, out_again) == (0, "Nothing changes: it is so already, or was asked for\n")
    assert f"{CRITIC}=0.001, 0.002 was asked for (" in listed
    (command,) = Command.objects.filter(verb="set")
    assert command.payload["knobs"] == {CRITIC: 0.002, "rollout.temperature": 0.8}


def test_what_cannot_change_is_refused_with_its_exit_code(run: Run) -> None:
    code, _out, err = run_command("change", run.pk, "optimizer.beta1=0.5")

    assert code == REFUSED
    assert "cannot change while the run trains. These can: " in err
    assert not Command.objects.exists()
    with pytest.raises(CommandError, match=r"'2e-3' is not of the form knob=value\."):
        run_command("change", run.pk, "2e-3")
