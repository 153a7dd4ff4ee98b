"""Reading logs: newest first to find, in order to read, no line missed between two pages."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.ingest.store import AttemptCache, store
from jobs.models import LogChunk, LogIndex, Run
from jobs.telemetry import log_index, logs
from jobs.telemetry.log_index import forget_index, index_log
from jobs.telemetry.logs import CursorInvalid, LogFilter, read_logs
from profiling import events as make
from tests.batches import delivery
from tests.rows import NOW, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    """A run with 30 lines of vllm and 15 of policy rank 1, in 15 batches."""
    run, memory = make_run(state="running"), AttemptCache()
    for i in range(15):
        logged = [
            make.log([f"vllm {2 * i}", f"VLLM {2 * i + 1} Überlauf"], attempt=1, role="vllm"),
            make.log([f"policy {i} 100% done_"], attempt=1, role="policy", rank=1, stream="stderr"),
        ]
        store([delivery(run.pk, i + 1, logged)], memory=memory, now=NOW)
    return run


def test_without_a_cursor_the_newest_lines_come_in_order(run: Run) -> None:
    page = read_logs(run_id=run.pk, limit=4)

    assert [line.text for line in page.lines] == [
        "policy 13 100% done_",
        "vllm 28",
        "VLLM 29 Überlauf",
        "policy 14 100% done_",
    ]
    assert (page.has_older, page.has_newer) == (True, False)
    assert page.lanes == (("policy", 1), ("vllm", 0))
    assert (page.lines[-1].stream, page.lines[-1].line) == ("stderr", 14)


def test_pages_backwards_and_forwards_meet_without_a_gap(run: Run) -> None:
    texts: list[str] = []
    before = ""
    while True:
        page = read_logs(run_id=run.pk, before=before, limit=7)
        texts = [line.text for line in page.lines] + texts
        if not page.has_older:
            break
        before = page.lines[0].cursor
        assert len(texts) + (page.num_older or 0) == 45
    assert len(texts) == len(set(texts)) == 45
    assert page.num_older == 0

    first = read_logs(run_id=run.pk, before=before, limit=7).lines[0]
    forward, after = [first.text], first.cursor
    while True:
        page = read_logs(run_id=run.pk, after=after, limit=7)
        forward += [line.text for line in page.lines]
        if not page.has_newer:
            break
        after = page.lines[-1].cursor
    assert forward == texts


@pytest.mark.parametrize(
    ("query", "num"),
    [
        ("vllm", 30),
        ("ÜBERLAUF", 15),
        ("überlauf", 15),
        ("100%", 15),
        ("done_", 15),
        ("VLLM 7", 1),
        ("nothing", 0),
        ("_", 15),
    ],
)
def test_search_knows_no_case_and_no_wildcards(run: Run, query: str, num: int) -> None:
    assert len(read_logs(run_id=run.pk, wanted=LogFilter(query=query)).lines) == num


@pytest.mark.parametrize("is_indexed", [False, True])
def test_an_expression_finds_the_same_lines_with_an_index_as_without(
    run: Run, is_indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_index, "INDEX_CHARS", 60)
    if is_indexed:
        assert index_log(run.pk) > 5
        assert index_log(run.pk) == 0  # nothing is indexed twice

    def found(query: str, **ends: str) -> list[str]:
        wanted = LogFilter(query=query, is_expression=True)
        return [line.text for line in read_logs(run_id=run.pk, wanted=wanted, **ends).lines]

    assert found("^policy 1[0-2]") == [f"policy {n} 100% done_" for n in (10, 11, 12)]
    assert found("olicy 3 |vllm 2$") == ["vllm 2", "policy 3 100% done_"]
    assert found("ÜBERLAUF$") == found("überlauf") == [f"VLLM {2 * n + 1} Überlauf" for n in range(15)]
    assert found("policy [0-9]$") == []
    place = read_logs(run_id=run.pk, wanted=LogFilter(query="policy 7")).lines[0].cursor
    assert found("policy", before=place)[-1] == "policy 6 100% done_"
    assert found("policy", after=place)[0] == "policy 8 100% done_"


def test_a_search_out_of_time_says_how_far_it_came(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "INDEX_CHARS", 60)
    monkeypatch.setattr(logs, "SEARCH_SECONDS", 0.0)
    index_log(run.pk)
    found, before, num_pages = [], "", 0
    while num_pages == 0 or before:
        page = read_logs(run_id=run.pk, wanted=LogFilter(query="policy"), before=before)
        found = [line.text for line in page.lines] + found
        before, num_pages = page.searched, num_pages + 1
        assert page.has_older == bool(before)

    assert found == [f"policy {n} 100% done_" for n in range(15)]
    assert num_pages > 5


def test_a_search_whose_caller_has_gone_ends(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "INDEX_CHARS", 60)
    index_log(run.pk)

    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        read_logs(run_id=run.pk, wanted=LogFilter(query="nothing"), check=check)


def test_levels_and_times_choose_lines() -> None:
    run, memory = make_run(state="running"), AttemptCache()
    for n, text in enumerate(["INFO a", "WARNING b", "ERROR c", "ValueError: d"]):
        store([delivery(run.pk, n + 1, [make.log([text], attempt=1, role="policy")])], memory=memory, now=NOW)
        LogChunk.objects.filter(text=text).update(at=NOW + timedelta(seconds=n))

    def found(**chosen: Any) -> list[str]:
        return [line.text[-1] for line in read_logs(run_id=run.pk, wanted=LogFilter(**chosen)).lines]

    assert (found(level="error"), found(level="warning")) == (["c", "d"], ["b", "c", "d"])
    assert found(level="error", query="value") == ["d"]
    assert found(since=NOW + timedelta(seconds=1), until=NOW + timedelta(seconds=3)) == ["b", "c"]
    assert found(since=NOW + timedelta(seconds=9)) == []


def test_an_index_goes_with_its_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_index, "INDEX_CHARS", 60)
    index_log(run.pk)
    LogChunk.objects.filter(first_line__lt=10).delete()
    num = LogIndex.objects.count()

    forget_index(run.pk)
    assert 0 < LogIndex.objects.count() < num
    LogChunk.objects.all().delete()
    forget_index(run.pk)
    assert not LogIndex.objects.exists()


def test_role_and_rank_choose_lines(run: Run) -> None:
    assert len(read_logs(run_id=run.pk, wanted=LogFilter(role="policy")).lines) == 15
    assert len(read_logs(run_id=run.pk, wanted=LogFilter(role="policy", rank=0)).lines) == 0
    assert len(read_logs(run_id=run.pk, wanted=LogFilter(rank=1)).lines) == 15


@pytest.mark.parametrize("cursor", ["x", "1", "1.", "1.x", "-1.2", "1.2.3", "٣.1"])
def test_a_cursor_that_is_none_is_refused(run: Run, cursor: str) -> None:
    with pytest.raises(CursorInvalid, match="no cursor"):
        read_logs(run_id=run.pk, before=cursor)


def test_one_cursor_at_a_time(run: Run) -> None:
    with pytest.raises(CursorInvalid, match="Give one of"):
        read_logs(run_id=run.pk, before="1.1", after="1.1")


def test_lines_of_a_moment_come_first(run: Run) -> None:
    later = NOW + timedelta(seconds=5)
    LogChunk.objects.update(at=NOW)
    LogChunk.objects.filter(text__contains="policy 9").update(at=later)

    page = read_logs(run_id=run.pk, at=later - timedelta(seconds=1), limit=2)

    assert [line.text for line in page.lines] == ["policy 9 100% done_", "vllm 20"]
    assert (page.has_older, page.has_newer) == (True, True)
    assert read_logs(run_id=run.pk, wanted=LogFilter(role="vllm"), at=later, limit=2).lines == ()  # nothing is so late
    assert read_logs(run_id=run.pk, at=NOW, limit=1).lines[0].text == "vllm 0"
    with pytest.raises(CursorInvalid, match="one of before, after and at"):
        read_logs(run_id=run.pk, at=NOW, before="1.0")
