"""Sentences are texts, and can be said in another language."""

import copy
import json

import pytest

from jobs.catalog.sentence import Sentence, in_words, sentence_of
from jobs.catalog.spec.parse import SpecInvalid, parse_spec

GERMAN = {
    "{value} is not allowed for {label}. Use {allowed}.": "{label}: nicht {value}, sondern {allowed}.",
    "a whole number from {low} to {high}": "eine ganze Zahl von {low} bis {high}",
    "Steps": "Schritte",
}


def german(text: str) -> str:
    return GERMAN.get(text, text)


def test_a_sentence_is_the_text_that_it_makes() -> None:
    made = Sentence("{what} of {many}", what="one", many=3)

    assert made == "one of 3"
    assert json.dumps({"said": made}) == '{"said": "one of 3"}'
    assert copy.deepcopy(made).template == made.template


def test_a_sentence_of_one_says_it_as_one() -> None:
    made = Sentence("{n} retries are asked for.", n=1)

    assert made == in_words(made, str) == "1 retry is asked for."


def test_a_text_without_values_keeps_its_braces() -> None:
    assert Sentence("write ${x} and {y}") == "write ${x} and {y}"
    assert in_words(Sentence("write {y}"), german) == "write {y}"


def test_values_that_are_sentences_are_said_too_and_what_people_typed_is_not() -> None:
    made = Sentence(
        "{value} is not allowed for {label}. Use {allowed}.", value="Steps", label=Sentence("Steps"), allowed="3"
    )

    assert in_words(made, german) == "Schritte: nicht Steps, sondern 3."


def test_what_a_value_has_in_braces_is_no_place() -> None:
    made = Sentence("{value} is not allowed for {label}. Use {allowed}.", value="'{label}'", label="x", allowed="{0}")

    assert made == "'{label}' is not allowed for x. Use {0}."
    assert in_words(made, german) == "x: nicht '{label}', sondern {0}."


def test_nothing_is_said_as_nothing() -> None:
    assert in_words("", lambda _text: "the header of the catalogue") == ""


def test_an_error_still_has_the_sentence_it_was_raised_with() -> None:
    made = Sentence("{value} is not a number.", value="x")

    assert sentence_of(ValueError(made)) is made
    assert sentence_of(KeyError("a", "b")) == "('a', 'b')"


def test_the_validator_s_sentences_can_be_said_whole() -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({"knobs": {"train.num_steps": 0.5}})

    (problem,) = refused.value.problems
    assert problem.message == "0.5 is not allowed for Steps. Use a whole number from 1 to 1,000,000."
    assert in_words(problem.message, german) == "Schritte: nicht 0.5, sondern eine ganze Zahl von 1 bis 1,000,000."
