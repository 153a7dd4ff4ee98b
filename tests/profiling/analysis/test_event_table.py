"""Conditions on events: what can be asked, what is refused and how, and that none of it becomes SQL."""

import pytest

from profiling.analysis.event_table import EventCondition, WrongCondition, lane_name, page, parsed
from profiling.trace.store import Lane, Store
from tests.trace_rows import BEGIN, MS, small_store

END = BEGIN + 200 * MS


def shown(text: str, **more: object) -> list[tuple[str, int]]:
    with Store(small_store()) as store:
        found = page(store, parsed(text), begin=BEGIN, end=END, **more)  # type: ignore[arg-type]
    return [(row.name, row.length) for row in found.rows]


def counted(text: str) -> int:
    with Store(small_store()) as store:
        return page(store, parsed(text), begin=BEGIN, end=END, limit=1).count


def test_a_text_becomes_conditions() -> None:
    assert parsed('name ~ "a and b" AND length>1.5ms and lane != main and bytes >= 2 MiB and gemm') == (
        EventCondition(field="name", operator="~", value="a and b"),
        EventCondition(field="length", operator=">", value=1.5e6),
        EventCondition(field="lane", operator="!=", value="main"),
        EventCondition(field="bytes", operator=">=", value=2 * 2**20),
        EventCondition(field="name", operator="~", value="gemm"),
    )
    assert parsed("  ") == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nam ~ x", "There is no field 'nam'; there are name, category, lane, length, bytes."),
        ("length ~ 3", "length: it cannot be compared by '~'"),
        ("length > 3", "length: '3' needs one of the units ns, us, µs, ms, s."),
        ("length > soon", "length: 'soon' is no number."),
        ("length >", "length: a value is missing after '>'."),
        ("category = kernels", "category: 'kernels' is none; there are batch,"),
        ("gemm or relu", "'or' stands where `and` has to"),
        ("gemm and", "A condition is missing after `and`."),
        ("= 3", "There is no field before '='"),
        ('name = "x', "a quote is not closed"),
    ],
)
def test_what_is_no_condition_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(WrongCondition) as told:
        parsed(text)
    assert sentence in str(told.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 64),
        ("GEMM", 20),
        ("name = gemm", 0),
        ('name = "gemm<128>"', 20),
        ("name !~ gemm", 44),
        ("category = operator", 20),
        ("category != operator and length >= 4ms", 22),
        ('lane = "GPU 0, stream 7"', 22),
        ("lane ~ main and length < 1 ms", 20),
        ('name ~ "\' OR 1=1 --"', 0),
        ("bytes > 0 b", 0),
    ],
)
def test_conditions_choose_events(text: str, count: int) -> None:
    assert counted(text) == count


def test_a_stream_whose_device_or_number_is_not_told_is_shown_without() -> None:
    lane = {"id": 0, "kind": "stream", "process": "p", "pid": 1, "thread": "", "tid": 0, "depths": 1, "events": 1}
    names = [
        lane_name(Lane(**lane, device=device, stream=stream, title=""))
        for device, stream in ((0, 7), (-1, 7), (-1, -1))
    ]
    assert names == ["GPU 0, stream 7", "GPU, stream 7", "GPU"]


def test_pages_are_sorted() -> None:
    assert shown("", limit=3) == [("ProfilerStep#3", 100 * MS), ("ProfilerStep#4", 100 * MS), ("gemm<128>", 4 * MS)]
    assert shown("", limit=1, offset=2) == [("gemm<128>", 4 * MS)]
    assert shown("category = operator", sort="begin", is_descending=False, limit=1) == [("aten::mm", 2 * MS)]
