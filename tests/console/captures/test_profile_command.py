"""`manage.py profile`: through the API, refusals beside their fields, what was recorded saved as a zip."""

import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError

from console.command_line import api_client
from console.command_line.api_json import CaptureJson
from console.sign_in.api_token import make_token
from jobs.models import Capture, Run
from tests.console.commands import run_command
from tests.rows import make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.fixture
def run(served_here: None, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A running run of the command's person."""
    project = make_project("pit")
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=make_user("ada", project=project), name="cli")[1])
    return make_run(project, state="running", spec={"knobs": {"train.num_steps": 40}})


def settle(run: Run, monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """Let the capture come to its end between asking and following it."""
    asked = api_client.ApiClient.profile

    def ask(client: api_client.ApiClient, run_id: str, about: object) -> CaptureJson:
        made = asked(client, run_id, about)  # type: ignore[arg-type]  # passed on as it came
        file = make_artifact(run, "policy-0.json.gz", type="trace", sha256=SHA256_OF_ABC, capture_id=made["id"])
        file.stored_path.parent.mkdir(parents=True, exist_ok=True)
        file.stored_path.write_bytes(b"abc")
        Capture.objects.filter(pk=made["id"]).update(state=state, problem="No room.")
        return made

    monkeypatch.setattr(api_client.ApiClient, "profile", ask)


def test_it_asks_for_what_was_named(run: Run) -> None:
    code, out, _err = run_command(
        "profile", run.pk, "--steps", "3", "--from-step", "7", "--roles", "policy", "--ranks", "0-1"
    )

    capture = Capture.objects.get()
    assert code == 0
    assert f"{capture.pk} asked for: kernels of 3 steps with torch" in out
    assert (capture.first_step, capture.roles, capture.ranks) == (7, ["policy"], [0, 1])


def test_it_asks_for_what_is_to_be_seen(run: Run) -> None:
    code, out, _err = run_command("profile", run.pk, "--what", "stacks", "--seconds", "5")
    refused, _out, err = run_command("profile", run.pk, "--what", "colors")

    capture = Capture.objects.get()
    assert (code, refused) == (0, 3)
    assert f"{capture.pk} asked for: stacks of 5 s with stacks" in out
    assert (capture.what, capture.tool, capture.seconds) == ("stacks", "stacks", 5)
    assert "what: 'colors' cannot be recorded. Use timing, operators, kernels, memory," in err


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous")  # the product serves ASGI
def test_it_saves_the_zip_once_it_is_ready(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(run, monkeypatch, "ready")

    code, out, err = run_command("profile", run.pk, "--out", str(tmp_path))

    assert (code, err) == (0, "")
    (saved,) = tmp_path.iterdir()
    assert out.splitlines()[-2:] == ["ready", str(saved)]
    with zipfile.ZipFile(saved) as archive:
        assert archive.read(f"{saved.stem}/policy-0.json.gz") == b"abc"


def test_a_failed_capture_is_exit_code_1_with_its_reason(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(run, monkeypatch, "failed")

    code, _out, err = run_command("profile", run.pk, "--out", str(tmp_path))

    assert (code, err.strip(), list(tmp_path.iterdir())) == (1, "No room.", [])


def test_refusals_stand_beside_their_fields(run: Run) -> None:
    code, _out, err = run_command("profile", run.pk, "--steps", "500")

    assert code == 3
    assert "num_steps: 500 steps cannot be recorded in one capture. Use 1 to 100." in err


@pytest.mark.parametrize(
    ("option", "sentence"), [(("--ranks", "x"), "is not a rank"), (("--out", "/no/such"), "no folder")]
)
def test_bad_options_are_refused_before_anything_is_asked(run: Run, option: tuple[str, str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        run_command("profile", run.pk, *option)

    assert not Capture.objects.exists()


@pytest.mark.parametrize(
    ("became", "code", "said"),
    [("withdrawn", 0, "withdrawn; nothing was recorded"), ("recording", 1, "goes on (recording): recording had begun")],
)
def test_it_withdraws_and_says_which_came_first(
    run: Run, monkeypatch: pytest.MonkeyPatch, became: str, code: int, said: str
) -> None:
    run_command("profile", run.pk)
    capture = Capture.objects.get()
    asked = api_client.ApiClient.withdraw_capture

    def withdraw(client: api_client.ApiClient, run_id: str, capture_id: str) -> CaptureJson:
        found = asked(client, run_id, capture_id)
        Capture.objects.update(state=became)  # what the trainer says to it
        return found

    monkeypatch.setattr(api_client.ApiClient, "withdraw_capture", withdraw)

    ended, out, err = run_command("profile", run.pk, "--withdraw", capture.pk)

    assert ended == code
    assert f"{capture.pk}: withdrawal asked for" in out
    assert f"{capture.pk} {said}" in out + err


def test_following_a_capture_that_is_withdrawn_ends_with_its_own_code(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(run, monkeypatch, "withdrawn")

    code, out, _err = run_command("profile", run.pk, "--out", str(tmp_path))

    assert (code, out.splitlines()[-1]) == (2, "withdrawn")
