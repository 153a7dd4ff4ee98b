"""The proof of alarms, short: the recorded runs and two of each planted fault, by this code alone."""

from functools import cache

import pytest

from jobs.diagnosis.numbers import FIRST, HORIZON
from tests.proofs.alarms import judge
from tests.proofs.alarms.__main__ import (
    LEAST_NAMED,
    MOST_FALSE,
    Answers,
    alarms,
    false_alarms,
    is_named,
    live_alarms,
    share_named,
)
from tests.proofs.alarms.corpus import RecordedRun, recorded
from tests.proofs.alarms.judge import answer, read
from tests.proofs.alarms.logs import HealthyLog, healthy_logs
from tests.proofs.alarms.planted import FAULTS, planted
from tests.proofs.alarms.varied import varied

SOLVED = ("healthy-grpo-demo-s1", "healthy-ppo", "healthy-rloo", "healthy-grpo-164-b", "healthy-grpo-lora-60-b")


@cache
def judged() -> tuple[list[RecordedRun], list[HealthyLog], Answers]:
    from jobs.catalog.rules import symptom

    runs = [*recorded(), *planted(recorded(), seed=1, per_fault=2), *varied(recorded(), seed=1)]
    logs = [log for log in healthy_logs() if log.spec["trainer"]["name"] in ("verl", "native")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(symptom, "offers", lambda *_args, **_more: ())
        asked = [one.as_question() for one in runs] + [one.as_question() for one in logs]
        return runs, logs, {one["name"]: answer(symptom, one) for one in asked}


def test_healthy_runs_raise_no_alarm() -> None:
    runs, _logs, said = judged()

    wrong = {run.name: found for run in runs if run.is_healthy and (found := alarms(run, said))}

    assert false_alarms(runs, said) <= MOST_FALSE, wrong


def test_recorded_runs_that_are_healthy_raise_none_on_their_way_either() -> None:
    runs, _logs, said = judged()
    own = [run for run in runs if run in recorded()]

    wrong = {run.name: found for run in own if run.is_healthy and (found := said[run.name]["first"])}

    assert live_alarms(own, said) <= MOST_FALSE, wrong


def test_logs_of_what_works_raise_no_alarm() -> None:
    _runs, logs, said = judged()

    assert {log.name: found for log in logs if (found := alarms(log, said))} == {}


def test_the_judge_reads_the_values_that_the_console_reads() -> None:
    every: list[list[float]] = [[step, float(step)] for step in range(1, 4001)]
    seldom = every[9::10]

    assert read("reward/mean", every, 900) == [float(step) for step in range(1, 901)]
    assert read("reward/mean", every, 4000) == [float(step) for step in [*range(1, FIRST + 1), *range(2500, 4001)]]
    assert read("reward/mean", seldom, 4000) == [float(step) for step in range(10, 4001, 10)]
    assert read("reward/mean", every[:2000], 4000) == []  # told no longer
    assert read("eval/loss", every[499:1000:500], 4000) == [500.0, 1000.0]
    assert (judge.HORIZON, judge.FIRST) == (HORIZON, FIRST)


@pytest.mark.parametrize("name", SOLVED)
def test_a_run_that_has_solved_its_task_says_so_first_and_nothing_else(name: str) -> None:
    _runs, _logs, said = judged()

    tones = said[name]["end"]

    assert next(iter(tones)) == "learning.solved"
    assert [tone for tone in tones.values() if tone != "hint"] == ["good"]


def test_what_went_wrong_by_itself_is_named() -> None:
    runs, _logs, said = judged()

    assert [run.name for run in runs if run.expected and not run.planted and not is_named(run, said)] == []


def test_planted_faults_are_named() -> None:
    runs, _logs, said = judged()

    missed = [run.name for run in runs if run.planted and not is_named(run, said)]

    assert {run.planted for run in runs if run.planted} == set(FAULTS)
    assert share_named(runs, said) >= LEAST_NAMED, missed
