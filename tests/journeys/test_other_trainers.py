"""Other people's trainers, launched like any run and watched live: OpenRLHF fine-tunes the bundled model on CPU."""

import json
from collections.abc import Iterator

import pytest

from console.command_line.api_client import ApiClient
from tests.journeys.conftest import Stack, wait_for_line
from tests.journeys.environments import make_environment
from tests.journeys.other_trainers import (
    RUNS,
    files_of,
    found_in,
    points,
    record_once_it_trains,
    run_folder,
    shown_command,
    token_of,
    watch,
)

pytestmark = [pytest.mark.stack, pytest.mark.engine]

RUN_SECONDS = 900  # under a minute alone; other work stands beside it
RAY_SECONDS = 300
NUM_ROWS = 2048
NUM_STEPS = 16  # 128 rows a step


@pytest.fixture(scope="module", autouse=True)
def environment() -> str:
    """OpenRLHF's own environment; `make up` looks for it when it starts, so it has to be there before."""
    return make_environment("openrlhf")


@pytest.fixture(scope="module")
def token(environment: str, stack: Stack) -> str:
    wait_for_line(stack, "Ray is ready", seconds=RAY_SECONDS)
    return token_of(stack)


@pytest.fixture(scope="module")
def client(stack: Stack, token: str) -> Iterator[ApiClient]:
    made = ApiClient(stack.url, token)
    yield made
    made.close()


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


@pytest.mark.slow("a real run of another trainer")
def test_openrlhf_fine_tunes_the_bundled_model_and_is_watched_live(
    client: ApiClient, stack: Stack, environment: str, token: str
) -> None:
    spec = RUNS["openrlhf sft"]
    spec = {**spec, "knobs": {**spec["knobs"], "data.max_samples": NUM_ROWS}}
    launched = client.launch(spec, key="openrlhf-sft")
    asked = record_once_it_trains(client, launched.id)

    seen = watch(client, launched.id, seconds=RUN_SECONDS)

    assert seen.header["state"] == "finished", json.dumps(seen.header["cause"])
    assert len(seen.steps_while_running) >= 3, "steps have to arrive while it trains"
    assert seen.header["num_steps"] == NUM_STEPS, "read off the progress bars"
    losses = points(client, launched.id, "loss/sft")
    assert [step for step, _ in losses] == list(range(1, NUM_STEPS + 1))
    assert losses[-1][1] < 0.75 * losses[0][1]
    assert points(client, launched.id, "eval/loss")[-1][1] < losses[0][1]
    assert all(seconds > 0 for _, seconds in points(client, launched.id, "time/step_seconds"))
    folder = run_folder(stack, launched.id)
    launch = json.loads((folder / "launch.json").read_text())
    assert launch["argv"][:3] == [environment, "-m", "openrlhf.cli.train_sft"]
    assert shown_command(stack, token, launched.id) == launch["argv"], "what is shown is byte for byte what ran"
    check_recording(client, stack, token, launched.id, asked)
    left = files_of(stack, token, launched.id)
    assert left["model-final.zip"]["download_url"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        p.name for p in (folder / "model/final").iterdir()
    }


def test_a_trainer_that_the_cluster_does_not_have_is_named_before_anything_starts(client: ApiClient) -> None:
    spec = {**RUNS["openrlhf sft"], "trainer": {"name": "openrlhf", "version": "0.10.2"}}

    launched = client.launch(spec, key="openrlhf-0.10.2")
    seen = watch(client, launched.id, seconds=240)

    cause = seen.header["cause"]
    assert (seen.header["state"], cause["side"]) == ("failed", "cluster")
    assert "asks for OpenRLHF 0.10.2" in cause["text"]
    assert "make trainer-env TRAINER=openrlhf VERSION=0.10.2" in cause["text"]
