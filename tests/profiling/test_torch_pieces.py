"""Traces of torch in pieces: one whole trace at the end, and what a killed process had put away."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiling.captures import recording
from profiling.captures.capture import left, recordings
from profiling.recorders import torch_pieces
from profiling.recorders.recorder import RecorderFailed, load_tool

torch = pytest.importorskip("torch")


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        return list(json.load(file)["traceEvents"])


def steps(path: Path) -> list[str]:
    """Return the names of the steps, in the order of time."""
    found = [(e["ts"], e["name"]) for e in events(path) if e.get("cat") == "user_annotation"]
    return [name for _, name in sorted(found) if name.startswith("ProfilerStep#")]


def work() -> None:
    torch.nn.functional.linear(torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)).sum().backward()


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch, *, tool: str, seconds: float = 0.0) -> Path:
    monkeypatch.setattr(torch_pieces, "PIECE_SECONDS", seconds)
    recording.start(tool, folder=folder, name="cap1-policy-0")
    for step in (1, 2, 3, 4):
        if (writer := getattr(recording._current.recorder, "_writer", None)) is not None:  # type: ignore[union-attr]
            writer.join()  # a piece begins once the one before has been put away
        recording.at_step(step)
        work()
    path = recording.stop()
    while recording.outcome(path).size < 0:
        assert not recording.outcome(path).problem
    return path


def test_the_pieces_make_the_same_trace_as_torch_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step and operator once, on one clock, numbered without doubles; nothing but the trace is left."""
    pieces = recorded(tmp_path / "a", monkeypatch, tool="torch_pieces")
    whole = recorded(tmp_path / "b", monkeypatch, tool="torch")
    assert [path.name for path in pieces.parent.iterdir()] == ["cap1-policy-0.pt.trace.json.gz"]
    assert steps(pieces) == [f"ProfilerStep#{number}" for number in (1, 2, 3, 4)]
    ours, theirs = (sorted(e["name"] for e in events(path) if e.get("cat") == "cpu_op") for path in (pieces, whole))
    assert ours == theirs
    assert len(ours) > 40
    numbers = [e["args"]["External id"] for e in events(pieces) if e.get("cat") == "cpu_op"]
    assert len(set(numbers)) == len(numbers)
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in events(pieces) if str(e.get("name")).startswith("ProfilerStep#")]
    assert all(end <= begin for (_, end), (begin, _) in zip(sorted(spans), sorted(spans)[1:], strict=False))


def test_pieces_of_an_earlier_recording_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody ended it, and its name is used again: what it left would be steps of another time."""
    for number in (1, 2, 9):
        (tmp_path / f".piece-cap1-policy-0.pt.trace.json.gz.{number:06d}").write_bytes(
            gzip.compress(b'{"name": "old"}')
        )
    path = recorded(tmp_path, monkeypatch, tool="torch_pieces", seconds=3600)
    assert len(steps(path)) == 4
    assert list(tmp_path.iterdir()) == [path]


def test_a_piece_waits_for_its_time_and_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hold one step, so that something is there soon; the next comes not before its time."""
    seen: list[int] = []
    put_away = torch_pieces.PiecesRecorder._put_away

    def counted(self: torch_pieces.PiecesRecorder) -> None:
        seen.append(self._number)
        put_away(self)

    monkeypatch.setattr(torch_pieces.PiecesRecorder, "_put_away", counted)
    path = recorded(tmp_path, monkeypatch, tool="torch_pieces", seconds=3600)
    assert (seen, len(steps(path))) == ([0, 1], 4)


def test_a_step_that_had_begun_before_is_a_piece_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording by time begins within a step: what it saw of that one is put away before the next."""
    monkeypatch.setattr(torch_pieces, "_WORTH_SECONDS", 0.0)
    path = tmp_path / "cap1-policy-0.pt.trace.json.gz"
    recording.start("torch_pieces", folder=tmp_path, name="cap1-policy-0", is_beside=True)
    work()
    recording.at_step(7)
    recording._current.recorder._writer.join()  # type: ignore[union-attr]
    found = load_tool("torch_pieces").gather(tmp_path, "cap1")
    assert (found, steps(path)) == ({}, [])
    assert "aten::linear" in {event["name"] for event in events(path)}
    recording.discard()


KILLED = """
import os, signal, sys, time
from pathlib import Path
import torch
from profiling.captures import recording
from profiling.recorders import torch_pieces
torch_pieces.PIECE_SECONDS = 0.0
recording.start("torch_pieces", folder=Path(sys.argv[1]), name="cap1-policy-0")
for step in (1, 2, 3):
    if step > 1 and (writer := recording._current.recorder._writer):
        writer.join()
    recording.at_step(step)
    torch.ones(4, 4) @ torch.ones(4, 4)
recording._current.recorder._writer.join()
if sys.argv[2] == "writing":
    torch_pieces._join = lambda path: (print("joining", flush=True), time.sleep(600))
    recording.stop()
else:
    print("recorded", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("moment", "kept"), [("recording", 2), ("writing", 3)])
def test_what_a_killed_process_put_away_is_a_whole_trace(tmp_path: Path, moment: str, kept: int) -> None:
    """The step under way is lost with the process, those before are not; killed while it joins, nothing is lost."""
    folder = recordings(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), moment],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": "."},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() in (b"recorded\n", b"joining\n")
        process.send_signal(signal.SIGKILL)
    (folder / ".part.piece-cap1-policy-0.pt.trace.json.gz.000009").write_bytes(b"half")
    assert not list(folder.glob("*.gz"))
    found = left(tmp_path, {"cap1": "torch_pieces", "cap2": "torch_pieces"}, secrets=())
    assert list(found) == ["cap1-policy-0.pt.trace.json.gz"]
    assert found["cap1-policy-0.pt.trace.json.gz"].problem == ""
    assert steps(folder / "cap1-policy-0.pt.trace.json.gz") == [f"ProfilerStep#{n}" for n in range(1, kept + 1)]
    assert not list(folder.glob(".piece-*"))


def test_pieces_that_cannot_be_joined_are_told_of(tmp_path: Path) -> None:
    """A damaged piece fails the file of its worker, with the reason; another worker's is whole."""
    folder = recordings(tmp_path)
    folder.mkdir(parents=True)
    for worker, content in (("policy-0", b"no gzip"), ("policy-1", gzip.compress(b'{"traceEvents": ['))):
        (folder / f".piece-cap1-{worker}.pt.trace.json.gz.000001").write_bytes(content)
    found = left(tmp_path, {"cap1": "torch_pieces"}, secrets=())
    assert "could not be joined" in found["cap1-policy-0.pt.trace.json.gz"].problem
    assert found["cap1-policy-1.pt.trace.json.gz"].problem == ""
    assert events(folder / "cap1-policy-1.pt.trace.json.gz") == []


def test_a_piece_that_cannot_be_written_fails_the_recording_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for one piece: the training goes on, the capture says why there is no file, nothing is left."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch_pieces, "PIECE_SECONDS", 0.0)
    recording.start("torch_pieces", folder=tmp_path, name="cap1-policy-0")
    for step in (1, 2, 3):
        with monkeypatch.context() as broken:
            if step == 2:
                broken.setattr(torch_pieces, "_copy_events", full)
            recording.at_step(step)
            if (writer := recording._current.recorder._writer) is not None:  # type: ignore[union-attr]
                writer.join()
        work()
    path = recording.stop()
    while (outcome := recording.outcome(path)).size < 0 and not outcome.problem:
        pass
    assert "No space left on device" in outcome.problem
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_cannot_go_on_is_no_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch starts no second time: the recording fails and says after which piece, the work goes on."""
    monkeypatch.setattr(torch_pieces, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(torch_pieces, "_WORTH_SECONDS", 3600.0)  # no piece before the first step
    recording.start("torch_pieces", folder=tmp_path, name="cap1-policy-0")
    recording.at_step(1)
    work()

    def refused(*_: object, **__: object) -> None:
        raise RuntimeError("another profiler is there")

    with monkeypatch.context() as broken:
        broken.setattr(torch.profiler.profile, "start", refused)
        recording.at_step(2)
    work()
    with pytest.raises(RecorderFailed, match=r"could not be continued after its piece 1: .*another profiler is there"):
        recording.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_torch_has_ended_is_told_and_ends_nothing(tmp_path: Path) -> None:
    """As in a program of other people's that ends meanwhile: to write what is not there crashes the process."""
    recording.start("torch", folder=tmp_path, name="cap1-policy-0")
    work()
    torch.autograd._disable_profiler()
    path = recording.stop()
    while not (outcome := recording.outcome(path)).problem:
        assert outcome.size < 0
    assert "torch had ended its profiler" in outcome.problem
