"""Other people's trainers on this machine: their environments, small runs for them, and how such a run is watched."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.command_line.api_client import ENDED, ApiClient
from console.command_line.api_json import RunJson
from jobs.adapters.adapter import adapter
from jobs.catalog.spec.parse import parse_spec
from tests.journeys.conftest import Stack
from tests.loopback import HTTP
from tests.proofs.faults import trainer
from tests.waiting import wait_until

TOKEN = (
    "from django.contrib.auth import get_user_model as g; from console.sign_in.api_token import make_token; "
    "print(make_token(user=g().objects.order_by('pk').first(), name='test')[1])"
)
SMALL = {"train.batch_size": 128, "train.micro_batch_size": 32, "train.num_epochs": 1, "train.max_sequence_tokens": 160}
TRAINING_SECONDS = 600  # wide, for machines with other work
RECORDED_SECONDS = 3
EAGER = {"kernels.attention": "eager"}
RUNS: Mapping[str, dict[str, Any]] = {
    "openrlhf sft": {
        "name": "OpenRLHF SFT",
        "algorithm": "sft",
        "trainer": {"name": "openrlhf"},
        "knobs": {**SMALL, **EAGER, "optimizer.learning_rate": 1e-3},
    },
    "openrlhf dpo": {
        "name": "OpenRLHF DPO",
        "algorithm": "dpo",
        "trainer": {"name": "openrlhf"},
        "knobs": {**SMALL, **EAGER, "optimizer.learning_rate": 1e-4},
    },
    "openrlhf rm": {
        "name": "OpenRLHF reward model",
        "algorithm": "rm",
        "trainer": {"name": "openrlhf"},
        "knobs": {**SMALL, **EAGER, "optimizer.learning_rate": 1e-3},
    },
    "verl sft": {
        "name": "verl SFT",
        "algorithm": "sft",
        "trainer": {"name": "verl"},
        "profile": {"what": "operators", "first_step": 3, "num_steps": 2},  # by verl's own profiler
        "knobs": {
            **SMALL,
            **EAGER,
            "train.batch_size": 32,
            "train.num_steps": 16,
            "train.packing": False,
            "train.dynamic_batch": False,
            "kernels.torch_compile": False,
            "data.num_workers": 0,
            "memory.precision": "float32",
            "parallel.fsdp_version": "2",
            "checkpoint.save_contents": "model,hf_model",
            "optimizer.learning_rate": 1e-3,
        },
    },
    "trl sft": {
        "name": "TRL SFT",
        "algorithm": "sft",
        "trainer": {"name": "trl"},
        "knobs": {**SMALL, **EAGER, "optimizer.learning_rate": 1e-3},
    },
    "trl dpo": {
        "name": "TRL DPO",
        "algorithm": "dpo",
        "trainer": {"name": "trl"},
        "knobs": {**SMALL, **EAGER, "train.batch_size": 32, "train.num_steps": 16, "optimizer.learning_rate": 1e-4},
    },
    "trl kto": {
        "name": "TRL KTO",
        "algorithm": "kto",
        "trainer": {"name": "trl"},
        "knobs": {**SMALL, **EAGER, "train.batch_size": 64, "train.num_steps": 24, "optimizer.learning_rate": 3e-4},
    },
    "trl rm": {
        "name": "TRL reward model",
        "algorithm": "rm",
        "trainer": {"name": "trl"},
        "knobs": {**SMALL, **EAGER, "train.batch_size": 32, "train.num_steps": 24, "optimizer.learning_rate": 1e-3},
    },
    "trl rloo": {
        "name": "TRL RLOO",
        "algorithm": "rloo",
        "trainer": {"name": "trl"},
        "knobs": {
            **EAGER,
            "rollout.prompts_per_step": 8,
            "rollout.samples_per_prompt": 4,
            "rollout.max_prompt_tokens": 96,
            "rollout.max_new_tokens": 32,
            "train.micro_batch_size": 16,
            "train.num_steps": 24,  # twelve are over before three seconds of them are recorded
            "algorithm.kl_coefficient": 0.05,
            "optimizer.learning_rate": 1e-4,
        },
    },
    "trl grpo": {
        "name": "TRL GRPO",
        "algorithm": "grpo",
        "trainer": {"name": "trl"},
        "knobs": {
            **EAGER,
            "rollout.prompts_per_step": 8,
            "rollout.samples_per_prompt": 4,
            "rollout.max_prompt_tokens": 96,
            "rollout.max_new_tokens": 32,
            "train.micro_batch_size": 16,
            "train.num_steps": 24,  # twelve are over before three seconds of them are recorded
            "optimizer.learning_rate": 1e-4,
        },
    },
}
"""Runs on the bundled model and data that take under a minute on two cores."""


@dataclass(slots=True, kw_only=True)
class WatchedRun:
    """What was seen of a run from its launch to its end: its header, and the steps it had got to at each look."""

    header: RunJson
    steps_while_running: list[int] = field(default_factory=list)
    seconds: float = 0.0


def token_of(stack: Stack) -> str:
    """Return an API token of a console's first admin."""
    stack.signin_link()  # makes the admin
    return stack.manage("shell", "--verbosity", "0", "-c", TOKEN).strip()


def files_of(stack: Stack, token: str, run: str) -> dict[str, dict[str, Any]]:
    """Return the files that a run left, by name, as its page lists them."""
    answer = HTTP.get(f"{stack.url}/api/runs/{run}/artifacts", headers={"Authorization": f"Bearer {token}"})
    return {row["name"]: row for row in answer.raise_for_status().json()["artifacts"]}


def found_in(stack: Stack, token: str, trace: str, words: str) -> list[dict[str, Any]]:
    """Return the names of a trace's events that contain the words, with how many there are of each."""
    answer = HTTP.get(
        f"{stack.url}/api/traces/{trace}/search",
        params={"q": words},
        headers={"Authorization": f"Bearer {token}"},
    )
    found: list[dict[str, Any]] = answer.raise_for_status().json()["found"]
    return found


def record_once_it_trains(client: ApiClient, run: str, *, after_step: int = 0) -> str:
    """Ask a run whose trainer knows nothing of captures for one by time, in the middle of training; return its id.

    `after_step` is the last one that the trainer's own profiler records: two at once are refused.
    """

    def is_training() -> bool:
        header = client.run(run)
        assert header["state"] not in ENDED, header["cause"]
        return bool(header["state"] == "running" and header["step"] > after_step)

    wait_until(is_training, TRAINING_SECONDS)
    return str(client.profile(run, {"tool": "torch", "seconds": RECORDED_SECONDS})["id"])


def shown_command(stack: Stack, token: str, run: str) -> list[str]:
    """Return the command that the console shows of a run."""
    answer = HTTP.get(f"{stack.url}/api/runs/{run}/trainer-command", headers={"Authorization": f"Bearer {token}"})
    command: list[str] = answer.raise_for_status().json()["argv"]
    return command


def watch(client: ApiClient, run: str, *, seconds: float) -> WatchedRun:
    """Follow a run to its end."""
    begin = time.monotonic()
    seen = WatchedRun(header=client.run(run))
    while True:
        if seen.header["state"] in ENDED:
            seen.seconds = time.monotonic() - begin
            return seen
        if seen.header["state"] == "running" and (step := seen.header["step"]) not in seen.steps_while_running:
            seen.steps_while_running.append(step)
        assert time.monotonic() - begin < seconds, seen.header
        time.sleep(0.3)
        seen.header = client.run(run)


def points(client: ApiClient, run: str, name: str) -> list[tuple[int, float]]:
    """Return the points of one metric of the driver."""
    return [
        (int(step), float(value))
        for series in client.series(run, [name])
        for step, value in zip(series["x"], series["y"], strict=True)
    ]


def answer_of(stack: Stack, token: str, path: str) -> dict[str, Any]:
    """Return what the API answers at a path."""
    answer = HTTP.get(f"{stack.url}/api{path}", headers={"Authorization": f"Bearer {token}"})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def run_folder(stack: Stack, run: str, *, attempt: int = 1) -> Path:
    """Return the directory of an attempt."""
    return stack.data_dir / "runs" / run / f"a{attempt}"


def kill_after_checkpoint(client: ApiClient, run: str, run_dir: Path) -> int:
    """Kill a run's trainer after its first checkpoint, once the console knows of it; return the newest one's step.

    It stands still from the moment that the checkpoint is whole, so that it is not over before it is killed.
    """
    spec_file = run_dir / "spec.json"

    def saved() -> set[int]:
        header = client.run(run)
        assert header["state"] not in ENDED, header["cause"]
        if not spec_file.exists():
            return set()
        spec = parse_spec(json.loads(spec_file.read_text()))
        return set(adapter(spec.trainer.name).checkpoints.saved(spec=spec, run_dir=run_dir))

    wait_until(saved, TRAINING_SECONDS, f"{run} saved nothing")
    process = trainer.worker(run, run_dir, "driver")
    assert process is not None, "the run was over before it could be killed"
    process.suspend()
    wait_until(lambda: {one["step"] for one in client.checkpoints(run)} == saved(), TRAINING_SECONDS)
    newest = max(saved())
    process.kill()
    return newest
