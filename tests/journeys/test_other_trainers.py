"""Other people's trainers, launched like any run and killed: each goes on by itself, and leaves a model."""

import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from console.command_line.api_client import ApiClient
from jobs.catalog.knob import applicable
from profiling.launch_nsys import problem_of_install
from tests.journeys.conftest import Stack, wait_for_line
from tests.journeys.environments import make_environment
from tests.journeys.new_run import STEPS, fill, launch, open_form, state, until
from tests.journeys.other_trainers import (
    RUNS,
    answer_of,
    files_of,
    found_in,
    kill_after_checkpoint,
    points,
    record_once_it_trains,
    run_folder,
    shown_command,
    token_of,
    watch,
)
from tests.proofs.checkpoint_models import make_models
from tests.waiting import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.engine]

RUN_SECONDS = 900  # under a minute alone; other work stands beside it
RAY_SECONDS = 300
RETRY_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledRun:
    """Which of RUNS, how many steps it takes and after how many it saves, knobs besides, what it is judged by, and
    whether models of its checkpoints are made here or are left to `make proof-tests`, as each takes a cold start.

    `unwritten`: of so many steps at most it has not written the metrics when it is killed, which takes them.
    """

    name: str
    steps: int
    every: int
    judged_by: str
    knobs: Mapping[str, Any]
    makes_models: bool
    unwritten: int = 0

    @property
    def id(self) -> str:
        """What a test of it is called."""
        return f"{self.name}, models" if self.makes_models else self.name

    @property
    def trainer(self) -> str:
        """Its trainer's name."""
        return self.name.split()[0]

    def spec(self) -> dict[str, Any]:
        """Return a run that saves, and starts again once whatever ends it."""
        run = RUNS[self.name]
        knobs = {**run["knobs"], "checkpoint.every_steps": self.every, **self.knobs}
        return {**run, "policy": {"retries": 1, "retry_on": "any"}, "profile": {}, "knobs": knobs}


OPENRLHF = KilledRun(
    name="openrlhf dpo",
    steps=6,
    every=3,
    judged_by="loss/pairs",
    knobs={"train.batch_size": 32, "data.max_samples": 192},
    makes_models=False,
    unwritten=2,  # its TensorBoard files are written each second
)
VERL = KilledRun(
    name="verl sft",
    steps=6,
    every=3,
    judged_by="loss/sft",
    knobs={"train.num_steps": 6, "checkpoint.save_contents": "model,optimizer,extra"},
    makes_models=False,
)
ADAPTERS = {"lora.rank": 8, "lora.alpha": 48, "lora.target_modules": "all-linear"}
TRL = KilledRun(
    name="trl grpo", steps=8, every=4, judged_by="reward/mean", knobs={"train.num_steps": 8}, makes_models=True
)
TRL_OTHERS = tuple(
    KilledRun(name=f"trl {kind}", steps=6, every=3, judged_by=judged_by, knobs=knobs, makes_models=True)
    for kind, judged_by, knobs in (
        ("sft", "loss/sft", {"train.batch_size": 32, "train.num_steps": 6}),
        ("dpo", "loss/pairs", {"train.num_steps": 6}),
        ("kto", "loss/labels", {"train.batch_size": 32, "train.num_steps": 6}),
        ("rm", "loss/pairs", {"train.num_steps": 6}),
        ("rloo", "reward/mean", {"train.num_steps": 6}),
    )
)
KILLED = (OPENRLHF, VERL)
SFT = ("openrlhf sft", "trl sft", "verl sft")
WITH_MODELS = (replace(OPENRLHF, makes_models=True), replace(VERL, makes_models=True), *TRL_OTHERS)


def cases() -> Iterator[Any]:
    """Yield the runs, with what marks them."""
    for run in KILLED:
        yield pytest.param(run, id=run.id, marks=pytest.mark.trainer(run.trainer))
    for run in WITH_MODELS:
        yield pytest.param(run, id=run.id, marks=[pytest.mark.trainer(run.trainer), pytest.mark.proof])


@pytest.fixture(scope="module")
def token(stack: Stack) -> str:
    wait_for_line(stack, "Ray is ready", seconds=RAY_SECONDS)
    return token_of(stack)


@pytest.fixture(scope="module")
def client(stack: Stack, token: str) -> Iterator[ApiClient]:
    made = ApiClient(stack.url, token)
    yield made
    made.close()


@pytest.mark.slow("a real run of another trainer, which is started twice")
@pytest.mark.parametrize("killed", cases())
def test_a_killed_run_goes_on_from_its_checkpoint_and_leaves_a_model(
    client: ApiClient, stack: Stack, token: str, killed: KilledRun
) -> None:
    run = client.launch(killed.spec(), key=killed.id).id

    kill_and_follow(client, stack, token, run, killed)


@pytest.mark.browser
@pytest.mark.trainer("trl")
@pytest.mark.slow("a real run of another trainer, which is started twice")
def test_grpo_of_trl_is_launched_by_the_form_killed_and_seen_to_its_end(
    page: Page, client: ApiClient, stack: Stack, token: str
) -> None:
    spec = TRL.spec()
    open_form(page, stack, f"?trainer={spec['trainer']['name']}&algorithm={spec['algorithm']}")
    of_sections = {f"{part}.{name}": value for part in ("knobs", "policy") for name, value in spec[part].items()}
    fill(page, {"name": spec["name"], **{field: str(value) for field, value in of_sections.items()}})
    run = launch(page)
    page.evaluate("window.isSamePage = true")

    kill_and_follow(client, stack, token, run, TRL)

    check_rollouts(stack, token, run, TRL)
    expect(state(page)).to_contain_text("finished")
    assert until(page, f"({STEPS}).length == {TRL.steps} && ({STEPS})") == list(range(1, TRL.steps + 1))
    assert page.evaluate("window.isSamePage"), "the page must grow without a reload"
    page.get_by_role("link", name=re.compile("^System")).click()
    page.locator("[data-system-measure]").select_option("memory_share")
    expect(page.locator("[data-system-rows]")).to_contain_text("policy 0")
    page.get_by_role("link", name=re.compile("^Samples")).click()
    expect(page.locator("tr[data-sample]").first).to_be_visible()
    page.get_by_role("link", name=re.compile("^Files")).click()
    for name in ("model-final.zip", *(f"checkpoint-{step}" for step in (TRL.every, TRL.steps))):
        expect(page.get_by_role("row", name=re.compile(name)).first).to_be_visible()


def kill_and_follow(client: ApiClient, stack: Stack, token: str, run: str, killed: KilledRun) -> None:
    """Kill a run after a checkpoint; it goes on from there by itself, every step once, and leaves its model."""
    step = kill_after_checkpoint(client, run, run_folder(stack, run))
    wait_until(lambda: len(answer_of(stack, token, f"/runs/{run}")["attempts"]) == 2, RETRY_SECONDS, "it did not go on")
    seen = watch(client, run, seconds=RUN_SECONDS)

    assert seen.header["state"] == "finished", json.dumps(seen.header["cause"])
    attempts = answer_of(stack, token, f"/runs/{run}")["attempts"]
    began = [(one["number"], one["state"], one["resume_step"], one["is_automatic"]) for one in attempts]
    assert began == [(1, "failed", 0, False), (2, "finished", step, True)]
    assert seen.header["num_steps"] == killed.steps
    told = [at for at, _ in points(client, run, killed.judged_by)]
    before = sum(at <= step for at in told)
    assert told == [*range(1, before + 1), *range(step + 1, killed.steps + 1)]
    assert before >= step - killed.unwritten
    lines = answer_of(stack, token, f"/runs/{run}/series?metrics={killed.judged_by}")["series"]
    assert [line["x"][0] for line in lines if line["attempt"] == 2] == [step + 1], "it has gone on, not begun again"
    written = json.loads((run_folder(stack, run, attempt=2) / "launch.json").read_text())
    assert shown_command(stack, token, run) == written["argv"], "what is shown is byte for byte what ran"
    assert files_of(stack, token, run)["model-final.zip"]["download_url"]
    if killed.makes_models:
        made = make_models(client, stack, token, run)
        assert (made["models"], made["problem"]) == (made["checkpoints"], ""), made
        # The last one of verl is the run's own model, so that there is nothing to hold it against.
        assert made["says_the_same"] is (None if killed.trainer == "verl" else True)


def check_rollouts(stack: Stack, token: str, run: str, killed: KilledRun) -> None:
    """Every step has its samples and its phases."""
    samples = answer_of(stack, token, f"/runs/{run}/samples")
    assert sorted(samples["steps"]) == list(range(1, killed.steps + 1))
    assert samples["total"] == killed.steps * 8 * 4
    assert all(one["completion"] and one["reward"] is not None for one in samples["samples"])
    spans = answer_of(stack, token, f"/runs/{run}/spans")
    for lane in spans["lanes"]:
        if lane["attempt"] == 2:
            assert {"rollout", "reward"} <= {spans["phases"][phase] for phase in lane["phase"]}


@pytest.mark.proof
@pytest.mark.trainer("openrlhf")
@pytest.mark.slow("a real run of another trainer")
def test_openrlhf_fine_tunes_the_bundled_model_and_is_watched_live(client: ApiClient, stack: Stack, token: str) -> None:
    python = make_environment("openrlhf")
    spec = {**RUNS["openrlhf sft"], "knobs": {**RUNS["openrlhf sft"]["knobs"], "data.max_samples": 2048}}
    run = client.launch(spec, key="openrlhf-sft").id
    asked = record_once_it_trains(client, run)

    seen = watch(client, run, seconds=RUN_SECONDS)

    assert seen.header["state"] == "finished", json.dumps(seen.header["cause"])
    assert len(seen.steps_while_running) >= 3, "steps have to arrive while it trains"
    assert seen.header["num_steps"] == 16, "read off the progress bars"
    losses = points(client, run, "loss/sft")
    assert losses[-1][1] < 0.75 * losses[0][1]
    assert points(client, run, "eval/loss")[-1][1] < losses[0][1]
    assert all(seconds > 0 for _, seconds in points(client, run, "time/step_seconds"))
    launch = json.loads((run_folder(stack, run) / "launch.json").read_text())
    assert launch["argv"][:3] == [python, "-m", "openrlhf.cli.train_sft"]
    check_recording(client, stack, token, run, asked)


def check_recording(client: ApiClient, stack: Stack, token: str, run: str, asked: str) -> None:
    """The capture has become a trace with the operators of its steps, told by torch's profiler in the trainer."""
    capture = client.follow_capture(run, asked, tell=lambda _: None)
    assert capture["state"] == "ready", capture["problem"]
    (file,) = capture["files"]
    assert (file["role"], file["rank"], file["tool_version"].split()[0]) == ("policy", 0, "torch")
    trace = client.follow_trace(capture["trace_url"].rstrip("/").rpartition("/")[2], tell=lambda _: None)
    assert [layer["state"] for layer in trace["layers"] if layer["file_name"]] == ["ready"], trace["layers"]
    products = [row for row in found_in(stack, token, trace["id"], "aten::mm") if row["name"] == "aten::mm"]
    assert sum(row["events"] for row in products) > 50, products


@pytest.mark.proof
@pytest.mark.slow("a real run of another trainer under nsys")
@pytest.mark.skipif(bool(problem_of_install()), reason="needs nsys")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.trainer(n.split()[0])) for n in ("trl sft", "verl sft")]
)
def test_fine_tuning_is_recorded_by_nsys_where_the_launch_asks_for_it(client: ApiClient, name: str) -> None:
    profile = {"what": "timing", "tool": "nsys", "first_step": 3, "num_steps": 2}
    run = client.launch({**RUNS[name], "profile": profile}, key=f"nsys of {name}").id

    seen = watch(client, run, seconds=RUN_SECONDS)

    assert seen.header["state"] == "finished", json.dumps(seen.header["cause"])
    (capture,) = client.captures(run)
    capture = client.follow_capture(run, capture["id"], tell=lambda _: None)
    assert (capture["state"], capture["problem"]) == ("ready", "")
    (file,) = capture["files"]
    assert (file["role"], file["rank"], file["tool_version"].split()[0]) == ("policy", 0, "nsys")
    assert file["size"] > 1000


@pytest.mark.proof
@pytest.mark.slow("a real run of another trainer")
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.trainer(n.split()[0])) for n in SFT])
def test_checkpoints_of_adapters_become_whole_models(client: ApiClient, stack: Stack, token: str, name: str) -> None:
    steps = {"train.batch_size": 32, "train.num_steps": 6, "data.max_samples": 192, "checkpoint.every_steps": 3}
    known = {knob: value for knob, value in steps.items() if knob in applicable("sft", name.split()[0])}
    spec = {**RUNS[name], "profile": {}, "knobs": {**RUNS[name]["knobs"], **known, **ADAPTERS}}
    run = client.launch(spec, key=f"adapters of {name}").id

    seen = watch(client, run, seconds=RUN_SECONDS)

    assert seen.header["state"] == "finished", json.dumps(seen.header["cause"])
    made = make_models(client, stack, token, run)
    assert (made["models"], made["problem"]) == (made["checkpoints"], ""), made
    # What verl leaves is made of its last checkpoint, what the others leave of the adapters that they have left.
    assert made["says_the_same"] is (None if name == "verl sft" else True)


OWN_PROGRAM = """
import sys, time
import pitwall
for step in range(1, 6):
    print(f"step {step} loss {1 / step}", flush=True)
    pitwall.log({"reward/mean": step / 5}, step=step)
print("that was all", file=sys.stderr)
"""


@pytest.mark.browser
@pytest.mark.slow("a run of a command")
def test_a_command_of_one_s_own_is_seen_from_its_first_line_to_its_end(
    page: Page, client: ApiClient, stack: Stack, token: str
) -> None:
    knobs = {
        "own_command.argv": shlex.join([sys.executable, "-c", OWN_PROGRAM]),
        "own_command.patterns": r"step (?P<step>\d+) loss (?P<loss__sft>\S+)",
    }
    spec = {"name": "mine", "algorithm": "sft", "trainer": {"name": "own_command"}, "knobs": knobs}
    run = client.launch(spec, key="own command").id

    seen = watch(client, run, seconds=RUN_SECONDS)

    assert seen.header["state"] == "finished", json.dumps(seen.header["cause"])
    assert answer_of(stack, token, f"/runs/{run}")["cleanup"]["processes_left"] == 0
    assert points(client, run, "loss/sft") == [(step, pytest.approx(1 / step)) for step in range(1, 6)]
    assert points(client, run, "reward/mean")[-1] == (5, 1.0)
    (line,) = answer_of(stack, token, f"/runs/{run}/logs?role=driver&q=that was all")["lines"]
    assert line["text"] == "that was all"
    page.goto(f"{stack.url}/runs/{run}/logs")
    expect(state(page)).to_contain_text("finished")
    expect(page.locator("[data-log-view]")).to_contain_text("that was all")


def test_a_trainer_that_the_cluster_does_not_have_is_named_before_anything_starts(client: ApiClient) -> None:
    spec = {**RUNS["openrlhf sft"], "trainer": {"name": "openrlhf", "version": "0.10.2"}}

    launched = client.launch(spec, key="openrlhf-0.10.2")
    seen = watch(client, launched.id, seconds=240)

    cause = seen.header["cause"]
    assert (seen.header["state"], cause["side"]) == ("failed", "cluster")
    assert "asks for OpenRLHF 0.10.2" in cause["text"]
    assert "make trainer-env TRAINER=openrlhf VERSION=0.10.2" in cause["text"]
