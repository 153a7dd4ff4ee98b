"""What the driver tells, and what it says that telling costs."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.engine.data.model_files import BUNDLED
from jobs.engine.data.text import TextModel
from jobs.engine.reporting import run_report
from jobs.engine.reporting.run_report import RunReport, ShownSample, token_logprobs
from jobs.engine.workers.actor import CallResult
from jobs.engine.workers.node_placement import RunNode
from jobs.engine.workers.worker import Worker
from profiling.profile import Span
from tests.jobs.catalog.test_log_line import OF_PROFILER

HERE = RunNode(ray_id="", index=0, address="10.0.0.1", name="head")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunReport:
    """A report whose clock goes one second further each time it is read."""
    ticks = itertools.count()
    monkeypatch.setattr(run_report, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    return RunReport(tmp_path, attempt=1)


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines()


def test_the_time_of_telling_is_counted_once_and_from_the_first_event_that_is_made(
    report: RunReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = run_report.events.span
    monkeypatch.setattr(run_report.events, "span", lambda *a, **k: (run_report.time.perf_counter(), make(*a, **k))[1])
    spans = (Span("update", 1, 5, 7, 0, ""), Span("update", 1, 5, 7, 1, "forward"))
    worker = Worker(None, role="policy", rank=0, node=HERE)

    report.answer(worker, CallResult(value=None, spans=spans, readings={}, lines={"stdout": ["a"], "stderr": ["b"]}))

    assert report.take_seconds() == 3.0  # two spans were made meanwhile; the lines inside are not counted again
    assert report.take_seconds() == 0.0
    report.note("said and written")
    report.metrics({"reward/mean": 0.5}, step=1)
    assert report.take_seconds() >= 2.0


def test_the_last_line_of_a_worker_is_none_that_the_profiler_wrote(report: RunReport) -> None:
    report.lines("policy", 1, "stderr", ["no memory is left", OF_PROFILER[0]])
    report.lines("policy", 1, "stderr", OF_PROFILER[1:])

    assert report.log_tail == {("policy", 1): "no memory is left"}


def test_samples_are_kept_whole_and_the_first_of_them_told_as_the_same_lines(report: RunReport, tmp_path: Path) -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")
    ids = text.encode("é7")
    samples = [
        ShownSample(
            group=0, index=i, prompt="p", completion=f"é{i}", expected="1", reward=float("nan"), rewards={}, tokens=2,
            token_ids=text.encode(f"é{i}"), logprobs=[-0.12345] * len(ids),
        )
        for i in range(3)
    ]  # fmt: skip

    report.samples(samples, step=4, is_eval=False, shown=2, text=text, num_logprobs=len(ids))

    kept = lines_of(tmp_path / "samples" / "step-000004.jsonl")
    assert [json.loads(line)["completion"] for line in kept] == ["é0", "é1", "é2"]
    assert lines_of(tmp_path / "events.jsonl") == kept[:2]
    first, _second, not_shown = (json.loads(line).get("token_logprobs") for line in kept)
    assert (sum(length for length, _ in first), first[-1], not_shown) == (2, [1, -0.123], None)
    assert report.take_seconds() == 1.0


def test_tokens_are_told_where_they_make_up_the_completion(report: RunReport) -> None:
    text = TextModel(BUNDLED / "tiny-word-problems")
    ids = [*text.encode("日本 12"), text.eos_ids[0]]
    sample = ShownSample(
        group=0, index=0, prompt="p", completion=text.decode(ids), expected="", reward=1.0, rewards={}, tokens=len(ids),
        token_ids=ids, logprobs=[-float(i) for i in range(len(ids))],
    )  # fmt: skip

    told = token_logprobs(sample, text, 4096)

    assert sum(length for length, _ in told) == len(sample.completion)
    assert [logprob for _, logprob in told] == [-float(i) for i in range(len(ids))]
    assert told[-1][0] == 0  # the end token writes nothing
    assert token_logprobs(sample, text, 0) == []
    assert token_logprobs(replace(sample, completion="another text"), text, 4096) == []
