"""Lanes of Python frames: apart from the thread's ranges, and one row for a run of frames of one framework."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiling.trace.frames import BUILT_IN, INNER_FRAMES, OWN, STANDARD, Runs, package_of
from profiling.trace.importing import import_trace
from profiling.trace.store import Store

BASE = 1_760_000_000_000_000


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("torch/nn/modules/module.py(1501): _call_impl", "torch"),
        ("/env/lib/python3.10/site-packages/somebodys/loss.py(3): f", "somebodys"),
        ("/usr/lib/python3.10/runpy.py(196): _run_module_as_main", STANDARD),
        ("threading.py(973): _bootstrap", STANDARD),
        ("<frozen runpy>(198): _run_module_as_main", STANDARD),
        ("<built-in method linear of type object at 0x7f>", BUILT_IN),
        ("nn.Module: Linear_0", OWN),
        ("mine/train.py(12): main", OWN),
        ("test.py(1): main", OWN),
        ("<string>(1): <module>", OWN),
    ],
)
def test_a_frame_is_of_a_framework_or_of_ones_own(name: str, package: str) -> None:
    assert package_of(name) == package


def test_runs_are_found_across_blocks() -> None:
    # own 0 > torch 2 > torch > built-in 1 > own > torch, then torch beside the first run
    depth = np.array([0, 1, 2, 3, 4, 5, 1])
    package = np.array([0, 2, 2, 1, 0, 2, 2])
    whole = Runs().inner(depth, package)

    assert whole.tolist() == [False, False, True, True, False, False, False]
    runs = Runs()
    assert np.concatenate([runs.inner(depth[:3], package[:3]), runs.inner(depth[3:], package[3:])]).tolist() == (
        whole.tolist()
    )


def x(cat: str, name: str, start: float, lasts: float) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": 70, "ts": BASE + start, "dur": lasts}


def test_steps_and_operators_stand_above_deep_stacks(tmp_path: Path) -> None:
    """The step begins inside torch's own `step()` and outlives it, as torch's profiler has it."""
    frames = [
        x("python_function", "train.py(1): main", 0, 100),
        x("python_function", "torch/profiler/profiler.py(1): step", 5, 10),
        x("python_function", "torch/nn/modules/module.py(1): _wrapped_call_impl", 20, 60),
        x("python_function", "torch/nn/modules/module.py(2): _call_impl", 21, 58),
        x("python_function", "<built-in method linear>", 22, 50),
    ]
    events = [*frames, x("user_annotation", "ProfilerStep#3", 8, 90), x("cpu_op", "aten::linear", 30, 20)]
    source = tmp_path / "trace.json.gz"
    source.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    import_trace(source, tmp_path / "store")

    with Store(tmp_path / "store") as store:
        found = store.events(columns=("lane", "depth", "name"))
        rows = zip(found["lane"].tolist(), found["depth"].tolist(), found["name"].tolist(), strict=True)
        where = {store.names[name]: (store.lanes[lane].title, depth) for lane, depth, name in rows}
        assert {(lane.tid, lane.kind, lane.pid) for lane in store.lanes} == {(70, "thread", 7)}
    assert where == {
        "ProfilerStep#3": ("", 0),
        "aten::linear": ("", 1),
        "train.py(1): main": ("frames", 0),
        "torch/profiler/profiler.py(1): step": ("frames", 1),
        "torch/nn/modules/module.py(1): _wrapped_call_impl": ("frames", 1),
        "torch/nn/modules/module.py(2): _call_impl": (INNER_FRAMES, 0),
        "<built-in method linear>": (INNER_FRAMES, 1),
    }
