"""Long searches in processes of their own: the same answers, bounded in time, and no process outlives its asker."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.catalog.accelerator import find_accelerator
from jobs.catalog.spec.parse import parse_spec
from jobs.planner.constant import shipped_constants
from jobs.planner.fleet import fleet_of
from jobs.planner.read.context import Models
from jobs.planner.result import JobInvalid
from jobs.planner.search.layouts import search
from jobs.planner.shapes.known import shape_of
from jobs.planning.search_pool import SearchPool, _encoded, _Searcher

calls: list[int] = []


def counted(number: int) -> int:
    """Return the number; note that it was asked for."""
    calls.append(number)
    return number


@pytest.fixture
def pool() -> Iterator[SearchPool]:
    made = SearchPool(1, seconds=20)
    yield made
    made.close()


def _searcher(pool: SearchPool) -> _Searcher | None:
    return pool._places.queue[-1]


def test_a_search_in_another_process_answers_the_same_and_knows_no_secret(
    pool: SearchPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PITWALL_SECRET_KEY", "a secret that is nobody else's")
    fleet = fleet_of(find_accelerator("h200"), nodes=1, devices_per_node=2)
    asked = (parse_spec({}), Models(policy=shape_of("qwen2.5-0.5b")), fleet)

    apart = pool.answer(search, *asked, goal="cost", limit=3, constants=shipped_constants())

    assert apart == search(*asked, goal="cost", limit=3, constants=shipped_constants())
    searcher = _searcher(pool)
    assert searcher is not None
    assert b"nobody else's" not in Path(f"/proc/{searcher._process.pid}/environ").read_bytes()


def test_one_that_takes_too_long_is_ended_and_the_next_is_answered() -> None:
    pool = SearchPool(1, seconds=1)
    try:
        with pytest.raises(JobInvalid, match="took too long"):
            pool.answer(time.sleep, 60)
        assert _searcher(pool) is None
        assert pool.answer(max, 2, 3) == 3
    finally:
        pool.close()


def test_what_goes_wrong_there_is_said_here_and_one_that_died_is_replaced(pool: SearchPool) -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        pool.answer(divmod, 1, 0)
    searcher = _searcher(pool)
    assert searcher is not None
    searcher._process.kill()
    searcher._process.wait()

    assert pool.answer(max, 4, 5) == 5
    assert _searcher(pool) is not searcher


def test_a_refusal_keeps_its_field(pool: SearchPool) -> None:
    with pytest.raises(JobInvalid) as refused:
        pool.answer(_refusing, "frames")
    assert (refused.value.field, str(refused.value)) == ("frames", "frames: no.")


def _refusing(field: str) -> None:
    raise JobInvalid(field, f"{field}: no.")


def test_it_ends_with_the_process_that_asked() -> None:
    searcher = _Searcher()
    assert searcher.ask(_encoded(60, max, 1, 2), 60) == ("answer", 2)

    searcher._pipe.close()  # as when that process is killed

    assert searcher._process.wait(60) == 0


def test_an_argument_that_came_before_is_the_same_object_there(pool: SearchPool) -> None:
    first, again = (pool.answer(_id_of, shape_of("qwen2.5-0.5b"), number=number) for number in (1, 2))

    assert first == again


def _id_of(shape: object, *, number: int) -> int:
    return id(shape)


def test_the_same_question_is_answered_from_memory_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SearchPool(0)
    calls.clear()

    assert [pool.answer(counted, n) for n in (1, 1, 2)] == [1, 1, 2]
    assert calls == [1, 2]
    monkeypatch.setattr("jobs.planning.search_pool.KEPT_SECONDS", 0.0)
    pool.answer(counted, 1)
    assert calls == [1, 2, 1]
