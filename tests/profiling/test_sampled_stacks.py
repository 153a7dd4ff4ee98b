"""Samples of stacks: what a recorder writes is read again, and equal stacks stand together."""

import threading
from pathlib import Path

from profiling.recorders.stacks import StacksRecorder
from profiling.sampled_stacks import places, read
from profiling.stacks import stacks
from tests.waiting import wait_until


def test_equal_stacks_of_several_processes_stand_together() -> None:
    hanging = "MainThread;train (run.py:9);all_reduce (dist.py:3) {}"
    files = {
        "policy 0": read([hanging.format(98), "MainThread;train (run.py:8) 2", "beat;wait (threading.py:1) 100"]),
        "policy 1": read([hanging.format(50)]),
        "policy 2": read(["MainThread;train (run.py:9);load (data.py:5) 100"]),
    }

    waiting, loading, before, beat = places(files)

    assert waiting.stack == ("train (run.py:9)", "all_reduce (dist.py:3)")
    assert [(one.process, one.share) for one in waiting.standing] == [("policy 0", 0.98), ("policy 1", 1.0)]
    assert waiting.processes == 2
    assert [one.process for one in loading.standing] == ["policy 2"]
    assert [one.share for one in before.standing] == [0.02]
    assert (beat.is_main, [one.thread for one in beat.standing]) == (False, ["beat"])


def test_what_is_no_sample_is_skipped() -> None:
    lines = ["", "no count here", "MainThread 5", "a;b x", "a;b 99999999999999", "a;b 2\n", "a;b 3"]
    assert read(lines) == {("a", ("b",)): 5}
    assert places({"p": {}}) == []


def test_what_a_recorder_writes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "policy-0.stacks.txt"
    release, stands = threading.Event(), threading.Event()

    def stand_here() -> None:
        stands.set()
        release.wait()

    thread = threading.Thread(target=stand_here, name="stander", daemon=True)
    thread.start()
    stands.wait()
    wait_until(lambda: stacks()["stander"][-1].startswith("Condition.wait ("), 60)
    recorder = StacksRecorder()
    recorder.start(path)
    while not any(key[0] == "stander" for key in list(recorder._counts)):
        pass
    recorder.stop()
    release.set()
    thread.join()
    recorder.write()

    found = places({"policy 0": read(path.read_text().splitlines())})
    mine = next(place for place in found if place.standing[0].thread == "stander")
    assert any("stand_here (" in call for call in mine.stack)
    assert [one.share for one in mine.standing] == [1.0]
