"""Hostile files of other makers' formats: an import ends in a sentence or a store, soon, whatever stands in them."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from profiling.trace import other_files
from profiling.trace.importing import import_trace
from profiling.trace.readers import folded_stacks
from profiling.trace.store import Store

SOON = 2.0
"""Seconds of this process's CPU; what is quadratic, or worse, takes minutes for the same input."""


class _Soon:
    def __enter__(self) -> None:
        self._begin = time.process_time()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert kind or time.process_time() - self._begin < SOON


def notes(path: Path) -> str:
    with Store(path) as store:
        return " ".join(note.text for note in store.notes)


@pytest.mark.parametrize(
    "head",
    [
        b"\n" * 60000 + b"x",
        b" \n" * 30000 + b"x",
        b"a" + b" " * 60000 + b"x",
        b"a " + b"1 " * 30000,
        b"a " + b"1" * 60000,
        b"#\n" * 30000 + b"a 1 1.1: x\n y",
        b"{" * 60000,
    ],
)
def test_no_beginning_of_a_file_takes_long_to_tell(head: bytes) -> None:
    with _Soon():
        other_files.told_of(head)
        other_files.looks_like(head)
        folded_stacks.PLUGIN.sniff(Path(), b"a;b" + head)


def speedscope(folder: Path, profile: dict[str, Any], frames: int) -> Path:
    path = folder / "a.speedscope.json"
    shared = {"frames": [{"name": f"f{i}"} for i in range(frames)]}
    content = {"$schema": "https://www.speedscope.app/file-format-schema.json", "shared": shared, "profiles": [profile]}
    path.write_text(json.dumps(content))
    return path


def test_frames_that_open_and_never_close_are_as_many_events_as_may_lie_in_each_other(tmp_path: Path) -> None:
    """Each event once cost as much as there were frames open."""
    events = [{"type": "O", "frame": i % 7, "at": i} for i in range(20_000)]
    events += [{"type": "C", "frame": 3, "at": 20_000}] * 10
    profile = {"type": "evented", "unit": "microseconds", "startValue": 0, "endValue": 50_000, "events": events}

    with _Soon():
        facts = import_trace(speedscope(tmp_path, profile, 7), tmp_path / "store")

    assert facts.events == 2048
    assert "frames are still open at the end" in notes(tmp_path / "store")


def test_a_stack_is_as_deep_as_stacks_are(tmp_path: Path) -> None:
    path = tmp_path / "a.folded"
    path.write_text("a;b 1\n" + ";".join(["f"] * 300_000) + " 3\n")

    assert import_trace(path, tmp_path / "store").events == 2048 + 2
