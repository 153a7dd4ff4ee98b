"""How far two recordings can be compared."""

import json
from pathlib import Path

from profiling.analysis.comparability import SideFacts, comparability, facts_of
from profiling.analysis.intervals import interval
from profiling.analysis.work import read
from profiling.trace.importing import import_trace
from profiling.trace.store import Store


def _facts(folder: Path, name: str, *, lasts: int) -> SideFacts:
    """Return what is known of two kernels within one second, of which the first takes `lasts` µs."""
    kernels = [(0, lasts, "gemm"), (500_000, 500_000, "softmax")]
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    path, target = folder / f"{name}.json", folder / f"{name}.store"
    path.write_text(json.dumps({"traceEvents": [{**place, "ts": at, "dur": us, "name": of} for at, us, of in kernels]}))
    import_trace(path, target)
    with Store(target) as store:
        return facts_of(read(store), store, interval(store.begin, store.end))


def test_recordings_of_one_begin_and_end_are_the_same_only_if_their_work_takes_as_long(tmp_path: Path) -> None:
    one, again = (_facts(tmp_path, name, lasts=400_000) for name in ("one", "again"))
    other = _facts(tmp_path, "other", lasts=200_000)

    assert comparability(one, again, (1, 1)).is_same
    assert not comparability(one, other, (1, 1)).is_same
