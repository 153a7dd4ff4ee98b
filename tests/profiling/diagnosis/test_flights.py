"""The flight recorder: real dumps of two processes of which one skips a collective, and dumps made by hand."""

import json
import os
import pickle
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from profiling.diagnosis.finding import Finding, diagnose, finding_of, rules
from profiling.evidence import Evidence, RecordedTrace
from profiling.trace.category import Category
from profiling.trace.importing import import_trace
from profiling.trace.limits import Unreadable
from profiling.trace.store import Store

T = 1_760_000_000 * 10**9
S = 10**9


def finding(*paths: Path) -> Finding:
    with ExitStack() as stack:
        recorded = []
        for path in paths:
            target = path.with_name(f"{path.name}.store")
            import_trace(path, target)
            recorded.append(RecordedTrace(store=stack.enter_context(Store(target))))
        return finding_of("collective_mismatch", rules()["collective_mismatch"], Evidence(recorded=tuple(recorded)))


def test_the_rank_that_skips_a_collective_is_named(tmp_path: Path, warm_environment: dict[str, str]) -> None:
    program = [sys.executable, "-m", "tests.profiling.diagnosis.skipping_rank"]
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [*program, str(rank), str(tmp_path)],
                    env=os.environ | warm_environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in (0, 1)
        ]
        for process in ranks:
            stack.callback(process.kill)
        for process in ranks:
            assert process.stdout is not None
            assert any(line == "dumped\n" for line in process.stdout)
        for process in ranks:
            process.communicate()

    pickled = finding(tmp_path / "dump_0", tmp_path / "dump_1")
    told = finding(tmp_path / "rank0.fr.json", tmp_path / "rank1.fr.json")

    for found in (pickled, told):
        assert found.state == "fires", found.sentence()
        assert found.observation is not None
        assert (found.observation.value, found.observation.rank) == (1, 1)
        assert "Collective 3 of process group 0 does not meet: rank 1 —; rank 0 gloo:all_reduce [7] Float" in (
            found.sentence()
        )
    assert "skipping_rank.py:21 evaluate" in pickled.sentence()  # a pickle holds the stack of each call
    with Store(tmp_path / "dump_0.store") as store:
        events = store.events()
        assert [store.names[name] for name in events["name"]] == ["gloo:all_reduce", "gloo:barrier", "gloo:all_reduce"]
        assert events["bytes"].tolist() == [2048, 0, 28]
        assert set(events["cat"].tolist()) == {Category.COMMUNICATION}
        assert [(lane.kind, lane.process, lane.title) for lane in store.lanes] == [
            ("range", "rank 0", "default_pg (0)")
        ]
        assert store.meta["rank"] == 0
        last = store.detail(int(store.events(columns=["id"])["id"][-1])).info  # calls that overlap are stored by depth
        assert (last["sequence"], last["over"], last["input"]) == (3, False, "[7] Float")


def entry(
    sequence: int, name: str = "nccl:all_reduce", size: int = 8, *, over: bool = True, **more: Any
) -> dict[str, Any]:
    created = T + sequence * S
    return {
        "record_id": sequence,
        "process_group": ["1", "actor"],
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "time_created_ns": created,
        "input_sizes": [[size]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[size]],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if over else "started",
        "time_discovered_started_ns": created + 1000,
        "time_discovered_completed_ns": created + 5000 if over else None,
        "retired": over,
        "is_p2p": False,
        **more,
    }


def dump(path: Path, entries: list[dict[str, Any]], *, last: int | None = None, at: float | None = None) -> Path:
    enqueued = last if last is not None else max(each["collective_seq_id"] for each in entries)
    whole: dict[str, Any] = {
        "version": "2.10",
        "pg_config": {"1": {"name": "1", "desc": "actor", "ranks": "[0, 1, 2]"}},
        "pg_status": {"1": {"last_enqueued_collective": enqueued}},
        "entries": entries,
    }
    if at is not None:
        whole["dumped_at_ns"] = T + round(at * S)
    path.write_bytes(pickle.dumps(whole, protocol=2))
    return path


def test_ranks_that_call_different_things_are_told_apart(tmp_path: Path) -> None:
    mine = [
        dump(tmp_path / "d_0", [entry(1), entry(2, over=False)]),
        dump(tmp_path / "d_1", [entry(1), entry(2, size=6, over=False)]),
        dump(tmp_path / "d_2", [entry(1), entry(2, over=False)]),
    ]
    found = finding(*mine)
    assert found.state == "fires"
    assert found.observation is not None
    assert (found.observation.rank, found.observation.begin) == (1, T + 2 * S)
    assert "Collective 2 of process group 1 does not meet: rank 1 nccl:all_reduce [6] BFloat16; rank 0" in (
        found.sentence()
    )
    dump(mine[1], [entry(1), entry(2, name="nccl:broadcast", over=False)])
    assert "rank 1 nccl:broadcast [8] BFloat16" in finding(*mine).sentence()


@pytest.mark.parametrize(
    ("dumps", "state"),
    [
        # Dumps are made one after the other: rank 0 was there, since its collective has ended on rank 1.
        (([entry(1)], [entry(1), entry(2)]), "clear"),
        (([entry(1)], [entry(1), entry(2, over=False)]), "fires"),
        (([entry(1), entry(2, over=False)], [entry(1), entry(2, over=False)]), "clear"),
        (([entry(1, "nccl:all_to_all", 3)], [entry(1, "nccl:all_to_all", 5)]), "clear"),  # sizes may differ
        (([entry(2), entry(3)], [entry(1), entry(2), entry(3)]), "clear"),  # the recorder keeps the newest
        (([entry(1), entry(1, size=3, is_p2p=True)], [entry(1)]), "clear"),
    ],
)
def test_what_is_a_hang_and_what_is_not(tmp_path: Path, dumps: Any, state: str) -> None:
    assert finding(*(dump(tmp_path / f"d_{i}", entries) for i, entries in enumerate(dumps))).state == state


@pytest.mark.parametrize(("at", "state"), [(31.9, "clear"), (33.0, "fires")])
@pytest.mark.parametrize("others", [[entry(1)], [entry(1), entry(2, over=False)]])
def test_a_wait_counts_from_thirty_seconds_where_the_moment_of_the_dump_is_known(
    tmp_path: Path, at: float, state: str, others: list[dict[str, Any]]
) -> None:
    mine = dump(tmp_path / "d_0", [entry(1), entry(2, over=False)], at=at)
    assert finding(mine, dump(tmp_path / "d_1", others, at=at)).state == state


def test_a_dump_is_no_recording_of_work(tmp_path: Path) -> None:
    import_trace(dump(tmp_path / "d_0", [entry(1)]), tmp_path / "a.store")
    with Store(tmp_path / "a.store") as store:
        found = {one.key: one.state for one in diagnose(Evidence(recorded=(RecordedTrace(store=store),)))}
    for rule in ("recompilation", "profiler_overhead", "communication_exposed"):
        assert found[rule] == "not_enough_data"


def test_one_rank_alone_is_not_enough(tmp_path: Path) -> None:
    found = finding(dump(tmp_path / "d_0", [entry(1), entry(2, over=False)]))
    assert found.state == "not_enough_data"
    assert "TORCH_FR_BUFFER_SIZE" in found.sentence()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (json.dumps({"pg_config": {}, "pg_status": {}, "entries": 5}).encode(), "no list of entries"),
        (
            json.dumps({"pg_config": {}, "pg_status": {}, "entries": [{"time_created_ns": "x"}, 7]}).encode(),
            "no collective",
        ),
        (b'{"pg_config": {}, "pg_status": {}, "entries": [', "damaged or cut off"),
        (pickle.dumps({"pg_config": {}, "pg_status": print}, protocol=2), "asks for __builtin__.print"),
        (pickle.dumps({"pg_config": {}, "pg_status": {}, "entries": []}, protocol=4)[:-9], "cut off"),
    ],
)
def test_a_dump_that_is_none_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=sentence):
        import_trace(path, tmp_path / "a.store")


def test_nonsense_in_a_dump_costs_only_itself(tmp_path: Path) -> None:
    odd = {
        "profiling_name": None,
        "process_group": [[1], {"a": 1}],
        "collective_seq_id": 1 << 70,
        "input_sizes": [[1 << 40, 1 << 40], "x", [-3]],
        "input_dtypes": ["Float", 7],
        "output_sizes": 8,
        "frames": [{"filename": 5}, "x"],
        "time_discovered_completed_ns": -5,
    }
    path = dump(tmp_path / "d_0", [entry(1), entry(2, **odd)], last=2)
    assert finding(path, dump(tmp_path / "d_1", [entry(1)])).state == "clear"
    with Store(tmp_path / "d_0.store") as store:
        assert store.facts.events == 2
        assert store.events()["bytes"].tolist() == [16, 0]


def test_a_small_dump_of_very_many_ranks_makes_no_large_store(tmp_path: Path) -> None:
    every = ",".join(["1"] * 50_000)  # once in the pickle, however many groups have it
    groups = {str(number): {"desc": "", "ranks": every} for number in range(100)}
    path = tmp_path / "d_0"
    path.write_bytes(pickle.dumps({"entries": [entry(1)], "pg_config": groups, "pg_status": {}}, protocol=2))
    import_trace(path, tmp_path / "a.store")
    with Store(tmp_path / "a.store") as store:
        found = store.meta["flight"]["groups"]
        assert len(found) == 100
        assert sum(len(group["ranks"]) for group in found.values()) == 100_000
