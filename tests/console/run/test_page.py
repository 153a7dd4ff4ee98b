"""The run page as the server sends it: access, tabs, states, downloads."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient, Client
from django.urls import reverse

from console.views.run.charts import GAP_LIMIT, overview_charts, overview_chips
from console.views.run.config import config_rows
from console.views.run.files import ByteRange, parse_range
from console.views.run.page import TABS, unsaid_line
from jobs.catalog.metric import metrics
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.trainer import trainers
from jobs.models import Artifact, LogChunk, Project, Run, RunEvent
from tests.rows import NOW, make_artifact, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def member(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project))
    return client


def page(client: Client, run: Run, tab: str = "overview") -> str:
    url = reverse("run", args=[run.pk] if tab == "overview" else [run.pk, tab])
    answer = client.get(url)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("tab", TABS)
def test_each_tab_has_its_own_address_and_opens_there(member: Client, project: Project, tab: str) -> None:
    html = page(member, make_run(project, state="running"), tab)

    assert f'data-panel="{tab}">' in html
    assert html.count("data-panel=") == len(TABS)
    assert html.count(" hidden>", html.index('data-panel="overview"')) >= len(TABS) - 1


def test_each_tab_of_charts_has_a_legend_of_their_marks(member: Client, project: Project) -> None:
    parts = re.split(r'data-panel="(\w+)"', page(member, make_run(project)))
    panels = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert [tab for tab in panels if "data-checkpoint-key" in panels[tab]] == ["overview", "charts", "dashboard"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"trainer": {"name": "verl"}}, "up to that moment. Phases: Rollout, "),
        ({"trainer": {"name": "openrlhf"}}, "up to that moment. Phases: Rollout, Update, Weight sync."),
        ({"trainer": {"name": "openrlhf"}, "algorithm": "sft"}, "only how long each step takes."),
        ({}, ""),
    ],
)
@pytest.mark.parametrize("tab", ["overview", "timeline"])
def test_a_run_whose_trainer_reports_phases_later_or_not_at_all_says_so(
    member: Client, project: Project, tab: str, spec: dict[str, Any], says: str
) -> None:
    html = page(member, make_run(project, state="finished", spec=spec), tab)

    assert says in html
    assert ("No phase measured yet" in html) == (not says)
    assert html.count("See the charts") == (2 if says else 0)  # on the overview and the timeline


def test_a_run_of_another_project_looks_as_if_it_did_not_exist(member: Client) -> None:
    foreign = make_run()

    for name, args in (("run", [foreign.pk]), ("run", [foreign.pk, "logs"]), ("run-spec", [foreign.pk])):
        assert member.get(reverse(name, args=args)).status_code == 404


def test_without_a_session_the_page_asks_to_sign_in(client: Client, project: Project) -> None:
    answer = client.get(reverse("run", args=[make_run(project).pk]))

    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("signin"))


def test_an_unknown_run_and_an_unknown_tab_are_not_found(member: Client, project: Project) -> None:
    assert member.get("/runs/r-00000000").status_code == 404
    assert member.get(f"/runs/{make_run(project).pk}/nothing").status_code == 404


def test_a_viewer_is_offered_nothing_that_changes_the_run(client: Client, project: Project) -> None:
    client.force_login(make_user(project=project, role="viewer"))

    html = page(client, make_run(project, state="running"))

    for action in ("stop", "checkpoint", "rename", "clone"):
        assert f'data-action="{action}"' not in html


def test_a_failed_run_says_where_and_why(member: Client, project: Project) -> None:
    cause = {
        "side": "trainer",
        "role": "policy",
        "rank": 1,
        "step": 143,
        "text": "Out of memory in the update.",
        "log_line": "RuntimeError: can't allocate",
    }

    html = page(member, make_run(project, state="failed", cause=cause))

    assert "Trainer, policy 1, step 143:" in html
    assert "Out of memory in the update." in html
    assert "RuntimeError: can&#x27;t allocate" in html


def test_a_queued_run_says_why_it_waits(member: Client, project: Project) -> None:
    html = page(member, make_run(project, wait_reason="It needs 4 CPUs; 1 of 8 is free."))

    assert "It needs 4 CPUs; 1 of 8 is free." in html


def test_a_run_name_cannot_leave_its_place(member: Client, project: Project) -> None:
    run = make_run(project)
    Run.objects.filter(pk=run.pk).update(name="</script><script>alert(1)</script>")

    assert "<script>alert(1)" not in page(member, run)


def test_the_spec_that_is_downloaded_launches_the_same_run(member: Client, project: Project) -> None:
    run = make_run(project, spec={"knobs": {"optimizer.learning_rate": "3e-4"}})

    answer = member.get(reverse("run-spec", args=[run.pk]))

    assert parse_spec(answer.json()) == parse_spec(run.spec)
    assert f'filename="{run.pk}.json"' in answer["Content-Disposition"]


def test_the_configuration_tells_who_chose_what() -> None:
    spec = parse_spec({"algorithm": "grpo", "knobs": {"optimizer.learning_rate": 1e-5}})

    rows = {row.id: row for row in config_rows(spec)}

    assert rows["optimizer.learning_rate"].is_changed
    assert rows["optimizer.learning_rate"].origin == "you"
    assert rows["rollout.temperature"].origin == "default"
    assert not rows["model.id"].is_changed
    assert set(spec.knobs) <= set(rows)


def test_the_configuration_shows_variables_of_the_chat_template_as_they_are_typed() -> None:
    spec = parse_spec({"data": {"chat_template_kwargs": {"enable_thinking": False, "tag": "é"}}})

    row = next(row for row in config_rows(spec) if row.id == "data.chat_template_kwargs")

    assert (row.value, row.default, row.is_changed) == ('{"enable_thinking": false, "tag": "é"}', "—", True)


@pytest.mark.parametrize("algorithm", ["grpo", "dapo", "ppo", "sft", "kto", "rm"])
def test_the_overview_shows_eight_charts_of_known_metrics(algorithm: str) -> None:
    spec = parse_spec({"algorithm": algorithm})

    plans = overview_charts(spec)

    assert len(plans) == 8
    assert {line.name for plan in plans for line in plan.lines} <= set(metrics())
    assert {chip.name for chip in overview_chips(spec)} <= set(metrics())


def test_the_overview_says_what_the_knobs_of_the_run_are() -> None:
    knobs = {"rollout.max_new_tokens": 2048, "optimizer.max_grad_norm": 0.0}
    plans = {plan.key: plan for plan in overview_charts(parse_spec({"algorithm": "grpo", "knobs": knobs}))}

    assert [limit.label for limit in plans["length"].limits] == ["limit 2,048"]
    assert plans["gradient"].hint == "not clipped"
    assert plans["kl"].hint == "k3, nats per token"
    assert plans["groups"].hint == "all 8 rewards equal"
    assert plans["phases"].is_stacked
    assert {line.color for line in plans["reward"].lines} == {"--run-0", "--run-1"}


@pytest.mark.parametrize(("coefficient", "has_kl"), [(0.01, True), (0.0, False)])
def test_without_a_reference_the_overview_has_no_kl_to_it(coefficient: float, has_kl: bool) -> None:
    spec = parse_spec({"algorithm": "grpo", "knobs": {"algorithm.kl_coefficient": coefficient}})
    lines = {line.name for plan in overview_charts(spec) for line in plan.lines}

    assert ("kl/reference" in lines) is has_kl
    assert ("kl/reference" in {chip.name for chip in overview_chips(spec)}) is has_kl


@pytest.mark.parametrize(
    ("trainer", "algorithm"),
    # A command of one's own, which is of no family, reports what it likes.
    [(name, a) for name, info in trainers().items() if name != "native" and info.families for a in info.algorithms],
)
def test_the_overview_of_other_trainers_shows_what_they_report(trainer: str, algorithm: str) -> None:
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": algorithm})
    lines = {line.name for plan in overview_charts(spec) for line in plan.lines}

    as_is = {"time/step_seconds", "eval/loss"}  # measured by the reader of logs; what Transformers itself calls it
    shown = [name for name in lines if name in as_is or any(who.startswith(trainer) for who in metrics()[name].names)]

    assert len(shown) >= 5
    assert any(name.startswith("time/") for name in shown), "the chart of step times is empty"
    assert lines | {chip.name for chip in overview_chips(spec)} <= set(metrics())


def test_only_the_gap_of_float32_has_a_hard_limit() -> None:
    limits = {chip.name: chip.limit for chip in overview_chips(parse_spec({"algorithm": "grpo"}))}
    half = overview_chips(parse_spec({"algorithm": "grpo", "knobs": {"memory.precision": "bfloat16"}}))

    assert limits.pop("sync/max_logprob_diff") == GAP_LIMIT
    assert set(limits.values()) == {None}
    assert {chip.limit for chip in half} == {None}


# Downloads


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("bytes=0-3", ByteRange(0, 3)),
        ("bytes=6-", ByteRange(6, 9)),
        ("bytes=-4", ByteRange(6, 9)),
        ("bytes=8-99", ByteRange(8, 9)),
        ("bytes=10-", None),
        ("bytes=4-2", None),
        ("bytes=-0", None),
        ("bytes=-", None),
        ("bytes=0-1,4-5", None),
        ("lines=0-3", None),
        ("", None),
    ],
)
def test_a_range_is_read_as_the_standard_says(header: str, part: ByteRange | None) -> None:
    assert parse_range(header, size=10) == part


CONTENT = b"0123456789" * 100_000


@pytest.fixture
def model(project: Project, settings: Any, tmp_path: Path) -> Artifact:
    settings.FILES_DIR = tmp_path
    row = make_artifact(
        make_run(project, state="finished"),
        name="model/final",
        size=len(CONTENT),
        received=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    row.stored_path.parent.mkdir(parents=True)
    row.stored_path.write_bytes(CONTENT)
    return row


def file_url(artifact: Artifact) -> str:
    return reverse("run-file", args=[artifact.run_id, artifact.pk])


async def body(answer: Any) -> bytes:
    return b"".join([piece async for piece in answer.streaming_content])


@pytest.mark.django_db(transaction=True)
async def test_a_model_is_streamed_whole_and_named_after_its_run(model: Artifact, project: Project) -> None:
    client = await signed_in(project)

    answer = await client.get(file_url(model))

    assert answer.status_code == 200
    assert await body(answer) == CONTENT
    assert answer["Content-Length"] == str(len(CONTENT))
    assert f'filename="{model.run_id}-model-final"' in answer["Content-Disposition"]


@pytest.mark.django_db(transaction=True)
async def test_a_broken_download_goes_on_where_it_stopped(model: Artifact, project: Project) -> None:
    client = await signed_in(project)

    answer = await client.get(file_url(model), headers={"Range": "bytes=999990-"})

    assert answer.status_code == 206
    assert await body(answer) == CONTENT[-10:]
    assert answer["Content-Range"] == f"bytes 999990-999999/{len(CONTENT)}"


@pytest.mark.django_db(transaction=True)
async def test_a_part_of_a_file_that_changed_is_sent_whole(model: Artifact, project: Project) -> None:
    client = await signed_in(project)

    answer = await client.get(file_url(model), headers={"Range": "bytes=5-", "If-Range": '"another"'})

    assert answer.status_code == 200
    assert await body(answer) == CONTENT


@pytest.mark.django_db(transaction=True)
async def test_a_part_outside_the_file_is_refused(model: Artifact, project: Project) -> None:
    client = await signed_in(project)

    answer = await client.get(file_url(model), headers={"Range": "bytes=5000000-"})

    assert answer.status_code == 416
    assert answer["Content-Range"] == f"bytes */{len(CONTENT)}"


@pytest.mark.django_db(transaction=True)
async def test_a_file_is_given_to_members_only_and_when_it_is_whole(model: Artifact, project: Project) -> None:
    stranger = await signed_in(await make_project_async())
    member = await signed_in(project)

    assert (await stranger.get(file_url(model))).status_code == 404
    await Artifact.objects.filter(pk=model.pk).aupdate(is_ready=False)
    assert (await member.get(file_url(model))).status_code == 404


@pytest.mark.django_db(transaction=True)
async def test_the_log_of_one_process_can_be_downloaded(project: Project) -> None:
    run = await make_run_async(project)
    for first, role, text in ((0, "policy", "one\ntwo"), (2, "policy", "three"), (0, "driver", "other")):
        await LogChunk.objects.acreate(
            run=run,
            attempt=1,
            role=role,
            rank=0,
            stream="stdout",
            seq=1,
            first_line=first,
            num_lines=1,
            at=NOW,
            text=text,
        )
    client = await signed_in(project)

    of_one = await client.get(reverse("run-log", args=[run.pk]), {"role": "policy", "rank": "0"})
    of_all = await client.get(reverse("run-log", args=[run.pk]))

    assert await body(of_one) == b"one\ntwo\nthree\n"
    assert b"driver 0 stdout: other\n" in await body(of_all)


async def signed_in(project: Project) -> AsyncClient:
    client = AsyncClient()
    user = await sync_to_async(make_user)(project=project)
    await client.aforce_login(user)
    return client


async def make_project_async() -> Project:
    return await sync_to_async(make_project)()


async def make_run_async(project: Project) -> Run:
    return await sync_to_async(make_run)(project, state="running")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("engine.workers.worker.Failed: it was killed", ""),
        ("", ""),
        ("RuntimeError: out of ink", "RuntimeError: out of ink"),
    ],
)
def test_a_log_line_that_only_repeats_the_cause_is_left_out(line: str, shown: str) -> None:
    assert unsaid_line({"text": "Policy rank 1 died: it was killed", "log_line": line}) == shown


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({}, ""),
        ({"trainer": {"name": "verl"}}, ""),
        (
            {"trainer": {"name": "openrlhf"}, "algorithm": "sft", "knobs": {"checkpoint.weights_only": True}},
            "With “No training state” on, its checkpoints hold weights alone",
        ),
    ],
)
def test_a_run_says_whether_it_goes_on_from_checkpoints(
    member: Client, project: Project, spec: dict[str, Any], says: str
) -> None:
    html = page(member, make_run(project, state="failed", spec=spec))

    assert ("Start again</button>" in html) == bool(says)
    assert ("Resume</button>" in html) == (not says)
    assert says in html


@pytest.mark.parametrize(
    ("trainer", "knobs", "says"),
    [
        ("verl", {}, "verl 0.9.1 does not write how many tokens a response has."),
        ("verl", {"logging.dump_rollouts": False}, "verl 0.9.1 writes its samples only with “Keep rollouts” on"),
        ("openrlhf", {}, "OpenRLHF 0.11.2 prints one response per step"),
        ("trl", {}, "overwrites the responses of steps in which it evaluates"),
    ],
)
def test_what_another_trainer_does_not_tell_is_said_with_its_version(
    member: Client, project: Project, trainer: str, knobs: dict[str, Any], says: str
) -> None:
    spec = {"algorithm": "grpo", "trainer": {"name": trainer}, "knobs": knobs}

    html = page(member, make_run(project, spec=spec))

    assert says in html
    assert "draws them one after the other" in html or trainer == "trl"
    assert ("only while the knob Engine statistics is on" in html) == (trainer == "verl")
    assert ("of this run are not known" in html) == (trainer != "verl")


def test_who_may_not_start_a_run_again_is_told_so_and_gets_no_button(
    member: Client, project: Project, client: Client
) -> None:
    spec = {"trainer": {"name": "verl"}, "knobs": {"models.trust_remote_code": True}}
    admin = make_user(project=project, role="admin")
    run = make_run(project, state="failed", spec=spec, user=admin)

    html = page(member, run)
    assert 'data-field="resume-refusal"' in html
    assert "so only an admin of the project may start a run with it." in html
    assert 'data-action="resume"' not in html
    assert 'data-form="resume"' not in html

    client.force_login(admin)
    html = page(client, run)
    assert 'data-action="resume"' in html
    assert 'data-field="resume-refusal"' not in html


def test_the_config_tab_shows_what_each_attempt_was_made_of(member: Client, project: Project) -> None:
    run = make_run(project, state="finished", spec={"knobs": {"train.seed": 7}})
    tree = {"name": "verl", "commit": "1a2b3c4d5e6f7788", "diff": "+<b>lr</b> = 2", "untracked": ["new.py"]}
    facts = {"node": "n-1", "devices": ["H100", "H100"], "image": "verl:0.9", "variables": {"NCCL_DEBUG": "INFO"}}
    environment = {**facts, "packages": {"flask": "3", "torch": "2.8.0"}, "sources": [tree], "secrets": ["HF_TOKEN"]}
    RunEvent.objects.create(run=run, attempt=1, at=NOW, verb="note", text="", data={"environment": environment})
    RunEvent.objects.create(run=run, attempt=2, at=NOW, verb="note", text="", data={"environment": "nonsense"})

    html = page(member, run, "config")

    for text in ("2 × H100", "verl:0.9", "NCCL_DEBUG=INFO", "HF_TOKEN", "1a2b3c4d5e6f", "new.py", "torch==2.8.0"):
        assert text in html
    assert "+&lt;b&gt;lr&lt;/b&gt; = 2" in html
    assert html.index("torch==2.8.0") < html.index("flask==3")
