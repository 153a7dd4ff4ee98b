"""Knobs changed while the run trains, without workers: when, where, and what is said of it."""

import importlib
import json
from pathlib import Path
from unittest.mock import Mock, call

from jobs.catalog.role import ROLES
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.command_inbox import CommandInbox
from jobs.engine.live_changes import LiveChanges

RATE = "optimizer.learning_rate"


def command(path: Path, number: int, **knobs: object) -> None:
    ids = {"rate": RATE, "kl": "algorithm.kl_coefficient", "temperature": "rollout.temperature"}
    payload = {"knobs": {ids[name]: value for name, value in knobs.items()}}
    with path.open("a") as file:
        file.write(json.dumps({"number": number, "verb": "set", "payload": payload}) + "\n")


def changes_of(spec: RunSpec, path: Path) -> tuple[LiveChanges, CommandInbox, Mock, Mock]:
    commands, workers, report = CommandInbox(path), Mock(), Mock()
    workers.all.return_value = [Mock(), Mock()]
    return LiveChanges(spec=spec, workers=workers, report=report, commands=commands), commands, workers, report


def test_all_workers_have_the_changed_spec_before_the_step_begins(tmp_path: Path) -> None:
    spec, path = parse_spec({}), tmp_path / "commands.jsonl"
    changes, commands, workers, report = changes_of(spec, path)
    assert changes.take(spec, step=1) is spec
    command(path, 4, rate=1e-3)
    command(path, 5, temperature=0.7)
    commands.poll()

    after = changes.take(spec, step=2)

    assert (after.knob(RATE), after.knob("rollout.temperature")) == (1e-3, 0.7)
    for worker in workers.all():
        assert worker.call.call_args_list == [call("take_spec", after, step=2)]
    workers.gather.assert_called_once()
    first = report.note.call_args_list[0]
    assert first.args == ("Learning rate 3e-4 → 0.001, from step 2 on",)
    assert first.kwargs == {
        "step": 2,
        "knobs": {"command": 4, "changes": [{"knob": RATE, "old": 0.0003, "new": 0.001}]},
    }
    assert changes.take(after, step=3) is after


def test_a_change_that_is_so_already_asks_no_worker_and_is_still_answered(tmp_path: Path) -> None:
    spec, path = parse_spec({}), tmp_path / "commands.jsonl"
    changes, commands, workers, report = changes_of(spec, path)
    command(path, 4, temperature=1.0)
    commands.poll()

    assert changes.take(spec, step=2) == spec

    workers.gather.assert_not_called()
    assert report.note.call_args.kwargs["knobs"] == {"command": 4, "changes": []}


def test_what_cannot_be_is_refused_with_a_sentence_and_changes_nothing(tmp_path: Path) -> None:
    spec, path = parse_spec({"knobs": {"algorithm.kl_coefficient": 0}}), tmp_path / "commands.jsonl"
    changes, commands, workers, report = changes_of(spec, path)
    command(path, 4, kl=0.1)
    commands.poll()

    assert changes.take(spec, step=2) is spec

    workers.gather.assert_not_called()
    assert "that needs the role reference" in report.note.call_args.kwargs["knobs"]["refused"]


def test_every_role_of_the_built_in_trainer_takes_changed_knobs() -> None:
    for role in ROLES.values():
        if role.worker:
            module, _, name = role.worker.partition(":")
            assert callable(getattr(getattr(importlib.import_module(module), name), "take_spec", None)), role.id
