"""A run that died of memory is held against its plan: where, which term, and the smallest change that fits."""

from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser

from console.labels.post_mortem import change_sentence, post_mortem_sentences
from console.sign_in.api_token import make_token
from jobs.catalog.metric import peak_name
from jobs.catalog.rules.rule import changed
from jobs.cluster.ray_api import ClusterState
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt, Project, Run
from jobs.planner.estimate import estimate
from jobs.planning.memory_failure import memory_failure
from jobs.planning.plan_vs_measured import RunMeasurements
from jobs.planning.post_mortem import PostMortem, post_mortem
from jobs.planning.run_plan import question_of
from profiling import events
from tests.batches import T0, delivery
from tests.console.commands import run_command, served_here  # noqa: F401 (fixture)
from tests.jobs.planning.test_joining import HERE, NO_NODE
from tests.measured_runs import spec_of
from tests.rows import NOW, make_project, make_run, make_user, signed_in

pytestmark = pytest.mark.django_db

CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted} GiB. GPU 0 has a total capacity of 44.42 "
    "GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 43.22 GiB memory in use. Of the "
    "allocated memory 40.11 GiB is allocated by PyTorch, and 1.01 GiB is reserved by PyTorch but unallocated."
)


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def admin(project: Project) -> AbstractUser:
    return make_user(project=project, role="admin")


def died(project: Project, cause: dict[str, Any], *, gpu: str = "", devices: int = 1, **spec: Any) -> Run:
    run = make_run(project, state="failed", spec=spec, cause={"side": "trainer", "rank": 0, "step": 3, **cause})
    if gpu:
        row = {"accelerator": gpu, "gpus": devices, "cpus": 64, "memory_bytes": 5e11, "count": 1, "ids": []}
        Attempt.objects.filter(run=run).update(num_gpus=devices, ran_on={"nodes": [row]})
    return run


def dead(run: Run, admin: AbstractUser, state: ClusterState = NO_NODE) -> PostMortem:
    report = post_mortem(Run.objects.get(pk=run.pk), user=admin, state=state)
    assert report is not None
    return report


SFT: dict[str, Any] = {
    "algorithm": "sft",
    "trainer": {"name": "verl", "version": "0.9.1"},
    "model": {"kind": "hub", "id": "Qwen/Qwen2.5-7B"},
}


def test_sizes_are_read_from_what_torch_says() -> None:
    report = memory_failure(
        {"text": "policy rank 0 ran out of memory at step 3 (update).", "log_line": CUDA.format(wanted=4.5)}
    )

    assert report is not None
    assert (report.memory, report.phase, report.wanted) == ("device", "update", int(4.5 * 2**30))
    assert report.demanded == pytest.approx((44.42 - 1.2 + 4.5) * 2**30)


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("the trainer ran out of device memory in step 3", "device"),
        ("ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization", "device"),
        ("policy rank 1 was killed by Ray because the node ran low on memory", "host"),
        ("died (the kernel's out-of-memory killer ended 1 processes on this node)", "host"),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 67108864 bytes.", "host"),
        ("No space left on device", None),
        ("was killed (SIGKILL), from outside or by a limit of its container", None),
    ],
)
def test_only_memory_is_memory(text: str, memory: str | None) -> None:
    report = memory_failure({"text": text})

    assert (report and report.memory) == memory


UPDATE = {"role": "policy", "text": "policy rank 0 ran out of memory at step 3 (update).", "phase": "update"}


def fits_with(report: PostMortem, run: Run, admin: AbstractUser, state: ClusterState) -> float:
    """Return the bytes of the same phase with the change, estimated anew from the spec of the clone."""
    assert report.remedy is not None
    clone = changed(report.spec, report.remedy.changes)
    other = make_run(run.project, spec=clone.model_dump(mode="json"), user=admin)
    Attempt.objects.filter(run=other).update(
        num_gpus=run.attempts.get().num_gpus, ran_on=run.attempts.get().ran_on, state="running"
    )
    asked = question_of(other, user=admin, state=state, measured=RunMeasurements(), reads=False)
    phases = [p for pool in estimate(asked.job, asked.constants).pools for p in pool.phases if p.phase == report.phase]
    (held,) = (each.by_role[report.role] for each in phases if report.role in each.by_role)
    return held.total


def test_a_device_is_held_against_its_plan_and_a_change_fits(project: Project, admin: AbstractUser) -> None:
    run = died(project, {**UPDATE, "log_line": CUDA.format(wanted=4.5)}, gpu="L40S", **SFT)

    report = dead(run, admin)

    assert (report.role, report.phase, report.term, report.known_by) == ("policy", "update", "optimizer", "plan")
    assert report.planned > report.limit  # type: ignore[operator]
    assert fits_with(report, run, admin, NO_NODE) < report.limit  # type: ignore[operator]
    assert change_sentence(report) == "FSDP version 2 instead of 1, FSDP2 CPU offload on instead of off"


def test_a_cache_too_small_asks_for_more_of_the_device(project: Project, admin: AbstractUser) -> None:
    text = "ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization"
    run = died(project, {"text": text}, gpu="H200", devices=8, **spec_of(128))

    report = dead(run, admin)

    assert (report.role, report.phase, report.term) == ("vllm", "rollout", "kv_cache")
    assert report.remedy is not None
    assert report.remedy.changes
    (said,) = post_mortem_sentences(report)  # nothing was too large, and nothing was allocated
    assert said.startswith("Rollout rank 0 found no room for its KV cache; the plan has ")


@pytest.mark.parametrize(
    ("wanted", "term", "known_by"), [(64 << 20, "activations", "rest"), (None, "activations", "plan")]
)
def test_on_a_cpu_the_process_decides(
    project: Project, admin: AbstractUser, wanted: int | None, term: str, known_by: str
) -> None:
    said = f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {wanted} bytes." if wanted else ""
    hardware = {"layout": "split", "device": "cpu"}
    run = died(project, {**UPDATE, "log_line": said}, algorithm="grpo", hardware=hardware)
    readings = {"memory_baseline_bytes": 300e6, peak_name("resident_peak", "update"): 500e6}
    told_of = events.system(readings, attempt=1, role="policy", rank=0, t=T0)
    store([delivery(run.pk, 1, [told_of])], memory=AttemptCache(), now=NOW)

    report = dead(run, admin, HERE)

    assert (report.phase, report.term, report.known_by) == ("update", term, known_by)
    assert report.demanded == (200_000_000 + (64 << 20) if wanted else None)
    assert report.remedy is not None
    assert report.remedy.changes == {"train.micro_batch_size": 16}
    assert fits_with(report, run, admin, HERE) * report.factor <= (report.limit or report.planned)


def test_a_plan_that_was_too_large_is_scaled_to_what_whole_steps_took(project: Project, admin: AbstractUser) -> None:
    said = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8279040 bytes."
    hardware = {"layout": "split", "device": "cpu", "policy_ranks": 1}
    knobs = {"train.micro_batch_size": 128, "memory.zero_stage": "0"}
    run = died(project, {**UPDATE, "log_line": said}, algorithm="grpo", hardware=hardware, knobs=knobs)
    readings = {"memory_baseline_bytes": 300e6, peak_name("resident_peak", "load"): 330e6}
    store(
        [delivery(run.pk, 1, [events.system(readings, attempt=1, role="policy", rank=0, t=T0)])],
        memory=AttemptCache(),
        now=NOW,
    )

    early = dead(run, admin, HERE)
    whole = {peak_name("resident_peak", "update"): 626e6}
    store(
        [delivery(run.pk, 2, [events.system(whole, attempt=1, role="policy", rank=0, t=T0)])],
        memory=AttemptCache(),
        now=NOW,
    )
    late = dead(run, admin, HERE)

    for report in (early, late):  # halving is enough, whether or not an update had been whole
        assert report.remedy is not None
        assert report.remedy.changes == {"train.micro_batch_size": 64}
    assert (early.demanded, early.limit) == (None, None)  # what loading held says nothing of a limit
    assert late.factor < 1
    assert fits_with(late, run, admin, HERE) * late.factor <= (late.limit or 0)


def test_the_command_says_what_the_page_says(
    project: Project,
    admin: AbstractUser,
    served_here: None,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PITWALL_API_TOKEN", make_token(user=admin, name="cli")[1])
    run = died(project, {**UPDATE, "log_line": CUDA.format(wanted=4.5)}, gpu="L40S", **SFT)

    code, out, _err = run_command("post_mortem", run.pk)

    assert code == 0
    assert out.startswith("Policy rank 0 ran out of memory in Update; the plan needs ")
    assert "Launch it again with " in out
    assert "did not die of memory" in run_command("post_mortem", make_run(project, state="failed", spec={}).pk)[1]


def test_the_page_and_the_api_say_it_with_a_clone(project: Project, admin: AbstractUser) -> None:
    client = signed_in(admin)
    run = died(project, {**UPDATE, "log_line": CUDA.format(wanted=4.5)}, gpu="L40S", **SFT)
    fine = make_run(project, state="failed", spec={}, cause={"side": "user", "text": "no such file"})

    answer = client.get(f"/api/runs/{run.pk}/post-mortem").json()["post_mortem"]
    page = unescape(client.get(f"/runs/{run.pk}/post-mortem").content.decode())

    assert (answer["term"], answer["phase"]) == ("optimizer", "update")
    assert all(sentence in page for sentence in answer["says"])
    (knob, *_others) = answer["changes"]
    assert f"from={run.pk}&set={knob}" in page
    assert client.get(f"/runs/{fine.pk}/post-mortem").content == b""
    assert client.get(f"/api/runs/{fine.pk}/post-mortem").json() == {"post_mortem": None}
