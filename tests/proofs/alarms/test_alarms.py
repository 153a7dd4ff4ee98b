"""The proof of alarms, short: the recorded runs and two of each planted fault, by this code alone."""

from functools import cache

import pytest

from tests.proofs.alarms.__main__ import LEAST_NAMED, MOST_FALSE, Answers, alarms, false_alarms, is_named, share_named
from tests.proofs.alarms.corpus import RecordedRun, recorded
from tests.proofs.alarms.judge import answer
from tests.proofs.alarms.planted import FAULTS, planted
from tests.proofs.alarms.varied import varied

SOLVED = ("healthy-grpo-demo-s1", "healthy-ppo", "healthy-rloo", "healthy-grpo-164-b", "healthy-grpo-lora-60-b")


@cache
def judged() -> tuple[list[RecordedRun], Answers]:
    from jobs.catalog.rules import symptom

    runs = [*recorded(), *planted(recorded(), seed=1, per_fault=2), *varied(recorded(), seed=1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symptom, "offers", lambda *_args, **_more: ())
        return runs, {run.name: answer(symptom, run.as_question(), prefixes=2) for run in runs}


def test_healthy_runs_raise_no_alarm() -> None:
    runs, said = judged()

    wrong = {run.name: found for run in runs if run.is_healthy and (found := alarms(run, said))}

    assert false_alarms(runs, said) <= MOST_FALSE, wrong


@pytest.mark.parametrize("name", SOLVED)
def test_a_run_that_has_solved_its_task_says_so_first_and_nothing_else(name: str) -> None:
    _runs, said = judged()

    tones = said[name]["end"]

    assert next(iter(tones)) == "learning.solved"
    assert [tone for tone in tones.values() if tone != "hint"] == ["good"]


def test_what_went_wrong_by_itself_is_named() -> None:
    runs, said = judged()

    assert [run.name for run in runs if run.expected and not run.planted and not is_named(run, said)] == []


def test_planted_faults_are_named() -> None:
    runs, said = judged()

    missed = [run.name for run in runs if run.planted and not is_named(run, said)]

    assert {run.planted for run in runs if run.planted} == set(FAULTS)
    assert share_named(runs, said) >= LEAST_NAMED, missed
