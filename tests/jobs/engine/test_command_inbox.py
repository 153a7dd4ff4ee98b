"""Commands from the console."""

import os
import signal
from pathlib import Path

from jobs.engine.command_inbox import CommandInbox


def test_commands_are_read_once_and_a_torn_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "commands.jsonl"
    commands = CommandInbox(path)
    commands.poll()

    path.write_bytes(b'{"number": 1, "verb": "checkpoint", "payload": {}}\n{"number": 2, "verb": "st')
    commands.poll()
    assert commands.take_checkpoint()
    assert not commands.take_checkpoint()
    assert not commands.is_stopping

    with path.open("ab") as file:
        file.write(b'op", "payload": {}}\n')
    commands.poll()
    assert commands.is_stopping
    assert not commands.take_checkpoint()


def test_what_is_no_command_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "commands.jsonl"
    path.write_bytes(b'nonsense\n[]\n{"verb": "dance"}\n')
    commands = CommandInbox(path)

    commands.poll()

    assert not commands.is_stopping
    assert not commands.take_checkpoint()


def test_what_is_asked_for_and_withdrawn_is_taken_once(tmp_path: Path) -> None:
    path = tmp_path / "commands.jsonl"
    path.write_text(
        '{"number": 1, "verb": "profile", "payload": {"capture": "a"}}\n'
        '{"number": 2, "verb": "withdraw", "payload": {"capture": "a"}}\n{"number": 3, "verb": "withdraw"}\n'
    )
    commands = CommandInbox(path)

    commands.poll()

    assert commands.take_captures() == [("profile", {"capture": "a"}), ("withdraw", {"capture": "a"})]
    assert commands.take_captures() == []


def test_sigterm_means_stop(tmp_path: Path) -> None:
    commands = CommandInbox(tmp_path / "commands.jsonl")
    before = signal.getsignal(signal.SIGTERM)
    try:
        commands.watch_signals()
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert commands.is_stopping
