"""Numbers of real traces against a plain pass over their JSON, which paints every microsecond one by one."""

import gzip
import json
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from profiling.analysis.difference import ComparedCapture, difference, shares_of
from profiling.analysis.steps import worker_steps
from profiling.analysis.summary import summarise
from profiling.analysis.work import read
from profiling.evidence import RecordedTrace, phase_spans
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.store import Store
from profiling.trace.writer import StoreWriter

TRACES = Path(__file__).parents[2] / "data" / "traces"
PAIR = ("torch_diff_control.json.gz", "torch_diff_test.json.gz")
US = 1000


@dataclass
class Plain:
    """What a plain pass over a trace finds; times in microseconds."""

    events: list[dict]
    steps: list[tuple[int, int]]

    @property
    def wall(self) -> float:
        return sum(b - a for a, b in self.steps) / len(self.steps)

    def of(self, *categories: str) -> list[dict]:
        return [event for event in self.events if event.get("cat") in categories]

    def painted(self) -> dict[tuple[str, str], float]:
        """Return (kind, name) -> microseconds per step: each one belongs to the first kernel, collective or copy."""
        first = min(a for a, _ in self.steps)
        last = max(b for _, b in self.steps)
        owner: list[tuple[str, str] | None] = [None] * (last - first)
        inside = [False] * (last - first)
        for a, b in self.steps:
            inside[a - first : b - first] = [True] * (b - a)
        kernels = self.of("kernel")
        groups = [
            [("kernel", event) for event in kernels if "nccl" not in event["name"]],
            [("communication", event) for event in kernels if "nccl" in event["name"]],
            [
                ("copy" if event["cat"] == "gpu_memcpy" else "memset", event)
                for event in self.of("gpu_memcpy", "gpu_memset")
            ],
        ]
        for group in groups:
            for kind, event in sorted(group, key=lambda one: one[1]["ts"]):
                for at in range(
                    max(int(event["ts"]) - first, 0), min(int(event["ts"] + event["dur"]) - first, len(owner))
                ):
                    owner[at] = owner[at] or (kind, event["name"])
        found: dict[tuple[str, str], float] = {}
        for at, key in enumerate(owner):
            if inside[at]:
                found[key or ("idle", "")] = found.get(key or ("idle", ""), 0) + 1
        return {key: n / len(self.steps) for key, n in found.items()}


@pytest.fixture(scope="module")
def plain():
    def load(name):
        events = [
            one for one in json.loads(gzip.decompress((TRACES / name).read_bytes()))["traceEvents"] if one["ph"] == "X"
        ]
        marks = sorted((one for one in events if "ProfilerStep" in one["name"]), key=lambda one: one["ts"])
        return Plain(events=events, steps=_by_launch(events, [(one["ts"], one["ts"] + one["dur"]) for one in marks]))

    return {name: load(name) for name in PAIR}


def _by_launch(events, marks):
    """Return when steps begin and end on the device, operation by operation; the recording cuts none of these."""
    calls = {
        one["args"]["correlation"]: one["ts"]
        for one in events
        if one["cat"] == "cuda_runtime" and re.search("Launch|Memcpy|Memset", one["name"])
    }
    work = [
        (one["ts"], one["ts"] + one["dur"], calls.get(one["args"]["correlation"], -1))
        for one in events
        if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    of_step = [[one for one in work if a <= one[2] < b] for a, b in marks]
    first = min(one[0] for one in of_step[0])
    none = [end for _, end, call in work if end <= first and not any(a <= call < b for a, b in marks)]
    steps, at = [], max([marks[0][0], *none])
    for (a, b), launched in zip(marks, of_step, strict=True):
        begin, at = max(at, a), max([b, *(end for _, end, _ in launched)])
        steps.append((begin, at))
    return steps


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    opened = {}
    for name in PAIR:
        import_trace(TRACES / name, folder / name)
        opened[name] = Store(folder / name)
    yield opened
    for store in opened.values():
        store.close()


@pytest.fixture(scope="module")
def sides(stores):
    found = []
    for name in PAIR:
        work = read(stores[name])
        found.append(ComparedCapture(work=work, steps=worker_steps(stores[name], work.lanes.values()).steps))
    return found


@pytest.mark.parametrize("place", [0, 1])
def test_every_microsecond_of_a_step_has_the_owner_that_painting_finds(plain, sides, place) -> None:
    ours: dict[tuple[str, str], float] = {}
    for (kind, name), (ns, _) in shares_of(sides[place]).items():
        key = (kind, name) if kind in ("kernel", "communication", "copy", "memset") else ("idle", "")
        ours[key] = ours.get(key, 0.0) + ns / US
    painted = plain[PAIR[place]].painted()
    assert sum(painted.values()) == pytest.approx(plain[PAIR[place]].wall)
    assert {key: us for key, us in ours.items() if us} == pytest.approx(painted)


def test_the_difference_of_the_pair_is_that_of_two_paintings(plain, sides) -> None:
    found = difference(*sides)
    before, after = (plain[name] for name in PAIR)
    gained = after.wall - before.wall
    assert (found.after - found.before) / US == pytest.approx(gained)
    one, other = before.painted(), after.painted()
    wanted = {key: other.get(key, 0.0) - one.get(key, 0.0) for key in {*one, *other} - {("idle", "")}}
    ours = {
        (item.kind, item.name): item
        for item in found.items
        if item.kind in ("kernel", "communication", "copy", "memset")
    }
    assert found.num_items > len(found.items)
    for key, item in ours.items():
        assert item.delta / US == pytest.approx(wanted.get(key, 0.0))
        assert item.share == pytest.approx(wanted.get(key, 0.0) / gained)
    largest = sorted(wanted, key=lambda key: -abs(wanted[key]))[:20]
    assert set(largest) <= set(ours)
    # Parts, what was left out of the list, and what nothing explains make up the whole difference.
    everything = sum(item.delta for item in found.items) + found.rest + found.unexplained
    assert everything == pytest.approx(found.after - found.before)
    for table in (found.kinds,):
        assert sum(item.delta for item in table) == pytest.approx(found.after - found.before)
    counts = {}
    for name, trace in zip(PAIR, (before, after), strict=True):
        starts = [event["ts"] for event in trace.of("gpu_memcpy") if event["name"] == "Memcpy DtoD (Device -> Device)"]
        counts[name] = sum(any(a <= at < b for a, b in trace.steps) for at in starts) / len(trace.steps)
    copies = ours["copy", "Memcpy DtoD (Device -> Device)"]
    assert (copies.calls_before, copies.calls_after) == pytest.approx((counts[PAIR[0]], counts[PAIR[1]]))


@pytest.mark.parametrize("name", PAIR)
def test_a_summary_has_the_numbers_of_a_plain_pass(plain, stores, name) -> None:
    found = summarise([RecordedTrace(store=stores[name])], phase_spans(()))
    trace = plain[name]
    (worker,) = found.workers
    assert worker.rank == {PAIR[0]: 3, PAIR[1]: 1}[name]  # as distributedInfo has it
    assert [(step.begin // US, step.end // US) for step in found.budget.steps] == trace.steps

    def started(*categories):
        """Return the events that start in a step."""
        return [one for one in trace.of(*categories) if any(a <= one["ts"] < b for a, b in trace.steps)]

    kernels = started("kernel", "gpu_memcpy", "gpu_memset")
    by_name: dict[str, list[int]] = {}
    for event in kernels:
        by_name.setdefault(event["name"], []).append(event["dur"])
    for kernel in worker.kernels:
        durations = sorted(by_name[kernel.name])
        assert (kernel.calls, kernel.total) == (len(durations), sum(durations) * US)
        assert (kernel.least, kernel.most) == (durations[0] * US, durations[-1] * US)
        assert kernel.p50 == durations[(len(durations) + 1) // 2 - 1] * US
    assert worker.kernels[0].total == max(sum(own) for own in by_name.values()) * US

    launches = {
        event["args"]["correlation"]: event
        for event in trace.of("cuda_runtime")
        if "Synchronize" not in event["name"] and event["args"].get("correlation")
    }
    computing = [event for event in started("kernel") if event["args"]["correlation"] in launches]
    short = [event for event in computing if event["dur"] < launches[event["args"]["correlation"]]["dur"]]
    assert worker.launches is not None
    assert worker.launches.linked == len(computing)
    assert worker.launches.short_share == pytest.approx(len(short) / len(computing))

    spent: dict[str, int] = {}
    around = _innermost(trace.of("cpu_op"), list(launches.values()))
    for event in kernels:
        name = around.get(event["args"]["correlation"])
        if name:
            spent[name] = spent.get(name, 0) + event["dur"] * US
    assert {one.name: one.device for one in worker.operators if one.device} == {
        one.name: spent[one.name] for one in worker.operators if one.name in spent
    }
    assert worker.operators[0].device == max(spent.values())


def _innermost(operators: list[dict], calls: list[dict]) -> dict[int, str]:
    """Return correlation -> name of the operator that is on top of the thread's stack at the call."""
    found = {}
    for thread in {one["tid"] for one in operators}:
        rows = [(one["ts"], -one["dur"], 0, one) for one in operators if one["tid"] == thread]
        rows += [(one["ts"], 0, 1, one) for one in calls if one["tid"] == thread]
        stack: list[dict] = []
        for ts, _, is_call, event in sorted(rows, key=lambda row: row[:3]):
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= ts:
                stack.pop()
            if is_call:
                found[event["args"]["correlation"]] = stack[-1]["name"] if stack else ""
            else:
                stack.append(event)
    return found


def _planted(path, *, slow: int, on_device: bool) -> Store:
    """Return a made trace of three equal steps, with one operator that takes `slow` more [us] in each."""
    with StoreWriter(path, source="made") as writer:
        thread = writer.lane("thread", process="python", pid=1, thread="main", tid=1)
        stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
        at, link = 1_700_000_000_000_000, 0
        for step in range(3):
            begin = at
            for k in range(40):
                extra = slow if k == 17 else 0
                name = "aten::layer_norm" if k == 17 else f"aten::op{k % 7}"
                writer.add(thread, at * US, (10 + extra) * US, writer.name(name), Category.OPERATOR)
                if on_device:
                    link += 1
                    writer.add(
                        thread, (at + 2) * US, 3 * US, writer.name("cudaLaunchKernel"), Category.RUNTIME, link=link
                    )
                    kernel = writer.name(f"kernel_of_{name}")
                    writer.add(stream, (at + 5) * US, (9 + extra) * US, kernel, Category.KERNEL, link=link)
                at += 10 + extra
            writer.add(thread, begin * US, (at - begin) * US, writer.name(f"ProfilerStep#{step}"), Category.STEP)
        writer.finish()
    return Store(path)


@pytest.mark.parametrize(
    ("on_device", "kind", "name"),
    [
        (True, "kernel", "kernel_of_aten::layer_norm"),
        (False, "operator", "aten::layer_norm"),
    ],
)
def test_a_planted_slow_operator_comes_out_first(tmp_path, on_device, kind, name) -> None:
    with (
        _planted(tmp_path / "before", slow=0, on_device=on_device) as one,
        _planted(tmp_path / "after", slow=500, on_device=on_device) as other,
    ):
        sides = []
        for store in (one, other):
            work = read(store)
            sides.append(ComparedCapture(work=work, steps=worker_steps(store, work.lanes.values()).steps))
        found = difference(*sides)
    first = found.items[0]
    assert (first.kind, first.name, first.change) == (kind, name, "slower")
    assert first.share == pytest.approx(1.0, abs=0.01)
    assert found.operators[0].name == "aten::layer_norm"
    assert found.after - found.before == pytest.approx(500 * US)
    assert sum(item.delta for item in found.items) + found.rest + found.unexplained == pytest.approx(500 * US)


def test_a_host_that_is_slow_shows_as_the_operator_during_which_the_device_idles(tmp_path) -> None:
    def made(path, slow):
        with StoreWriter(path, source="made") as writer:
            thread = writer.lane("thread", process="python", pid=1, thread="main", tid=1)
            stream = writer.lane("stream", process="python", pid=1, device=0, stream=7)
            writer.add(thread, 10_000, 100_000 + slow, writer.name("ProfilerStep#1"), Category.STEP)
            writer.add(thread, 20_000, 10_000 + slow, writer.name("aten::tokenize"), Category.OPERATOR)
            writer.add(stream, 30_000 + slow, 80_000, writer.name("gemm"), Category.KERNEL)
            writer.finish()
        return Store(path)

    with made(tmp_path / "before", 0) as one, made(tmp_path / "after", 70_000) as other:
        works = [(store, read(store)) for store in (one, other)]
        sides = [
            ComparedCapture(work=work, steps=worker_steps(store, work.lanes.values()).steps) for store, work in works
        ]
        first = difference(*sides).items[0]
    assert (first.kind, first.name, first.share) == ("launch", "aten::tokenize", 1.0)


def test_without_steps_there_is_nothing_to_compare(sides) -> None:
    with pytest.raises(ValueError, match="steps: "):
        difference(sides[0], ComparedCapture(work=sides[1].work, steps=()))


def test_shares_are_none_where_the_steps_are_equal(sides) -> None:
    found = difference(sides[0], sides[0])
    assert {item.share for item in found.items} == {None}
    assert {item.change for item in found.items} == {"same"}
    assert np.isclose(found.unexplained, 0)


def test_an_export_of_nsys_has_the_numbers_of_plain_sql(tmp_path) -> None:
    source = TRACES / "nsys_h100_2gpu_1s.sqlite"
    import_trace(source, tmp_path / "store")
    with Store(tmp_path / "store") as store:
        found = summarise([RecordedTrace(store=store)], phase_spans(()))
    database = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
    kernels = database.execute(
        "SELECT k.deviceId, s.value, count(*), sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.demangledName GROUP BY 1, 2"
    ).fetchall()
    copies = database.execute(
        "SELECT deviceId, count(*), sum(end - start), sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY "
        "WHERE copyKind = 1 GROUP BY 1"
    ).fetchall()
    linked = database.execute(
        "SELECT k.deviceId, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN CUPTI_ACTIVITY_KIND_RUNTIME r "
        "ON r.correlationId = k.correlationId AND (r.globalTid & ~0xFFFFFF) = (k.globalPid & ~0xFFFFFF) GROUP BY 1"
    ).fetchall()
    busy = {
        device: database.execute(
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = ? UNION ALL "
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE deviceId = ? UNION ALL "
            "SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE deviceId = ? ORDER BY 1",
            [device] * 3,
        ).fetchall()
        for device in (0, 1)
    }
    database.close()
    assert len(found.workers) == 2  # two processes with a device each
    for device, worker in enumerate(found.workers):
        assert f"device {device}" in worker.label
        told = {one.name: (one.calls, one.total) for one in worker.kernels if one.category == "kernel"}
        wanted = {name: (n, ns) for number, name, n, ns in kernels if number == device}
        assert told == {name: wanted[name] for name in told}
        assert worker.launches is not None
        assert worker.launches.kernels == sum(n for n, _ in wanted.values())
        assert worker.launches.linked == dict(linked)[device]
        to_device = [one for one in worker.copies if "HtoD" in one.kind]  # from pinned memory, and from pageable
        moved = tuple(sum(getattr(one, key) for one in to_device) for key in ("calls", "total", "bytes"))
        assert moved == next(row[1:] for row in copies if row[0] == device)
        end = covered = 0
        for a, b in busy[device]:
            covered += max(0, b - max(a, end))
            end = max(end, b)
        assert worker.busy == covered
        assert sum(worker.idle.values()) == worker.recorded - covered
        assert not any("op_id" in one.name for one in worker.operators)
