"""Recording in a process of an older Python: trainers have environments of their own."""

import hashlib
import os
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import cast

import pytest

from profiling.attach import messages, recorder
from profiling.stacks import lines
from tests.waiting import wait_until


def test_a_file_is_told_with_its_checksum_by_a_python_3_10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(hashlib, "file_digest")  # Python 3.11 brought it
    who = {"pid": os.getpid(), "rank": 0, "world_size": 1, "actor": "", "node": "n", "device": "cpu"}
    monkeypatch.setattr(recorder, "_who", lambda: who)
    monkeypatch.setattr(recorder, "_take_device", lambda: None)
    attached = recorder.AttachedRecorder(tmp_path)
    start = {"tool": "stacks", "folder": str(tmp_path / "made"), "name": "c-1-policy-0"}

    def told(number: int, **asked: object) -> dict[str, object]:
        ask = {"number": number, "runner": os.getpid(), **asked}
        messages.write(messages.ask_path(tmp_path, os.getpid()), ask)
        found: dict[str, object] = {}

        def is_told() -> bool:
            attached.look()
            found.update(messages.read(messages.told_path(tmp_path, os.getpid())) or {})
            return found.get("number") == number

        wait_until(is_told, 60)
        return found

    assert told(1, verb="start", **start)["problem"] == ""
    problems = (messages.read(messages.worker_path(tmp_path, os.getpid())) or {})["problems"]
    assert problems["stacks"] == ""
    assert "A piece ends with a step" in problems["torch_pieces"]  # nobody tells of steps here
    written = told(2, verb="stop")
    made = Path(str(written["path"]))
    assert written["sha256"] == hashlib.sha256(made.read_bytes()).hexdigest()
    assert written["size"] == made.stat().st_size > 0


def test_stacks_of_a_python_3_10_name_functions_without_their_classes() -> None:
    code = SimpleNamespace(co_name="step", co_filename="/lib/trainer/loop.py")
    frame = SimpleNamespace(f_code=code, f_lineno=7, f_back=None)
    assert lines(cast(FrameType, frame)) == ("step (trainer/loop.py:7)",)
