"""What every reader of traces promises: one suite for each file of profiling/trace/readers.

A reader has a small whole file of its format in `trace_files.py`; real ones, and what single formats have besides, are
in tests/profiling/trace.
"""

import gzip
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from profiling import plugins
from profiling.trace.category import Category
from profiling.trace.formats import unpack
from profiling.trace.importing import import_trace, reader_of
from profiling.trace.limits import Limits, Unreadable
from profiling.trace.nesting import MOST_DEPTHS
from profiling.trace.readers.reader import Reader, readers
from profiling.trace.schema import StoreFacts
from profiling.trace.store import Store
from tests.contracts.trace_files import FILES as OWN_FILES
from tests.contracts.trace_files_of_others import FILES_OF_OTHERS

FILES = {**OWN_FILES, **FILES_OF_OTHERS}
FOLDER = "profiling.trace.readers"
NAMES = plugins.names(FOLDER)
MADE = [pytest.param(name, make, id=f"{name}-{i}") for name in NAMES for i, make in enumerate(FILES.get(name, ()))]
SHARES = (0.97, 0.4)
Make = Callable[[Path], Path]

each_file = pytest.mark.parametrize(("name", "make"), MADE)


@pytest.fixture(autouse=True)
def _nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the exports of nsys and ncu: a report is a line and what comes out of it."""
    (tmp_path / "bin").mkdir()
    nsys = tmp_path / "bin" / "nsys"
    nsys.write_text('#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\n[ "$1" ] && tail -n +2 "$2" > "$1"\n')
    nsys.chmod(0o755)
    ncu = tmp_path / "bin" / "ncu"
    ncu.write_text('#!/bin/sh\ntail -n +2 "$2" | base64 -d\n')
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", str(nsys.parent), prepend=":")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    made = tmp_path / "traces"
    made.mkdir()
    return made


def reader(name: str) -> Reader:
    return next(one for one in readers() if one.name == name.replace("_", "-"))


def claimed(path: Path) -> list[str]:
    head = unpack.head(path)
    return [one.name for one in readers() if one.sniff(path, head)]


def columns(store: Store) -> dict[str, list[object]]:
    """Return all that a store holds of events and samples, in its order."""
    found = {key: values.tolist() for key, values in store.events().items()}
    found["name"] = [store.names[number] for number in found["name"]]
    found |= {f"{one.name} {one.device}": [array.tolist() for array in store.samples(one.id)] for one in store.series}
    return found


def check(store: Store, facts: StoreFacts) -> None:
    """Hold a store to what pages and rules take for granted."""
    events = store.events(columns=("lane", "depth", "ts", "dur", "name", "cat", "bytes", "info", "id"))
    lane, depth, ts, dur = (events[key] for key in ("lane", "depth", "ts", "dur"))
    assert facts == store.facts
    assert facts.events == len(ts) == sum(one.events for one in store.lanes)
    assert facts.lanes == len(store.lanes)
    assert facts.names == len(store.names)
    assert facts.begin <= facts.end
    if len(ts):
        assert facts.begin <= ts.min() <= (ts + dur).max() <= facts.end
        assert dur.min() >= 0
        assert events["bytes"].min() >= 0
        assert 0 <= events["name"].min() <= events["name"].max() < len(store.names)
        assert set(events["cat"].tolist()) <= set(Category)
        assert sorted(events["id"].tolist()) == list(range(len(ts)))
    assert [one.id for one in store.lanes] == list(range(len(store.lanes)))
    for one in store.lanes:
        mine = lane == one.id
        assert one.events == mine.sum()
        if not one.events:
            continue
        assert one.depths == depth[mine].max() + 1 <= MOST_DEPTHS
        for row in range(one.depths):
            here = mine & (depth == row)
            order = np.argsort(ts[here], kind="stable")
            begins, ends = ts[here][order], (ts + dur)[here][order]
            assert (begins[1:] >= ends[:-1]).all(), "two events of a row overlap"
    for event in events["id"].tolist():
        detail = store.detail(event)
        assert detail is not None
        assert isinstance(detail.info, dict)
    assert facts.samples == sum(one.samples for one in store.series)
    for series in store.series:
        times, values = store.samples(series.id)
        assert len(times) == series.samples
        assert (np.diff(times) >= 0).all()
        assert np.isfinite(values).all()
        assert not len(times) or facts.begin <= times.min() <= times.max() <= facts.end
    assert store.meta["tool"]
    for note in store.notes:
        assert note.severity in ("info", "warning", "error")
        assert note.text


def said_of(path: Path) -> list[str]:
    """Import a file that is not whole; return why it was refused, or what is told of it where it was read."""
    target = path.with_name("of a part")
    try:
        facts = import_trace(path, target)
    except Unreadable as error:
        assert not target.exists()
        refusal = str(error)
        assert refusal.endswith((".", "`"))
        return [refusal]
    with Store(target) as store:
        check(store, facts)
        told = [note.text for note in store.notes if note.severity == "warning"]
    target.unlink()
    return told


def test_each_has_a_file_of_its_format() -> None:
    assert set(FILES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_people_call_the_format(name: str) -> None:
    one = reader(name)

    assert one.title
    assert one.suffixes
    assert all(suffix.startswith(".") for suffix in one.suffixes)
    assert [other.title for other in readers()].count(one.title) == 1


@each_file
def test_it_alone_claims_its_file(name: str, make: Make, folder: Path) -> None:
    path = make(folder)

    assert claimed(path) == [reader(name).name]
    assert path.name.endswith(reader(name).suffixes)
    assert claimed(path.rename(folder / "a file")) == [reader(name).name], "the content tells, not the name"


@each_file
def test_a_whole_file_becomes_a_store_and_what_is_too_much_is_told(name: str, make: Make, folder: Path) -> None:
    path = make(folder)
    content = path.read_bytes()
    told: list[float] = []

    facts = import_trace(path, folder / "one", progress=told.append)
    again = import_trace(path, folder / "two")

    assert facts == again
    assert facts.events + facts.samples >= 8
    assert told == sorted(told)
    assert told[-1] == 1.0
    with Store(folder / "one") as store, Store(folder / "two") as other:
        check(store, facts)
        assert store.meta["source"] == reader(name).name
        assert not [note for note in store.notes if note.severity != "info"]
        assert columns(store) == columns(other)
    assert {each.name for each in folder.iterdir()} == {path.name, "one", "two"}
    assert path.read_bytes() == content
    for limits in (Limits(events=3), Limits(samples=3)):
        less = import_trace(path, folder / "less", limits=limits)

        assert less.events <= facts.events
        assert less.samples <= facts.samples
        with Store(folder / "less") as store:
            check(store, less)
            is_told = any(note.severity == "warning" for note in store.notes)
            assert is_told == (facts.events > limits.events or facts.samples > limits.samples)


@each_file
def test_a_file_that_is_cut_off_gives_what_it_has_or_is_refused(name: str, make: Make, folder: Path) -> None:
    path = make(folder)
    content = path.read_bytes()
    for share in SHARES:
        path.write_bytes(content[: math.ceil(share * len(content))])

        said_of(path)

        assert [each.name for each in folder.iterdir()] == [path.name]


@each_file
def test_a_file_of_garbage_with_the_right_beginning_is_read_or_refused(name: str, make: Make, folder: Path) -> None:
    path = make(folder)
    content = bytearray(path.read_bytes())
    rng = random.Random(1)
    begin = len(content) // 8
    spoiled = content[:begin] + rng.randbytes(len(content) - begin)
    flipped = bytearray(content)
    for _ in range(8):
        flipped[rng.randrange(len(content) // 2, len(content))] ^= 0xFF
    for made in (spoiled, flipped):
        path.write_bytes(made)

        said_of(path)

        assert [each.name for each in folder.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", sorted({suffix for one in readers() for suffix in one.suffixes}))
def test_what_is_of_no_format_is_refused_whatever_it_is_called(suffix: str, folder: Path) -> None:
    path = folder / f"notes{suffix}"
    for content in (
        b"Some notes\nof somebody, who measured 3 things.\n" * 90,
        random.Random(2).randbytes(5000),
        b'{"a": 1}',
    ):
        path.write_bytes(content)

        with pytest.raises(Unreadable, match=r"^The file is of no format that can be read here: ") as refused:
            reader_of(path)
        assert all(one.title in str(refused.value) for one in readers())


@pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param(name, make, id=name)
        for name in NAMES
        for make in itertools.islice(FILES.get(name, ()), 1)
        if any(suffix.endswith(".gz") for suffix in reader(name).suffixes)
    ],
)
def test_packed_it_is_the_same(name: str, make: Make, folder: Path) -> None:
    path = make(folder)
    packed = folder / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    assert claimed(packed) == [reader(name).name]
    assert import_trace(packed, folder / "one") == import_trace(path, folder / "two")
    packed.write_bytes(packed.read_bytes()[:-20])
    assert said_of(packed), "what is missing is told"
