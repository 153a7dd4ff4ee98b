"""The facade `mark`: records what it wraps, changes nothing, costs little."""

import threading
import time

import pytest

from profiling import profile
from profiling.profile import drain, mark


@pytest.fixture(autouse=True)
def _empty() -> None:
    drain()


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
        inside.wait(5)
        with mark("reference", step=1):
            pass
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with mark("old_logprobs", step=1):
        inside.set()
        assert done.wait(5)
    thread.join()

    assert {s.phase: s.depth for s in drain()} == {"reference": 0, "old_logprobs": 0}


def test_draining_forgets() -> None:
    with mark("eval"):
        pass

    assert len(drain()) == 1
    assert drain() == []


def test_a_mark_costs_at_most_20_microseconds() -> None:
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(1000):
            with mark("update", step=1):
                pass
        rounds.append((time.perf_counter() - begin) / 1000)
        profile.drain()

    assert min(rounds) <= 20e-6
