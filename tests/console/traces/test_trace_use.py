"""MFU of a run's own capture: the formula's inputs are the run's, each with where it is from. Computed by hand."""

import re
from typing import Any

import pytest
from django.test import Client

from jobs.diagnosis.model_facts import of_run
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Capture, Project, Run, Trace
from profiling import events as make
from tests.batches import T0, delivery
from tests.console.made_traces import imported
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db

NODES = {"nodes": [{"accelerator": "H100", "gpus": 8, "cpus": 64, "memory_bytes": 1 << 40, "count": 1, "ids": []}]}
SPEC = {
    "algorithm": "grpo",
    "model": {"kind": "hub", "id": "Qwen/Qwen2.5-0.5B"},
    "knobs": {"memory.precision": "bfloat16", "rollout.prompts_per_step": 4, "rollout.samples_per_prompt": 4},
}


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def viewer(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project, role="viewer"))
    return client


def told(project: Project, *, gpus: int, spec: dict[str, Any] | None = None, steps: int = 3) -> Run:
    """Return a run that trained on 1,000 tokens a second for 1, 2 and 3 s, in steps 1 to 3."""
    run = make_run(project, state="running", spec=spec or SPEC)
    Attempt.objects.filter(run=run).update(num_gpus=gpus, ran_on=NODES if gpus else {})
    events = [
        make.metric(
            {"throughput/update_tokens_per_second": 1000.0, "time/update_seconds": float(step)},
            attempt=1,
            step=step,
            t=T0 + step * 10**9,
        )
        for step in range(1, steps + 1)
    ]
    store([delivery(run.pk, 1, events)], memory=AttemptCache(), now=NOW)
    return run


def captured(run: Run) -> Trace:
    """Return the trace of a capture of three steps of 100 ms."""
    capture = Capture.objects.create(run=run, attempt=1, tool="torch", state="ready", first_step=1, num_steps=3)
    return imported(run.project, file=None, capture=capture, slow=99_900)


def _text(answer: Any) -> str:
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_mfu_is_there_without_typing(viewer: Client, project: Project) -> None:
    trace = captured(told(project, gpus=2))

    found = viewer.get(f"/api/traces/{trace.pk}/analysis").json()

    # 2,000 tokens a step in 16 sequences of 125. Qwen2.5-0.5B: 494,032,768 parameters, all in products since its head
    # is tied; 24 layers of 14 heads of 64.
    flops = 3 * 2000 * (2 * 494_032_768 + 4 * 24 * 896 * (125 + 1) / 2)
    assert found["mfu"]["flops"] == pytest.approx(flops, rel=1e-12)
    assert found["mfu"]["share"] == pytest.approx(flops / (0.1 * 2 * 989e12), rel=1e-9)
    known = {one["key"]: one["value"] for one in found["from_run"]}
    assert (known["tokens"], known["context"], known["devices"]) == ("2000", "125", "2")
    assert all(one["source"] for one in found["from_run"])
    assert found["hfu"]["share"] == found["mfu"]["share"]  # nothing is computed again

    text = _text(viewer.get(f"/traces/{trace.pk}/summary"))
    assert "3 × 2,000 tokens × (2 × 494 M parameters + 4 × 24 layers × 896 × (125 + 1) / 2)" in text
    assert "3.01 %" in text
    assert "config.json of Qwen/Qwen2.5-0.5B" in text
    assert "tokens per second of the update times its seconds" in text


def test_what_is_typed_goes_before_what_the_run_knows(viewer: Client, project: Project) -> None:
    trace = captured(told(project, gpus=2))

    found = viewer.get(f"/api/traces/{trace.pk}/analysis?tokens=4000&devices=4").json()

    assert found["mfu"]["devices"] == 4
    assert {"tokens", "devices"} & {one["key"] for one in found["from_run"]} == set()
    page = viewer.get(f"/traces/{trace.pk}/summary?tokens=4000&devices=").content.decode()
    assert 'name="tokens" inputmode' not in page
    assert re.search(r'name="tokens" value="4000"', page)
    assert re.search(r'name="devices" inputmode="numeric" value="2"', page)  # a field that was cleared is filled again


def test_a_run_on_cpu_has_no_peak_and_says_so(viewer: Client, project: Project) -> None:
    trace = captured(told(project, gpus=0))
    text = _text(viewer.get(f"/traces/{trace.pk}/summary"))
    assert "The run used CPUs, whose peak is unknown, so there is no MFU." in text
    assert "3 × 2,000 tokens" in text  # its operations are known all the same
    assert viewer.get(f"/api/traces/{trace.pk}/analysis").json()["mfu"] is None


def test_passes_over_a_rollout_count_each(project: Project) -> None:
    knobs = {**SPEC["knobs"], "train.epochs_per_rollout": 2}  # type: ignore[dict-item]
    spec = {**SPEC, "trainer": {"name": "verl"}, "knobs": knobs}
    known = of_run(captured(told(project, gpus=2, spec=spec)), [1, 2, 3]).values()
    assert (known["tokens"], known["context"]) == ("4000", "125")


@pytest.mark.parametrize("knob", ["lora.rank", "lora.megatron_rank"])
def test_adapters_are_said_to_take_less(project: Project, knob: str) -> None:
    engine = {"parallel.engine": "megatron"} if "megatron" in knob else {}
    knobs = {"rollout.prompts_per_step": 4, "rollout.samples_per_prompt": 4, knob: 16, **engine}
    spec = {**SPEC, "trainer": {"name": "verl"}, "knobs": knobs}
    notes = of_run(captured(told(project, gpus=2, spec=spec)), [1]).notes
    assert any("adapters" in note for note in notes)


def test_a_part_of_a_device_is_held_against_a_whole_one(viewer: Client, project: Project) -> None:
    found = viewer.get(f"/api/traces/{captured(told(project, gpus=0.5)).pk}/analysis").json()  # type: ignore[arg-type]
    assert found["mfu"]["devices"] == 1


def test_what_nobody_told_is_left_out(project: Project) -> None:
    run = told(project, gpus=2, spec={**SPEC, "model": {"kind": "hub", "id": "somebody/unheard-of"}})
    known = of_run(captured(run), [1, 2, 3, 4]).values()  # of step 4 it told nothing
    assert set(known) == {"devices", "accelerator", "dtype", "recompute"}
    upload = Trace.objects.create(project=project, name="uploaded")
    assert of_run(upload, [1]).inputs == ()
