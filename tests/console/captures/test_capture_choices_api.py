"""Ask for what is to be seen: which tool is picked, why, and what is refused; what there is to choose; the disks."""

import json
import math
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client
from django.utils import timezone

from console.forms.new_run.fields import groups
from console.forms.new_run.form import combination_of, form_to_raw, spec_to_form
from jobs.captures.captures import apply_events, arm_at_launch
from jobs.captures.choices import WORDS
from jobs.captures.refusals import CaptureRefused, check_free_space
from jobs.catalog.spec.parse import SpecInvalid, parse_spec
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Capture, Command, Run, RunEvent
from profiling import events
from profiling.config import TOOLS, WHATS
from tests.batches import delivery
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

SPEC = {"knobs": {"train.num_steps": 40}, "hardware": {"policy_ranks": 2}}
NO_NSYS = "nsys is not installed on node a."
HELD = "This worker was started ready for nsys, which holds the GPU's tracing."
WORKERS = ("policy-0", "policy-1", "vllm-0")


@pytest.fixture
def client(run: Run) -> Client:
    client = Client(headers={"Host": "localhost"})
    client.force_login(run.created_by, backend="django.contrib.auth.backends.ModelBackend")  # type: ignore[arg-type]
    return client


@pytest.fixture
def run() -> Run:
    project = make_project("theirs")
    person: AbstractUser = make_user("engineer", project=project)
    return make_run(project, state="running", spec=SPEC, user=person, step=5)


def tell(run: Run, *, lacking: dict[str, dict[str, str]] | None = None, gpu: bool = False) -> None:
    """Let three workers tell that they have everything; on `gpu` nsys holds the tracing; `lacking` by worker."""
    usual = {
        "torch": HELD if gpu else "",
        "nsys": "",
        "stacks": "",
        "memory": "" if gpu else "It takes a GPU.",
        "msprof": "no torch_npu",
    }
    told = {name: {**usual, **(lacking or {}).get(name, {})} for name in WORKERS}
    RunEvent.objects.create(run=run, at=NOW, verb="note", text="ready", data={"profilers": told})


def ask(client: Client, run: Run, **asked: Any) -> Any:
    return client.post(f"/api/runs/{run.pk}/captures", json.dumps(asked), content_type="application/json")


def choices(client: Client, run: Run, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/api/runs/{run.pk}/captures/choices{query}")
    assert answer.status_code == 200, answer.content
    return {**answer.json(), "by": {one["what"]: one for one in answer.json()["choices"]}}


@pytest.mark.parametrize(
    ("what", "gpu", "tool"),
    [
        ("timing", False, "nsys"),
        ("operators", False, "torch"),
        ("kernels", False, "torch"),
        ("memory", False, "torch"),
        ("communication", False, "torch"),
        ("stacks", False, "stacks"),
        ("timing", True, "nsys"),
        ("kernels", True, "nsys"),
        ("memory", True, "memory"),
        ("communication", True, "nsys"),
        ("", True, "nsys"),
        ("", False, "torch"),
    ],
)
def test_the_tool_is_picked_for_what_is_to_be_seen(client: Client, run: Run, what: str, gpu: bool, tool: str) -> None:
    tell(run, gpu=gpu)

    answer = ask(client, run, **({"what": what} if what else {}))

    assert (answer.status_code, answer.json()["tool"], answer.json()["what"]) == (201, tool, what or "kernels")
    payload = Command.objects.get().payload
    assert (payload["tool"], payload["what"]) == (tool, what or "kernels")


def test_what_no_tool_can_show_is_refused_with_the_reasons(client: Client, run: Run) -> None:
    tell(run, gpu=True)

    answer = ask(client, run, what="operators")

    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["field"]) == (409, "what")
    assert problem["message"] == f"torch cannot record policy 0-1, vllm 0: {HELD}"
    assert not Capture.objects.exists()


@pytest.mark.parametrize(
    ("asked", "status", "field", "sentence"),
    [
        ({"what": "colors"}, 422, "what", "Use timing, operators, kernels, memory, communication or stacks"),
        ({"what": "operators", "tool": "nsys"}, 409, "tool", "nsys does not show operators on cpu. Ask for timing"),
        ({"what": "kernels", "tool": "memory"}, 409, "tool", "memory shows nothing on cpu"),
        ({"what": "memory", "seconds": 3}, 422, "seconds", "by complete steps only"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    client: Client, run: Run, asked: dict[str, Any], status: int, field: str, sentence: str
) -> None:
    tell(run)

    answer = ask(client, run, **asked)

    (problem,) = answer.json()["problems"]
    assert (answer.status_code, problem["field"]) == (status, field)
    assert sentence in problem["message"]
    assert not Capture.objects.exists()


def test_what_torch_records_only_of_the_built_in_trainer_is_refused_for_others(client: Client, run: Run) -> None:
    Run.objects.filter(pk=run.pk).update(spec={**SPEC, "trainer": {"name": "openrlhf"}})
    tell(run)

    answer = ask(client, run, what="memory")

    assert (answer.status_code, answer.json()["problems"][0]["field"]) == (409, "what")
    assert "torch records memory only of the built-in trainer" in answer.json()["problems"][0]["message"]
    assert ask(client, run, what="operators").status_code == 201


def test_a_tool_that_is_named_is_taken_and_what_it_is_best_at_is_kept(client: Client, run: Run) -> None:
    tell(run)

    named = ask(client, run, tool="nsys", first_step=10)
    both = ask(client, run, tool="torch", what="timing", first_step=20)

    assert [(one.json()["tool"], one.json()["what"]) for one in (named, both)] == [
        ("nsys", "timing"),
        ("torch", "timing"),
    ]


def test_the_choices_say_which_tool_and_why(client: Client, run: Run) -> None:
    tell(run, gpu=True)
    kernels = choices(client, run)["by"]["kernels"]
    tell(run, gpu=True, lacking={"vllm-0": {"nsys": NO_NSYS, "torch": ""}})
    part = choices(client, run)["by"]["kernels"]
    vllm = choices(client, run, "?roles=vllm")
    tell(run)
    cpu = choices(client, run)

    assert kernels["why"] == (
        "nsys, because it is ready on all 3 workers and sees each kernel and its launch while the calls stay fast."
    )
    nsys, torch, pieces = kernels["tools"]
    assert (nsys["also"], nsys["without"]) == (["communication", "timing"], ["operators", "memory", "stacks"])
    assert (nsys["num_able"], nsys["problem"], torch["num_able"]) == (3, "", 0)
    assert torch["problem"] == f"torch cannot record policy 0-1, vllm 0: {HELD}"
    assert (pieces["name"], pieces["also"]) == ("torch_pieces", ["operators", "communication", "timing"])
    assert "is ready on 2 of 3 workers (not on vllm 0)" in part["why"]
    assert (vllm["num_workers"], vllm["by"]["kernels"]["tool"]) == (1, "torch")
    assert vllm["by"]["kernels"]["why"].endswith("nsys is preferred, but is not ready on vllm 0.")
    assert (cpu["device"], cpu["by"]["kernels"]["recorded"]) == ("cpu", "operators")
    assert cpu["by"]["kernels"]["why"] == (
        "torch, because it is ready on all 3 workers and names every operator, with what it launches. "
        "On CPU there are no kernels: operators are recorded instead."
    )
    assert [tool["name"] for tool in cpu["by"]["timing"]["tools"]] == ["nsys", "torch", "torch_pieces"]


def test_before_workers_have_told_it_says_so(client: Client, run: Run) -> None:
    timing = choices(client, run)["by"]["timing"]

    assert timing["tool"] == "torch"
    assert "The workers have not reported yet which tools they have." in timing["why"]
    assert "has not reported yet" in timing["tools"][0]["problem"]
    assert client.get(f"/api/runs/{run.pk}/captures/choices?roles=critic").status_code == 422


def test_a_spec_may_ask_for_what_is_to_be_seen_and_the_trainer_picks(run: Run) -> None:
    launched = make_run(run.project, spec={**SPEC, "profile": {"what": "kernels", "first_step": 3}})
    capture = Capture.objects.get(run=launched)

    payload = Command.objects.get(attempt__run=launched).payload
    assert (capture.what, capture.tool, payload["tool"], payload["what"]) == ("kernels", "", "", "kernels")
    event = {"kind": "capture", "capture": capture.pk, "state": "armed", "t": 0, "step": 1, "meta": {"tool": "torch"}}
    apply_events(run_id=launched.pk, attempt=1, events=[event], now=NOW)
    capture.refresh_from_db()
    assert (capture.state, capture.tool) == ("armed", "torch")
    apply_events(run_id=launched.pk, attempt=1, events=[{**event, "meta": {"tool": "nsys"}}], now=NOW)
    capture.refresh_from_db()
    assert capture.tool == "torch"


def test_other_trainers_are_configured_before_they_have_workers(run: Run) -> None:
    spec = parse_spec({"trainer": {"name": "verl"}, "knobs": {"train.num_steps": 40}, "profile": {"what": "operators"}})
    attempt = Attempt(run=run, number=2, submission_id="two", num_gpus=2)
    attempt.save()

    armed = arm_at_launch(attempt=attempt, spec=spec, now=NOW)

    assert armed is not None
    assert (armed.what, armed.tool) == ("operators", "torch")


@pytest.mark.parametrize(
    ("profile", "what"),
    [
        ({}, "none"),
        ({"tool": "none"}, "none"),
        ({"tool": "torch"}, "operators"),
        ({"tool": "nsys"}, "kernels"),
        ({"tool": "memory"}, "memory"),
        ({"tool": "torch", "what": "memory"}, "memory"),
    ],
)
def test_specs_of_before_keep_their_meaning(profile: dict[str, str], what: str) -> None:
    assert parse_spec({**SPEC, "profile": profile}).profile.what == what


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [
        ({"tool": "nsys", "what": "none"}, "Nothing is asked for, but the tool nsys is named. Ask for kernels,"),
        ({"tool": "stacks", "what": "kernels"}, "stacks does not show kernels. Ask for stacks, or name no tool."),
        ({"what": "colors"}, "Use one of none, timing, operators"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(profile: dict[str, str], sentence: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({**SPEC, "profile": profile})

    (problem,) = refused.value.problems
    assert problem.field == "profile.what"
    assert sentence in problem.message


def test_the_form_of_a_new_run_asks_what_and_leaves_the_tool_open() -> None:
    spec = parse_spec({**SPEC, "profile": {"what": "memory"}})
    values = spec_to_form(spec)

    (group,) = [one for one in groups(values, combination_of(spec)) if one.id == "profile"]
    fields = {field.name: field for field in group.fields}
    what, tool = fields["profile.what"], fields["profile.tool"]
    assert [value for value, _label in what.choices] == ["none", *WHATS]
    assert [value for value, _label in tool.choices] == ["none", *TOOLS]
    assert (what.value, tool.value, tool.is_essential) == ("memory", "none", False)
    assert parse_spec(form_to_raw(values, parse_spec({}))).profile == spec.profile


def test_a_disk_of_the_cluster_that_is_too_small_is_a_reason_too() -> None:
    check_free_space(expected=None, free=0, on_cluster=0)
    check_free_space(expected=5 << 20, free=9 << 20, on_cluster=None)
    with pytest.raises(CaptureRefused, match="on the cluster has 3 MiB free") as refused:
        check_free_space(expected=5 << 20, free=9 << 20, on_cluster=3 << 20)

    assert refused.value.field == "disk"


def test_the_room_on_the_cluster_is_that_of_the_fullest_disk_by_now(client: Client, run: Run) -> None:
    def read(rank: int, room: float, *, seconds_ago: float, role: str = "node") -> Any:
        t = int((timezone.now().timestamp() - seconds_ago) * 1e9)
        return events.system({"disk_free_bytes": room}, attempt=1, role=role, rank=rank, t=t)

    url = f"/api/runs/{run.pk}/captures"
    assert client.get(url).json()["cluster_free_bytes"] is None
    some = [
        read(0, 9e9, seconds_ago=40),
        read(0, 7e9, seconds_ago=20),
        read(1, 2e9, seconds_ago=40),
        read(1, 8e9, seconds_ago=20),
        read(2, 1e9, seconds_ago=900),  # a node that has not told lately
        read(3, math.nan, seconds_ago=10),
        read(0, 1.0, seconds_ago=10, role="policy"),
    ]
    store([delivery(run.pk, 1, some)], memory=AttemptCache(), now=NOW)

    assert client.get(url).json()["cluster_free_bytes"] == 7_000_000_000


def test_each_thing_to_see_has_its_words() -> None:
    assert tuple(WORDS) == WHATS
