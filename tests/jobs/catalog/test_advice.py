"""Advice answers four questions, names knobs that there are, and says whose it is."""

import re
from pathlib import Path

import pytest

from jobs.catalog.advice import EVIDENCE, QUESTIONS, Advice, advice, by_question
from jobs.catalog.knob import knobs

ALL = list(advice().values())
SAID = '[a]\ntitle = "A"\nwhen = "B"\nchanges = []\neffect = {}\nevidence = "stated"\nsource = "C"\n'


def test_every_question_has_answers() -> None:
    assert {question: bool(found) for question, found in by_question().items()} == dict.fromkeys(QUESTIONS, True)
    assert sum(len(found) for found in by_question().values()) == len(ALL)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_piece_of_advice_says_when_what_and_whose(one: Advice) -> None:
    assert one.title
    assert one.when.endswith(".")
    assert one.source
    assert one.evidence in EVIDENCE
    assert one.effect or not one.changes


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_the_knobs_of_advice_are_there_for_those_whom_it_is_given(one: Advice) -> None:
    for change in one.changes:
        knob = knobs()[change.knob]
        assert change.to
        assert set(knob.algorithms) & set(one.algorithms)
        assert not one.trainers or set(knob.trainers) & set(one.trainers)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SAID + "colour = 1", "too_slow.a: advice has no key 'colour'"),
        (SAID.replace('"stated"', '"rumor"'), "too_slow.a: 'rumor' is no grade of evidence"),
        (SAID.replace("effect = {}", 'effect = { beauty = "more" }'), "too_slow.a: 'beauty' is no effect"),
        (SAID + 'trainers = ["nobody"]', "too_slow.a: there is no trainer 'nobody'"),
        (SAID.replace("[]", '[{ knob = "x.y", to = "1" }]'), "too_slow.a: there is no knob 'x.y'"),
    ],
)
def test_a_bad_piece_is_named(text: str, says: str, other_catalogue: Path) -> None:
    folder = other_catalogue / "advice"
    folder.mkdir()
    for question in QUESTIONS:
        (folder / f"{question}.toml").write_text(text if question == "too_slow" else "")

    with pytest.raises(ValueError, match=re.escape(says)):
        advice.__wrapped__()
