"""A summary over several files: who did what, what was left out, and that all of it travels as JSON."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest

from profiling.analysis.summary import open_works, summarise, within
from profiling.analysis.workers import device_words
from profiling.diagnosis.finding import evaluate_files
from profiling.evidence import Evidence, RecordedTrace, phase_spans
from profiling.trace.category import Category
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

NONE = phase_spans(())
AT = 1_700_000_000_000_000_000
MS = 1_000_000


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def made(path: Path, stack: ExitStack, rows, *, meta=None) -> Store:
    """Return a store of rows (pid, lane, category, name, start, end), times in ms; lanes named s... are streams."""
    with StoreWriter(path, source="made") as writer:
        for pid, lane, category, name, start, end in rows:
            if lane.startswith("s"):
                where = writer.lane("stream", process="python", pid=pid, device=pid % 10, stream=int(lane[1:]))
            else:
                where = writer.lane("thread", process="python", pid=pid, thread=lane, tid=1)
            writer.add(where, AT + start * MS, (end - start) * MS, writer.name(name), Category[category.upper()])
        for key, value in (meta or {}).items():
            writer.meta(key, value)
        writer.finish()
    return stack.enter_context(Store(path))


def steps(pid, n=3):
    return [(pid, "main", "step", f"ProfilerStep#{i}", 100 * i, 100 * i + 100) for i in range(n)]


def test_ranks_stand_side_by_side_and_the_straggler_is_named(tmp_path, stack) -> None:
    recorded = []
    for rank, late in ((0, 0), (1, 7)):
        rows = [
            *steps(1),
            *((1, "main", "operator", "aten::mm", 100 * i, 100 * i + 40 + late) for i in range(3)),
            *((1, "main", "communication", "gloo:all_reduce", 100 * i + 40 + late, 100 * i + 60) for i in range(3)),
        ]
        recorded.append(RecordedTrace(store=made(tmp_path / f"{rank}", stack, rows), role="policy", rank=rank))
    found = summarise(recorded, NONE)
    assert [(one.role, one.rank) for one in found.workers] == [("policy", 0), ("policy", 1)]
    by_rank = [one.by_kind() for one in found.budget.workers]
    assert by_rank == [
        {"compute": 120 * MS, "communication": 60 * MS, "unattributed": 120 * MS},
        {"compute": 141 * MS, "communication": 39 * MS, "unattributed": 120 * MS},
    ]
    first = found.late[0]
    assert (first.role, first.rank, first.last, first.of, first.median) == ("policy", 1, 3, 3, 7 * MS)
    assert json.loads(json.dumps(asdict(found)))["workers"][1]["communication"]["exposed"] == 39 * MS


def test_two_files_of_one_worker_count_once_and_that_of_the_device_tells_more(tmp_path, stack) -> None:
    cpu = made(
        tmp_path / "cpu", stack, [*steps(1), *((1, "main", "operator", "aten::mm", i, i + 1) for i in range(50))]
    )
    gpu = made(tmp_path / "gpu", stack, [*steps(1), (1, "s7", "kernel", "gemm", 10, 90)])
    found = summarise(
        [RecordedTrace(store=cpu, role="policy", rank=0), RecordedTrace(store=gpu, role="policy", rank=0)], NONE
    )
    (worker,) = found.workers
    assert worker.has_device
    assert [kernel.name for kernel in worker.kernels] == ["gemm"]


def test_a_file_of_several_devices_or_processes_is_split(tmp_path, stack) -> None:
    devices = made(
        tmp_path / "devices",
        stack,
        [
            (10, "main", "operator", "one", 0, 5),
            (10, "s7", "kernel", "a", 5, 20),
            (11, "main", "operator", "other", 0, 5),
            (11, "s7", "kernel", "b", 10, 30),
        ],
    )
    found = summarise([RecordedTrace(store=devices)], NONE)
    assert [(one.rank, one.label, one.busy // MS) for one in found.workers] == [
        (0, "python 10, device 0", 15),
        (1, "python 11, device 1", 20),
    ]
    assert [[one.name for one in worker.operators] for worker in found.workers] == [["one"], ["other"]]
    assert not found.has_steps
    assert [step.number for step in found.budget.steps] == [-1]
    processes = made(tmp_path / "processes", stack, [(pid, "main", "operator", f"op{pid}", 0, 5) for pid in (4, 5, 6)])
    assert [one.label for one in summarise([RecordedTrace(store=processes)], NONE).workers] == [
        "python 4",
        "python 5",
        "python 6",
    ]


def test_files_that_name_no_rank_do_not_hide_each_other(tmp_path, stack) -> None:
    rows = [*steps(1), (1, "s7", "kernel", "gemm", 10, 90)]
    stores = [made(tmp_path / f"{i}", stack, rows, meta=meta) for i, meta in enumerate(({}, {"rank": 3}, {}))]
    found = summarise([RecordedTrace(store=store) for store in stores], NONE)
    assert [one.rank for one in found.workers] == [0, 1, 3]


def test_processes_of_one_role_are_workers_of_their_own(tmp_path, stack) -> None:
    recorded = [
        RecordedTrace(
            store=made(tmp_path / f"{pid}", stack, [(pid, "main", "operator", f"op{pid}", 0, pid)]), role="vllm", rank=0
        )
        for pid in (4, 5, 6)
    ]
    spans = phase_spans([("vllm", 0, 1, "rollout", "rollout", 0, AT, 6 * MS)])
    found = summarise(recorded, spans)
    assert [(one.role, one.rank) for one in found.workers] == [("vllm", 0), ("vllm/1", 0), ("vllm/2", 0)]
    assert [one.operators[0].name for one in found.workers] == ["op4", "op5", "op6"]
    for worker in found.budget.workers:
        assert {part.phase for part in worker.steps[0].parts} == {"rollout"}


def test_processes_in_one_file_of_a_role_do_not_take_the_names_of_other_ranks(tmp_path, stack) -> None:
    rows = [(pid, "main", "operator", f"op{pid}", 0, 5) for pid in (4, 5)]
    recorded = [
        RecordedTrace(store=made(tmp_path / "both", stack, rows), role="vllm", rank=0),
        RecordedTrace(
            store=made(tmp_path / "next", stack, [(9, "main", "operator", "op9", 0, 5)]), role="vllm", rank=1
        ),
    ]
    found = summarise(recorded, NONE)
    assert [(one.role, one.rank, one.operators[0].name) for one in found.workers] == [
        ("vllm", 0, "op4"),
        ("vllm", 1, "op9"),
        ("vllm/1", 0, "op5"),
    ]


def test_of_a_trace_that_is_too_long_the_first_steps_count(tmp_path, stack) -> None:
    rows = [*steps(1, 64), *((1, "main", "operator", f"op{i % 3}", i, i + 1) for i in range(6400))]
    store = made(tmp_path / "long", stack, rows)
    found = summarise([RecordedTrace(store=store)], NONE, most_events=1000)
    assert found.is_cut
    assert found.events == 6464
    assert 5 <= len(found.budget.steps) < 10
    for step in found.budget.workers[0].steps:
        assert {part.kind: part.ns for part in step.parts} == {"compute": 100 * MS}
    assert len(open_works([RecordedTrace(store=store)], NONE, most_events=1000)[1]) == len(found.budget.steps)
    assert not summarise([RecordedTrace(store=store)], NONE).is_cut


def test_nothing_recorded_is_nothing_told() -> None:
    found = summarise([], NONE)
    assert (found.workers, found.budget.steps, found.late, found.memory) == ((), (), (), ())
    assert json.dumps(asdict(found))


def test_phases_alone_have_a_budget(tmp_path) -> None:
    spans = phase_spans(
        (role, 0, step, phase, phase, 0, AT + (100 * step + at) * MS, 50 * MS)
        for step in (1, 2, 3)
        for role, phase, at in (("driver", "rollout", 0), ("driver", "update", 50), ("policy", "update", 50))
    )
    found = summarise([], spans)
    (worker,) = found.budget.workers
    assert not worker.is_recorded
    assert worker.by_kind() == {"waiting": 150 * MS, "not_recorded": 150 * MS}
    assert [step.wall for step in found.budget.path] == [100 * MS] * 3


def test_ranges_alone_do_not_say_that_nothing_was_computed(tmp_path, stack) -> None:
    rows = [(1, "main", "phase", "update", 20, 90), (1, "main", "range", "update/forward", 20, 50)]
    spans = phase_spans(
        [
            ("driver", 0, 1, "update", "", 0, AT, 100 * MS),
            ("policy", 0, 1, "update", "", 0, AT + 20 * MS, 70 * MS),
        ]
    )
    (store,) = (made(tmp_path / "nsys", stack, rows),)
    found = summarise([RecordedTrace(store=store, role="policy", rank=0)], spans)
    (worker,) = found.workers
    assert (worker.has_work, worker.idle, worker.gaps) == (False, {}, ())
    assert [one.name for one in worker.ranges] == ["update", "update/forward"]
    (budget,) = found.budget.workers
    assert (budget.is_recorded, budget.by_kind()) == (False, {"waiting": 30 * MS, "not_recorded": 70 * MS})


@pytest.mark.parametrize(
    ("process", "label"),
    [("ray::Actor.stop_recording", "process 1"), ("sh", "process 1"), ("bash", "process 1"), ("shard", "shard 1")],
)
def test_a_worker_is_not_called_after_what_started_it(tmp_path, stack, process: str, label: str) -> None:
    with StoreWriter(tmp_path / "a", source="made") as writer:
        lane = writer.lane("thread", process=process, pid=1, thread="main", tid=1)
        writer.add(lane, AT, MS, writer.name("aten::mm"), Category.OPERATOR)
        writer.finish()
    (worker,) = summarise([RecordedTrace(store=stack.enter_context(Store(tmp_path / "a")))], NONE).workers
    assert worker.label == label


def test_rules_look_at_so_many_events_and_say_how_far(tmp_path, stack) -> None:
    rows = [(1, "s7", "kernel", "gemm", 10 * i, 10 * i + 5) for i in range(64)]
    files = [RecordedTrace(store=made(tmp_path / "a", stack, rows), role="policy", rank=0)]
    assert within(files, 64) == tuple(files)
    (cut,) = within(files, 16)
    assert len(cut.events()["ts"]) == 16
    assert 155 * MS < cut.window <= 160 * MS  # a 64th of the file is a little less than 10 ms
    found = evaluate_files(Evidence(recorded=(cut,)))
    assert (found.looked, found.whole) == (cut.window, 635 * MS)
    seen = found.evaluations["device_idle"].observation
    assert seen is not None
    assert seen.value == pytest.approx(0.5)  # of the iterations that repeat
    assert within([], 16) == ()


def test_a_device_whose_number_is_not_told_is_called_without() -> None:
    told = {device: device_words(device, whose="policy 1") for device in (0, -1, None)}
    assert told == {0: "device 0 of policy 1", -1: "the device of policy 1", None: "the CPU of policy 1"}
    assert device_words(-1) == "the device"
