"""What every backend of marks promises: one suite for each file of profiling/profilers.

What single backends write or measure is in tests/profiling/test_profile.py and test_profile_memory.py.
"""

import gc
import inspect
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, get_args

import pytest

from profiling import plugins, profile
from profiling.config import Marks
from profiling.memory_marks import MarkMemory
from profiling.profile import Span, drain, mark
from profiling.profilers.profiler import Profiler, load_profiler

ROOT = Path(__file__).resolve().parents[2]
NAMES = plugins.names("profiling.profilers")
METHODS = [name for name, value in vars(Profiler).items() if inspect.isfunction(value) and not name.startswith("_")]
LIBRARIES = ("torch", "torch_npu", "nvtx", "ray", "numpy")
MOST_CALLS = 64
"""Of functions, for a mark with one backend; microseconds are printed by `make bench-profiling`."""
RANGES = ("update", "update/forward", "update/forward/attention", "update/backward", "reward")


class Library:
    """Stands in for what backends write to: keeps the ranges of each thread, and that they are closed in order."""

    def __init__(self) -> None:
        self.opened: defaultdict[int, list[str]] = defaultdict(list)
        self.open: defaultdict[int, list[str]] = defaultdict(list)

    def push(self, text: str, **_: Any) -> int:
        self.opened[threading.get_ident()].append(text)
        self.open[threading.get_ident()].append(text)
        return len(self.open[threading.get_ident()])  # a number that ends it

    def pop(self, number: int = 0, **_: Any) -> None:
        mine = self.open[threading.get_ident()]
        assert number in (0, len(mine)), "a range was closed while one inside of it was open"
        mine.pop()

    def record_function(self, text: str) -> "Range":
        return Range(self, text)


class Range:
    """A range as a context manager."""

    def __init__(self, library: Library, text: str) -> None:
        self.library, self.text = library, text

    def __enter__(self) -> None:
        self.number = self.library.push(self.text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.library.pop(self.number)


@pytest.fixture(autouse=True)
def _no_marks() -> Iterator[None]:
    drain()
    yield
    profile._set((), records_details=True)
    drain()


def forget(name: str) -> None:
    """Have a backend look for its library anew."""
    for value in vars(sys.modules[f"profiling.profilers.{name}"]).values():
        if hasattr(value, "cache_clear") and value.__module__ == f"profiling.profilers.{name}":
            value.cache_clear()


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Profiler:
    return load_profiler(request.param)


@pytest.fixture
def library(backend: Profiler, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """All libraries there are, as one stand-in, in the middle of a recording."""
    made = Library()
    mstx = SimpleNamespace(range_start=made.push, range_end=made.pop)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "nvtx", SimpleNamespace(push_range=made.push, pop_range=made.pop))
        patch.setitem(sys.modules, "torch_npu", SimpleNamespace(npu=SimpleNamespace(mstx=mstx)))
        torch = SimpleNamespace(profiler=SimpleNamespace(record_function=made.record_function))
        patch.setitem(sys.modules, "torch", torch)
        patch.setattr(backend, "is_recording", True, raising=False)
        forget(backend.name)
        yield made
    forget(backend.name)


def work() -> None:
    """Mark RANGES, one of which raises."""
    with mark("update", step=1):
        with mark("update", name="forward"), mark("update", name="forward/attention"):
            pass
        with pytest.raises(KeyError), mark("update", name="backward"):
            raise KeyError("the body's own")
    with mark("reward", step=2):
        pass


def shape(spans: list[Span]) -> list[tuple[str, int, int, str]]:
    return [(span.phase, span.step, span.depth, span.name) for span in spans]


def test_a_spec_can_ask_for_each() -> None:
    assert {*get_args(Marks)} - {"auto"} == set(NAMES)


def test_it_has_what_the_contract_names(backend: Profiler) -> None:
    assert backend.name in NAMES
    assert load_profiler(backend.name) is backend
    assert isinstance(backend.records_details, bool)
    for method in METHODS:
        wanted = [p for p in inspect.signature(getattr(Profiler, method)).parameters if p != "self"]
        assert list(inspect.signature(getattr(backend, method)).parameters) == wanted, method


@pytest.mark.parametrize("name", NAMES)
def test_without_its_library_it_says_so_and_marks_go_on(name: str) -> None:
    code = (
        f"import sys\nfor each in {LIBRARIES!r}: sys.modules[each] = None\n"
        "from profiling import profile\nfrom profiling.profilers.profiler import load_profiler\n"
        f"problem, on = load_profiler({name!r}).problem(), profile.configure({name!r})\n"
        "with profile.mark('update', step=1): pass\n"
        "print(len(profile.drain()), bool(on), problem, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True, timeout=600
    )

    spans, is_on, problem = done.stdout.strip().split("|")
    assert (spans, is_on) == ("1", str(not problem)), done.stderr
    if problem:
        assert problem.endswith(".")
        assert done.stderr == f"Marks of the backend {name} are off. {problem}\n"


def test_what_it_opens_it_closes_in_order_on_every_thread(
    backend: Profiler, library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    assert backend.problem() == ""
    profile._set((backend,), records_details=True)
    all_there = threading.Barrier(4)  # a thread that has ended gives its number to the next one

    def work_together() -> None:
        all_there.wait(60)
        work()
        all_there.wait(60)

    threads = [threading.Thread(target=work_together) for _ in range(all_there.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with_it = drain()
    profile._set((), records_details=True)
    work()

    assert sorted(shape(with_it)) == sorted(shape(drain()) * len(threads))
    assert not any(library.open.values())
    assert {tuple(texts) for texts in library.opened.values()} <= {RANGES}
    assert capsys.readouterr().err == ""  # it was never switched off


def test_it_measures_memory_or_nothing(backend: Profiler, library: Library) -> None:
    token = backend.begin("update", 1, "")
    found = backend.end(token)

    assert found is None or isinstance(found, MarkMemory)


def test_switched_off_it_is_not_called_and_what_is_open_still_closes(backend: Profiler, library: Library) -> None:
    profile._set((), records_details=True)
    assert profile.attach(backend.name)
    with mark("update", step=1):
        profile.detach(backend.name)
        work()

    assert sum(len(texts) for texts in library.opened.values()) <= 1
    assert not any(library.open.values())


def test_a_mark_costs_a_handful_of_calls(backend: Profiler, library: Library) -> None:
    profile._set((backend,), records_details=True)
    work()  # what the first one finds is kept
    called: list[str] = []
    gc.disable()  # a collection calls what others have left to be told of it
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event in ("call", "c_call") else None)
    try:
        with mark("update", step=1):
            pass
    finally:
        sys.setprofile(None)
        gc.enable()

    assert len(called) <= MOST_CALLS, called
