"""The tab Summary of a trace, and the same over the API: numbers, words, and who may see them."""

import functools
import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import AbstractUser
from django.test import Client

from console.labels.traces import (
    CHANGES,
    DEFINITIONS,
    KINDS,
    change_text,
    share_text,
    short_name,
    time_text,
    worker_text,
)
from console.views.traces.steps import step_remarks
from jobs.diagnosis import rules as diagnosis
from jobs.models import Layer, Project, Trace
from jobs.traces import difference as trace_difference
from jobs.traces import results as trace_answers
from jobs.traces import summary as trace_summary
from jobs.traces.imports import import_again, store_path
from profiling.analysis.budget import KINDS as ALL
from profiling.evidence import phase_spans
from tests.console.made_traces import REAL, imported
from tests.rows import make_project, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    return make_project("theirs")


@pytest.fixture
def client(project: Project) -> Client:
    client = Client(headers={"Host": "localhost"})
    client.force_login(_person(project), backend="django.contrib.auth.backends.ModelBackend")
    return client


def _person(project: Project) -> AbstractUser:
    return make_user("viewer", project=project, role="viewer")


def _text(answer: Any) -> str:
    assert answer.status_code == 200, answer.content[:2000]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_the_page_says_where_a_step_goes(client: Client, project: Project) -> None:
    trace = imported(project, file=None)
    page = client.get(f"/traces/{trace.pk}/summary")
    text = _text(page)
    assert "Rank 0 computes in 60.0 % of a step of 100 µs. The largest loss: Host-bound, 40.0 %." in text
    assert "mean of 3 steps" in text
    assert "aten::mm" in text
    assert "<script>gemm" not in page.content.decode()  # names of a trace may hold anything
    assert "— No collective was recorded." in text
    assert "— No memory was recorded." in text
    for kind in ("compute", "launch"):
        assert str(DEFINITIONS[kind]) in text


def test_a_window_and_the_first_step_can_be_left_out(client: Client, project: Project) -> None:
    trace = imported(project, file=None)
    begin = 1_700_000_000_000_000_000
    text = _text(client.get(f"/traces/{trace.pk}/summary?first=off"))
    assert "mean of 2 steps" in text
    text = _text(client.get(f"/traces/{trace.pk}/summary?from={begin}&to={begin + 50_000}"))
    assert "computes in 20.0 % of 50.0 µs" in text  # no whole step lies in it
    for odd in ("?from=x&to=9", "?from=9&to=3", f"?from=1&to={'9' * 30}", "?worker=nobody-7"):
        assert client.get(f"/traces/{trace.pk}/summary{odd}").status_code == 200


def test_what_lies_outside_all_steps_is_said(client: Client, project: Project) -> None:
    trace = imported(project, file=REAL / "torch_diff_test.json.gz")
    text = _text(client.get(f"/traces/{trace.pk}/summary"))
    assert "CPU step 124 ms of the CPU alone, which may run ahead of the device" in text
    assert "outside all steps" not in text  # it is less than 1 %
    (worker,) = client.get(f"/api/traces/{trace.pk}/analysis").json()["workers"]
    assert 0 < worker["outside"]["share"] < 0.01
    assert worker["outside"]["before"] == 614
    summary = trace_summary.summary_of(trace)
    outside = replace(summary.workers[0].outside, outside=summary.workers[0].outside.busy // 10, dropped=(7,))
    (share, before, cut) = step_remarks(summary, replace(summary.workers[0], outside=outside))
    assert share == "10.0 % of the device's time (71.8 ms) lies outside all steps and counts in none."
    assert before == "614 operations of 56.5 ms were launched before the recording of the first step."
    assert cut == "Step 7 is left out: the recording ended before its work on the device did."
    text = _text(client.get(f"/traces/{trace.pk}/summary?by=window"))
    assert "The window counts as one: no steps were asked for, or none lies whole in it." in text
    assert client.get(f"/api/traces/{trace.pk}/analysis?by=window").json()["source"] == "window"
    assert client.get(f"/api/traces/{trace.pk}/analysis?by=month").status_code == 422


def test_use_of_the_peak_is_computed_with_the_formula_shown(client: Client, project: Project) -> None:
    trace = imported(project, file=None)
    asked = "accelerator=H100&parameters=1e6&tokens=1000&devices=2"
    text = _text(client.get(f"/traces/{trace.pk}/summary?{asked}"))
    # 6 * 1e6 * 1000 in 100 us on two devices of 989 TFLOP/s
    assert "3 × 1,000 tokens × (2 × 1 M parameters) = 6 GFLOP" in text
    assert "6 GFLOP / (0.0001 s × 2 × 989 TFLOP/s) = 3.03 %" in text
    text = _text(client.get(f"/traces/{trace.pk}/summary?accelerator=nonsense"))
    assert "is not a known accelerator" in text
    text = _text(client.get(f"/traces/{trace.pk}/summary?parameters=many&devices=0&dtype=int3"))
    assert "is not a number from 1 to 1e+14" in text
    assert "devices: &#x27;0&#x27; is not a number from 1 to 1e+06" in text
    assert "Number type: &#x27;int3&#x27; is not one of bf16, fp16, fp8" in text


def test_a_trace_without_a_file_says_what_comes(client: Client, project: Project) -> None:
    trace = Trace.objects.create(project=project, name="to come")
    Layer.objects.create(trace=trace, file_name="a.json", state="importing")
    assert "No file of this trace has been imported yet." in _text(client.get(f"/traces/{trace.pk}/summary"))
    assert client.get(f"/api/traces/{trace.pk}/analysis").status_code == 409


def test_a_real_trace_over_the_api(client: Client, project: Project) -> None:
    trace = imported(project, file=REAL / "torch_diff_control.json.gz")
    found = client.get(f"/api/traces/{trace.pk}/analysis?accelerator=A100&drop_first=true").json()
    assert [step["step"] for step in found["budget"][0]["steps"]] == [1010, 1011, 1012, 1013, 1014]
    for step in found["budget"][0]["steps"]:
        assert sum(part["ns"] for part in step["parts"]) == step["wall"]
    (worker,) = found["workers"]
    assert worker["communication"]["busy"] == worker["communication"]["exposed"] + worker["communication"]["overlapped"]
    assert worker["peak_share"]["flops"] == worker["flops"]["flops"] > 0
    assert all(isinstance(gap["begin"], str) for gap in worker["gaps"])
    text = _text(client.get(f"/traces/{trace.pk}/summary"))
    assert "Rank 3 computes in 60.5 % of a step of 77.5 ms. The largest loss: Exposed communication, 18.9 %." in text
    assert "SendRecv" in text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("from=5", 422, "give both"),
        ("from=5&to=5", 422, "the second after the first"),
        ("dtype=int4", 422, "is not one of bf16, fp16, fp8"),
        ("recompute=some", 422, "is not one of none, selective, full"),
        ("devices=0", 422, "a number of at least 1"),
    ],
)
def test_what_cannot_be_computed_is_refused_in_a_sentence(
    client: Client, project: Project, query: str, status: int, said: str
) -> None:
    trace = imported(project, file=None)
    answer = client.get(f"/api/traces/{trace.pk}/analysis?{query}")
    assert answer.status_code == status
    assert said in answer.json()["problems"][0]["message"]


def test_the_difference_of_two_traces_over_the_api(client: Client, project: Project) -> None:
    one, other = imported(project, file=None), imported(project, file=None, slow=50)
    found = client.get(f"/api/traces/{one.pk}/difference?other={other.pk}").json()
    assert (found["before"], found["after"]) == (100_000, 150_000)
    first = found["items"][0]
    assert (first["name"], first["delta"], first["share"], first["change"]) == (
        "<script>gemm</script>",
        50_000,
        1.0,
        "slower",
    )
    assert sum(item["delta"] for item in found["items"]) + found["rest"] + found["unexplained"] == 50_000
    refused = client.get(f"/api/traces/{one.pk}/difference?other={other.pk}&worker=policy-4")
    assert refused.status_code == 409
    assert "policy 4 did nothing in" in refused.json()["problems"][0]["message"]
    assert client.get(f"/api/traces/{one.pk}/difference?other={other.pk}&worker=policy").status_code == 422


def test_the_difference_of_two_traces_on_a_page(client: Client, project: Project) -> None:
    one, other = imported(project, file=None), imported(project, file=None, slow=50)
    text = _text(client.get(f"/traces/{one.pk}/difference"))
    assert "Choose a trace to compare with this one." in text
    assert "made, 50 slower" in text
    page = client.get(f"/traces/{one.pk}/difference?other={other.pk}")
    text = _text(page)
    assert "A step takes 150 µs instead of 100 µs: +50.0 µs (+50.0 %)." in text
    assert "<script>gemm" not in page.content.decode()
    assert "slower" in text
    assert "+50.0 µs" in text
    text = _text(client.get(f"/traces/{other.pk}/difference?other={one.pk}&first=off"))
    assert "A step takes 100 µs instead of 150 µs: −50.0 µs (−33.3 %)." in text
    assert "2 steps before, 2 after" in text
    empty = Trace.objects.create(project=project, name="empty")
    text = _text(client.get(f"/traces/{one.pk}/difference?other={empty.pk}"))
    assert "empty holds no events of a worker yet." in text


@pytest.mark.proof
def test_the_difference_of_the_real_pair_on_a_page(client: Client, project: Project) -> None:
    before, after = (imported(project, file=REAL / f"torch_diff_{name}.json.gz") for name in ("control", "test"))
    text = _text(client.get(f"/traces/{before.pk}/difference?other={after.pk}"))
    assert "A step takes 124 ms instead of 77.5 ms: +46.6 ms (+60.1 %). Most of it: Memcpy DtoD" in text
    for word in ("added", "removed", "slower", "faster", "Unexplained"):
        assert word in text


def test_the_critical_path_is_told_by_phase_and_kind(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, us = 1_700_000_000_000_000_000, 1000
    spans = phase_spans(
        (role, 0, step, phase, phase, 0, begin + (100 * (step - 1) + at) * us, lasts * us)
        for step in (1, 2, 3)
        for role, phase, at, lasts in (
            ("driver", "rollout", 0, 40),
            ("vllm", "rollout", 2, 36),
            ("driver", "update", 40, 60),
            ("policy", "update", 40, 60),
        )
    )
    monkeypatch.setattr(trace_summary, "phases_beside", lambda _trace: spans)
    trace = imported(project, file=None)
    trace.layers.update(role="policy", rank=0)
    page = client.get(f"/traces/{trace.pk}/summary")
    text = _text(page)
    assert "What the step waits for" in text
    assert "Policy 0 computes in 60.0 % of a step of 100 µs." in text
    bars = re.findall(r"<title>(.*?)</title>", page.content.decode())
    assert "Rollout (driver 0, vLLM 0): 40.0 µs, 40.0 %" in bars
    assert "Update (policy 0): 60.0 µs, 60.0 %" in bars
    assert "Compute: 60.0 µs, 60.0 %" in bars
    assert "Not covered by the recording: 40.0 µs, 40.0 %" in bars  # nobody recorded vLLM
    assert "phases only" in text
    assert "Device time by phase" in text


def test_memory_alone_is_told_too(client: Client, project: Project) -> None:
    trace = imported(project, file=REAL / "torch_memory_timeline.raw.gz")
    text = _text(client.get(f"/traces/{trace.pk}/summary"))
    assert "Memory reached 2.9 GiB." in text
    assert "Activations 2.4 GiB 2.6 GiB" in text
    (found,) = client.get(f"/api/traces/{trace.pk}/analysis").json()["memory"]
    assert found["device"] == 0
    assert isinstance(found["peak_at"], str)


def test_another_project_sees_nothing(client: Client, project: Project) -> None:
    mine, foreign = imported(project, file=None), imported(make_project("foreign"), file=None)
    assert client.get(f"/traces/{foreign.pk}/summary").status_code == 404
    assert client.get(f"/api/traces/{foreign.pk}/analysis").status_code == 404
    assert client.get(f"/api/traces/{mine.pk}/difference?other={foreign.pk}").status_code == 404
    assert client.get(f"/traces/{mine.pk}/difference?other={foreign.pk}").status_code == 404
    assert "made" in _text(client.get(f"/traces/{mine.pk}/difference"))
    assert foreign.pk not in client.get(f"/traces/{mine.pk}/difference").content.decode()


def test_every_kind_has_a_word_and_a_definition() -> None:
    assert set(KINDS) == set(DEFINITIONS) == set(ALL)
    assert set(CHANGES) == {"added", "removed", "slower", "faster", "same"}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "—"),
        (0, "0 ns"),
        (340, "340 ns"),
        (12_000, "12.0 µs"),
        (77_490_833, "77.5 ms"),
        (1.24e9, "1.24 s"),
        (99.96e6, "100 ms"),
        (9.996e3, "10.0 µs"),
        (999.6e6, "1.00 s"),
        (-3e6, "−3.00 ms"),
    ],
)
def test_times_are_written_in_the_unit_that_suits_them(ns: float | None, text: str) -> None:
    assert time_text(ns) == text


def test_a_worker_has_a_name_also_as_one_process_of_several() -> None:
    assert [worker_text(*worker) for worker in (("policy", 1), ("vllm", 0), ("vllm/1", 0), ("", -1))] == [
        "policy 1",
        "vLLM 0",
        "vLLM 0, process 2",
        "rank 0",
    ]


def test_numbers_of_differences_and_short_names() -> None:
    assert [change_text(ns) for ns in (1_200_000, -340_000, 0)] == ["+1.20 ms", "−340 µs", "0"]
    assert [share_text(share) for share in (0.123, 0.00001, -0.5, None)] == ["12.3 %", "< 0.1 %", "−50.0 %", "—"]
    assert [
        short_name(f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}, at::detail::Array>(int)")
        for functor in ("CUDAFunctor_add<float>", "tanh_kernel_cuda(at::TensorIteratorBase&)", "(lambda)")
    ] == [
        "at::native::vectorized_elementwise_kernel<CUDAFunctor_add>",
        "at::native::vectorized_elementwise_kernel<tanh_kernel_cuda>",
        "at::native::vectorized_elementwise_kernel",
    ]
    assert short_name("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(float*)") == (
        "at::native::CatArrayBatchedCopy"
    )
    assert short_name("Memcpy HtoD (Pinned -> Device)") == "Memcpy HtoD (Pinned -> Device)"
    assert short_name("(anonymous)") == "(anonymous)"


def test_of_a_captures_workers_only_the_compared_ones_are_read(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = imported(project, file=None), imported(project, file=None, slow=50)
    for trace in (one, other):
        trace.layers.update(role="policy", rank=0)
        Layer.objects.create(trace=trace, file_name="gone", role="vllm", rank=0, state="ready")
    read: list[str] = []
    opened = trace_difference.recordings

    def watched(files: Any) -> Any:
        read.extend(file.role for file in files)
        return opened(files)

    monkeypatch.setattr(trace_difference, "recordings", watched)
    found = client.get(f"/api/traces/{one.pk}/difference?other={other.pk}").json()
    assert (found["worker"], found["other_worker"], found["after"] - found["before"]) == (
        "policy-0",
        "policy-0",
        50_000,
    )
    assert read == ["policy", "policy"]
    assert "vLLM 0" in _text(client.get(f"/traces/{one.pk}/difference?other={other.pk}"))  # can be chosen


def test_a_very_large_trace_says_which_part_is_computed(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = imported(project, file=None, steps=64)
    few = functools.partial(trace_summary.summarise, most_events=20)
    monkeypatch.setattr(trace_summary, "summarise", few)
    text = _text(client.get(f"/traces/{trace.pk}/summary"))
    # 64 steps of 100 us hold four events each; a 64th of it is a step, and the step that begins at its end counts
    assert "These are 256 events in 6.40 ms. Only the first 500 µs are analyzed" in text
    assert "It holds steps 1 to 5." in text
    found = client.get(f"/api/traces/{trace.pk}/analysis").json()
    assert (found["is_cut"], int(found["asked_end"]) - int(found["end"])) == (True, 5_900_000)


def test_a_page_that_waits_shows_that_it_does(
    client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = imported(project, file=None), imported(project, file=None, slow=50)
    go = threading.Event()
    for module, name in ((trace_summary, "recordings"), (trace_difference, "recordings"), (diagnosis, "recordings")):
        opened = getattr(module, name)
        monkeypatch.setattr(module, name, lambda files, opened=opened: (go.wait(30), opened(files))[1])
    monkeypatch.setattr(trace_answers, "PATIENCE", 0)
    addresses = [f"/traces/{one.pk}/{tab}" for tab in ("summary", "diagnosis", f"difference?other={other.pk}")]
    try:
        for address in addresses:
            page = client.get(address)
            assert "Computing… This page updates itself when the result is ready." in _text(page)
            assert f'hx-get="{address}"' in page.content.decode()
    finally:
        go.set()
    monkeypatch.setattr(trace_answers, "PATIENCE", 60)
    for address in addresses:
        assert "Computing." not in _text(client.get(address))


def test_a_file_that_cannot_be_opened_is_named_and_its_silence_is_not_kept(client: Client, project: Project) -> None:
    trace = imported(project, file=None)
    (layer,) = trace.layers.all()
    store = store_path(layer)
    whole = store.read_bytes()
    store.write_bytes(b"no store" * 1000)

    for tab in ("summary", "diagnosis"):
        page = client.get(f"/traces/{trace.pk}/{tab}")
        assert f"What was imported of {layer.file_name} cannot be read." in _text(page)
        assert "every 1s" not in page.content.decode()  # asking again by itself would help nobody
        told = client.get(f"/api/traces/{trace.pk}/{'analysis' if tab == 'summary' else tab}")
        assert told.status_code == 409
        assert layer.file_name in told.content.decode()

    page = client.get(f"/traces/{trace.pk}/files")
    assert "Import again" not in _text(page)  # a viewer's
    assert import_again(layer=layer)
    layer.refresh_from_db()
    assert layer.state == "queued"
    layer.state = "ready"  # as once it was imported
    layer.save()
    store.write_bytes(whole)
    assert "Rank 0 computes in 60.0 %" in _text(client.get(f"/traces/{trace.pk}/summary"))
