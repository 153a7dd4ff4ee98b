"""The training loop without workers: what a stop and checks that take too long do to its steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.engine import loop as loop_module
from jobs.engine.checkpoints.checkpoint import LoopState
from jobs.engine.failures.divergence import DivergenceGuards
from jobs.engine.failures.failure_cause import Diverged, RunStopped
from jobs.engine.loop import Loop, Material
from jobs.engine.rollouts.reward import Score


class ShortLoop(Loop):
    """Steps and evaluations without a rollout; `stops_in` is what is being scored when the run is told to stop."""

    stops_in: Any = None

    def _reinforce(self, step: int) -> dict[str, float]:
        self._take(2)
        self._score_or_stop(step)
        return {"reward/mean": 0.5, "reward/std": 0.0}

    def _evaluated(self, sets: Any) -> Any:
        self._score_or_stop("evaluation")
        return SimpleNamespace(metrics={"eval/reward": 0.5}, samples=[], score=0.5)

    def _score_or_stop(self, what: object) -> None:
        if what == self.stops_in:
            self.commands.is_stopping = True
            raise RunStopped

    def _probe_sync(self) -> None:
        """There is nothing to sync."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ShortLoop:
    monkeypatch.setattr(loop_module, "EngineCaptures", Mock())
    monkeypatch.setattr(loop_module, "HangWatch", Mock())
    spec = parse_spec({"knobs": {"train.num_steps": 4, "eval.every_steps": 3, "checkpoint.every_steps": 0}})
    material: Any = Material(text=Mock(), train=[Mock() for _ in range(20)], held_out=[Mock()], reward=Mock())
    return ShortLoop(
        spec=spec,
        run_dir=tmp_path,
        algorithm=Mock(),
        material=material,
        workers=Mock(generators=[], reference=None),
        report=Mock(**{"take_seconds.return_value": 0.0}),
        commands=Mock(is_stopping=False, **{"take_changes.return_value": [], "take_pins.return_value": []}),
        saver=Mock(),
        state=LoopState(step=0, num_consumed=0),
    )


def test_a_guard_ends_the_run_with_a_checkpoint_and_keeps_the_one_from_before(loop: Any) -> None:
    knobs = {"guard.kl": "stop", "guard.kl_limit": 1.0, "guard.steps": 2, "train.num_steps": 9, "eval.every_steps": 0}
    loop.spec = parse_spec({"knobs": knobs})
    loop._guards = DivergenceGuards(loop.spec)
    loop._reinforce = lambda step: {"reward/mean": 0.5, "reward/std": 0.0, "kl/reference": 0.1 if step < 5 else 7.0}
    loop.saver.hold_before.side_effect = lambda since: 4 if since else None

    with pytest.raises(
        Diverged, match=r"above 1 nats per token since step 5, 7 at step 6\. Checkpoint 4 is from"
    ) as end:
        loop.run()

    assert (loop.step, end.value.checkpoint) == (6, 4)
    loop.saver.pin.assert_called_once_with(4, is_pinned=True)
    assert loop.saver.checkpoint.call_args.args[0].step == 6
    assert [call.args[0] for call in loop.saver.hold_before.call_args_list] == [0, 0, 0, 0, 5, 5, 5]


def test_a_guard_whose_policy_is_a_note_lets_the_run_go_on(loop: Any) -> None:
    loop._guards = DivergenceGuards(parse_spec({"knobs": {"guard.kl_limit": 1.0, "guard.steps": 1}}))
    loop._reinforce = lambda _step: {"reward/mean": 0.5, "reward/std": 0.0, "kl/reference": 7.0}

    assert loop.run() is True

    assert [text for text in notes(loop) if "KL to the reference" in text] == [
        "The KL to the reference is above 1 nats per token since step 1, 7 at step 1. The knob guard.kl says what is "
        "done about it."
    ]


def notes(loop: Any) -> list[str]:
    return [call.args[0] for call in loop.report.note.call_args_list]


def test_a_stop_while_responses_are_scored_drops_the_step(loop: Any) -> None:
    loop.stops_in = 3

    assert loop.run() is False

    assert loop.step == 2
    ((state, _), _) = loop.saver.checkpoint.call_args
    assert (state.step, state.num_consumed) == (2, 4)
    assert loop.report.metrics.call_args_list[-1].kwargs["step"] == 2
    assert notes(loop) == ["Step 3 was dropped: the run was stopped while responses were scored."]


def test_a_stop_while_an_evaluation_is_scored_keeps_the_step(loop: Any) -> None:
    def evaluate(sets: Any) -> Any:
        if loop.step == 3:
            loop.stops_in = "evaluation"
        return ShortLoop._evaluated(loop, sets)

    loop._evaluated = evaluate

    assert loop.run() is False

    assert loop.step == 3
    assert loop.saver.checkpoint.call_args.args[0].step == 3
    assert notes(loop) == ["The evaluation was dropped: the run was stopped while responses were scored."]


def test_abandoned_checks_are_counted_and_noted_once(loop: Any) -> None:
    checked, abandoned = (
        Score(total=0.0, parts={}, is_right=False, is_abandoned=is_abandoned) for is_abandoned in (False, True)
    )

    assert loop._abandoned_fraction([Score(total=0.0, parts={}, is_right=False)]) == {}
    assert loop._abandoned_fraction([checked, checked]) == {"reward/abandoned_fraction": 0.0}
    assert loop._abandoned_fraction([abandoned, checked]) == {"reward/abandoned_fraction": 0.5}
    assert loop._abandoned_fraction([checked, checked]) == {"reward/abandoned_fraction": 0.0}
    assert loop._abandoned_fraction([abandoned, abandoned]) == {"reward/abandoned_fraction": 1.0}
    assert len(notes(loop)) == 1
    assert notes(loop)[0].startswith(
        "The checks of 1 of 2 responses took too long and were ended; they count as wrong."
    )
