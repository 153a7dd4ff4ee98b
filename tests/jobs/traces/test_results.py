"""Answers of traces: computed once, two at a time, kept with the trace, and never out of date."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from jobs.models import Trace
from jobs.traces import results as trace_answers
from jobs.traces.imports import trace_folder
from jobs.traces.results import MOST_AT_ONCE, MOST_KEPT, MOST_OF_PROJECT, MOST_WAITING, StillComputing, answer
from profiling import plain
from tests.rows import make_project

pytestmark = pytest.mark.django_db


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    number: int
    parts: tuple[Part, ...] = ()
    pair: tuple[str, int] = ("", 0)
    words: dict[str, int] | None = None


@pytest.fixture
def trace() -> Iterator[Trace]:
    trace = Trace.objects.create(project=make_project(), name="made")
    trace_folder(trace).mkdir(parents=True)
    yield trace
    trace_answers._kept.clear()


def kept(trace: Trace) -> list[Path]:
    return sorted(trace_folder(trace).glob("answer-*.json"))


def test_an_answer_is_computed_once_and_outlives_the_process(trace: Trace) -> None:
    calls = []

    def work() -> Whole:
        calls.append(1)
        return Whole(number=7, parts=(Part(name="a", share=0.5), Part(name="b", share=None)), words={"x": 1})

    first = answer(trace, "a", Whole, work, patience=60)
    assert answer(trace, "a", Whole, work, patience=60) is first
    trace_answers._kept.clear()  # as another process has it
    again = answer(trace, "a", Whole, work, patience=60)
    assert again == first
    assert isinstance(again.parts[0], Part)
    assert isinstance(again.pair, tuple)
    assert answer(trace, "b", Whole, work, patience=60) == first  # of something else
    assert len(calls) == 2
    assert len(kept(trace)) == 2


def test_half_an_answer_is_computed_anew(trace: Trace) -> None:
    answer(trace, "a", Whole, lambda: Whole(number=1), patience=60)
    (path,) = kept(trace)
    for odd in ('{"number"', "[]", '{"other": 1}'):
        path.write_text(odd)
        trace_answers._kept.clear()
        assert answer(trace, "a", Whole, lambda: Whole(number=2), patience=60).number == 2


def test_what_cannot_be_computed_is_not_kept(trace: Trace) -> None:
    def fails() -> Whole:
        raise ValueError("no step")

    for _ in range(2):
        with pytest.raises(ValueError, match="no step"):
            answer(trace, "a", Whole, fails, patience=60)
    assert kept(trace) == []
    assert answer(trace, "a", Whole, lambda: Whole(number=1), patience=60).number == 1


def test_an_answer_that_comes_just_as_patience_ends_is_given(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    class JustThen(Future[Whole]):
        def result(self, timeout: float | None = None) -> Whole:
            found = super().result()
            if timeout is not None:
                raise TimeoutError
            return found

    monkeypatch.setattr(trace_answers, "Future", JustThen)

    assert answer(trace, "a", Whole, lambda: Whole(number=1)).number == 1


def test_two_at_a_time_and_others_are_told_to_ask_again(trace: Trace) -> None:
    go, begun = threading.Event(), threading.Semaphore(0)

    def slow() -> Whole:
        begun.release()
        go.wait(30)
        return Whole(number=1)

    theirs, third = (Trace.objects.create(project=make_project(), name="other") for _ in range(2))
    asked = [(one, number) for one in (trace, theirs) for number in range(MOST_OF_PROJECT)]
    assert len(asked) == MOST_AT_ONCE + MOST_WAITING
    try:
        for one, number in asked:
            with pytest.raises(StillComputing, match="Computing"):
                answer(one, number, Whole, slow, patience=0)
            if (one, number) == (trace, MOST_OF_PROJECT - 1):
                with pytest.raises(StillComputing, match="other traces"):  # a project leaves room for others
                    answer(trace, "one more", Whole, slow, patience=0)
        with pytest.raises(StillComputing, match="Computing"):
            answer(trace, 0, Whole, slow, patience=0)  # the same is asked for once
        with pytest.raises(StillComputing, match="other traces"):
            answer(third, "one more", Whole, slow, patience=0)
        for _ in range(MOST_AT_ONCE):
            assert begun.acquire(timeout=30)
        assert not begun.acquire(blocking=False)
    finally:
        go.set()
    for one, number in asked:
        assert answer(one, number, Whole, slow, patience=60).number == 1
    assert answer(trace, "one more", Whole, slow, patience=60).number == 1
    assert trace_answers._under_way == {}
    assert trace_answers._projects == {}


def test_a_trace_keeps_so_many_answers_and_needs_none(trace: Trace) -> None:
    for number in range(MOST_KEPT + 3):
        answer(trace, number, Whole, lambda: Whole(number=1), patience=60)
    assert len(kept(trace)) == MOST_KEPT
    gone = Trace.objects.create(project=trace.project, name="deleted meanwhile")
    assert answer(gone, "a", Whole, lambda: Whole(number=3), patience=60).number == 3
    assert not trace_folder(gone).exists()


def test_json_of_something_else_is_refused() -> None:
    text = plain.written(Whole(number=1, parts=(Part(name="a", share=float("nan")),)))
    assert np.isnan(plain.read(Whole, text).parts[0].share or 0)
    for odd in ("nothing", "[]", '{"number": 1}', '{"number": 1, "parts": 3, "pair": [1], "words": null}'):
        with pytest.raises(ValueError, match=r"Whole|Expecting|zip"):
            plain.read(Whole, odd)


def test_a_thread_that_the_system_does_not_give_leaves_the_place_free(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Refused)
        with pytest.raises(RuntimeError):
            answer(trace, "a", Whole, lambda: Whole(number=1), patience=60)

    assert answer(trace, "a", Whole, lambda: Whole(number=1), patience=60) == Whole(number=1)
