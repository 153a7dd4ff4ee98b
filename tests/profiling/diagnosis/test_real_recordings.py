"""Recordings of an H200 that were made for a known reason, after the rules: what they say of each is that reason."""

import shutil
from pathlib import Path

from profiling.analysis.summary import TraceSummary, summarise
from profiling.evidence import phase_spans
from tests.profiling.corpus.evidence import Bench, fires, found

TRACES = Path(__file__).parents[2] / "data" / "traces"
NEVER = {"recompilation", "tensor_cores_unused", "capture_incomplete", "fragmentation"}
"""True of none of them."""


def judged(name: str, folder: Path) -> tuple[TraceSummary, dict[str, str]]:
    """Return what the summary says of a recording, and the rules that fire."""
    bench = Bench(folder)
    file = folder / f"{name}.json.gz"
    shutil.copy(TRACES / f"h200_{name}.json.gz", file)
    evidence = bench.of_files(file, role="")
    summary = summarise(evidence.recorded, phase_spans(()))
    levels = fires(found(evidence))
    bench.close()
    assert not NEVER & set(levels)
    return summary, levels


def test_launches_that_run_ahead_of_a_busy_device_raise_nothing(tmp_path: Path) -> None:
    summary, levels = judged("ahead", tmp_path)

    (worker,) = summary.workers
    assert levels == {}
    assert [round((step.end - step.begin) / 1e6) for step in summary.budget.steps] == [51, 51, 51]
    assert worker.outside is not None
    assert worker.outside.host_step > 1.04 * 50.9e6  # what the CPU took for the same three is longer by the begin


def test_a_loader_without_workers_is_named(tmp_path: Path) -> None:
    summary, levels = judged("loader", tmp_path)

    (worker,) = summary.workers
    assert levels["data_wait"] == "bad"
    assert worker.idle["data_wait"] > 0.4 * sum(worker.idle.values())


def test_preparation_in_python_is_named_by_its_function(tmp_path: Path) -> None:
    summary, levels = judged("python", tmp_path)

    (worker,) = summary.workers
    assert worker.python[0].name.startswith("traces:prepare:")
    assert worker.idle["python"] > 60e6
    assert "data_wait" not in levels
