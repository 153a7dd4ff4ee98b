"""The facade `mark`: records what it wraps, changes nothing, costs little, whatever its backends do."""

import gc
import subprocess
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiling import profile
from profiling.profile import drain, mark
from profiling.profilers.profiler import load_profiler

pytestmark = pytest.mark.usefixtures("no_marks")


class BrokenProfiler:
    """A backend that raises where it is told to, and counts."""

    name = "broken"
    records_details = True

    def __init__(self, *places: str) -> None:
        self.places = places
        self.calls: list[str] = []

    def problem(self) -> str:
        return ""

    def begin(self, phase: str, step: int, name: str) -> str:
        self.calls.append("begin")
        if "begin" in self.places:
            raise OSError("no more handles")
        return phase

    def end(self, token: str) -> None:
        self.calls.append("end")
        if "end" in self.places:
            raise OSError("no more handles")


def test_a_mark_becomes_a_span_with_phase_step_and_wall_clock() -> None:
    before = time.time_ns()

    with mark("rollout", step=3) as marked:
        time.sleep(0.01)

    (span,) = drain()
    assert (span.phase, span.step, span.depth, span.name) == ("rollout", 3, 0, "")
    assert before <= span.start <= time.time_ns()
    assert span.duration >= 10_000_000
    assert marked.seconds == pytest.approx(span.duration / 1e9)


def test_a_mark_inside_a_mark_is_one_deeper() -> None:
    with mark("update", step=1):
        with mark("update", step=1, name="forward"):
            pass
        with mark("update", step=1, name="backward"):
            pass

    assert [(s.name, s.depth) for s in drain()] == [("forward", 1), ("backward", 1), ("", 0)]


def test_an_exception_passes_through_and_the_span_is_closed() -> None:
    with pytest.raises(KeyError), mark("reward", step=2):
        raise KeyError("x")
    with mark("update", step=2):
        pass

    assert [(s.phase, s.depth) for s in drain()] == [("reward", 0), ("update", 0)]


def test_marks_of_threads_do_not_nest_into_each_other() -> None:
    inside = threading.Event()
    done = threading.Event()

    def other() -> None:
        assert inside.wait(60)
        with mark("reference", step=1):
            pass
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with mark("old_logprobs", step=1):
        inside.set()
        assert done.wait(60)
    thread.join()

    assert {s.phase: s.depth for s in drain()} == {"reference": 0, "old_logprobs": 0}


def test_marks_of_many_threads_are_handed_over_once_each() -> None:
    profile.configure("timers")
    taken: list[profile.Span] = []

    def work(number: int) -> None:
        for i in range(40):
            with mark("update", step=number), mark("update", name=str(i)):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            taken += drain()
            thread.join(0.001)  # who only drains keeps the others from marking
    taken += drain()

    assert sorted((s.step, s.depth) for s in taken) == sorted([(n, d) for n in range(8) for d in (0, 1)] * 40)


def test_draining_forgets() -> None:
    with mark("eval"):
        pass

    assert len(drain()) == 1
    assert drain() == []


def test_a_detail_has_the_step_of_its_phase() -> None:
    with mark("update", step=7), mark("update", name="forward"):
        pass
    with mark("update", name="alone"):
        pass

    assert [(s.name, s.step) for s in drain()] == [("forward", 7), ("", 7), ("alone", -1)]


TREES = st.recursive(st.just(()), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=12)


@settings(deadline=None, max_examples=40)
@given(
    tree=TREES, fail_at=st.integers(0, 12), names=st.lists(st.sampled_from(["timers", "nvtx", "torch"]), unique=True)
)
def test_whatever_is_wrapped_runs_once_and_raises_what_it_raises(tree: Any, fail_at: int, names: list[str]) -> None:
    drain()
    broken = BrokenProfiler("begin") if fail_at % 2 else BrokenProfiler("end")
    profile._set((*map(load_profiler, names), broken), records_details=True)
    ran: list[int] = []  # depths, in the order in which the bodies began

    def run(node: Any, depth: int) -> None:
        with mark("update", step=1):
            ran.append(depth)
            if len(ran) == fail_at:
                raise KeyError("the body's own")
            for inner in node:
                run(inner, depth + 1)

    has_raised = False
    try:
        run(tree, 0)
    except KeyError:
        has_raised = True

    assert has_raised == (len(ran) == fail_at)
    assert sorted(s.depth for s in drain()) == sorted(ran)  # a span for each body, at its depth
    with mark("reward", step=1):
        pass
    assert drain()[0].depth == 0  # nothing is left open


@pytest.mark.parametrize("place", ["begin", "end"])
def test_a_backend_that_raises_is_switched_off_with_one_line(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    broken = BrokenProfiler(place)
    profile._set((broken,), records_details=True)

    for _ in range(3):
        with mark("update", step=1):
            pass

    assert len(drain()) == 3
    assert broken.calls.count(place) == 1
    assert capsys.readouterr().err == "Marks of the backend broken are off from here on: OSError: no more handles\n"


def test_off_keeps_phases_and_drops_details() -> None:
    assert profile.configure("none") == ("none",)

    with mark("update", step=1), mark("update", name="forward") as detail:
        pass

    assert [(s.phase, s.name) for s in drain()] == [("update", "")]
    assert detail.seconds == 0.0


def test_auto_is_nvtx_besides_where_nsys_is_in_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    assert profile.configure("auto") == ("timers",)

    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/some/libToolsInjection64.so")
    assert profile.configure("auto") == ("timers", "nvtx")


def test_mstx_ranges_are_opened_and_closed_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []
    stub: Any = ModuleType("torch_npu")
    mstx = SimpleNamespace(range_start=lambda m: said.append(m) or len(said), range_end=lambda n: said.append(n))
    stub.npu = SimpleNamespace(mstx=mstx)
    monkeypatch.setitem(sys.modules, "torch_npu", stub)
    module = sys.modules[type(load_profiler("mstx")).__module__]
    module._mstx.cache_clear()  # type: ignore[attr-defined]  # a cache of the module
    try:
        profile.configure("mstx")
        with mark("update", step=1, name="é" * 100):
            pass
    finally:
        module._mstx.cache_clear()  # type: ignore[attr-defined]  # as above

    name, number = said
    assert name == "update/" + "é" * 60  # 127 bytes: the 128th would be half a letter
    assert number == 1


def test_the_facade_imports_no_library_for_it() -> None:
    code = "import sys, profiling.profile, profiling.captures.recording, profiling.launch_nsys; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"torch", "nvtx", "ray", "torch_npu", "jobs"} & set(loaded)


def calls_of_a_mark(*, name: str = "") -> int:
    """Return how many functions a mark calls; what it takes on a quiet machine is printed by `make bench-profiling`."""
    called: list[str] = []
    gc.disable()  # a collection calls what others have left to be told of it
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event in ("call", "c_call") else None)
    try:
        with mark("update", step=1, name=name):
            pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(called)


def test_off_a_phase_costs_a_handful_of_calls_and_a_detail_next_to_nothing() -> None:
    profile.configure("none")

    assert calls_of_a_mark() <= 16
    with mark("update", step=1):
        assert calls_of_a_mark(name="forward") <= 6
        assert mark("update", name="forward") is mark("update", name="backward")  # nothing is made
