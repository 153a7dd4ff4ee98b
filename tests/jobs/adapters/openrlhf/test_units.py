"""Conversions between our units and those of other trainers are exact, both ways."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.openrlhf.units import (
    OFF_IS_MINUS_ONE,
    SAMPLES_PER_UPDATE,
    TOTAL_LENGTH,
    WANDB_KEY,
    listed,
    plain_number,
    whole,
)

PROMPTS, SAMPLES, ANSWER = "rollout.prompts_per_step", "rollout.samples_per_prompt", "rollout.max_new_tokens"


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_updates_per_rollout_are_samples_per_update_and_back(per_update: int, samples: int, updates: int) -> None:
    values = {PROMPTS: per_update * updates, SAMPLES: samples}

    theirs = SAMPLES_PER_UPDATE.write(values, updates)

    assert theirs == per_update * samples
    assert SAMPLES_PER_UPDATE.read(values, str(theirs)) == updates


def test_a_batch_that_does_not_divide_the_rollout_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match="96 samples per update do not divide the 128 samples"):
        SAMPLES_PER_UPDATE.read({PROMPTS: 16, SAMPLES: 8}, "96")


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_length_together_is_a_length_apart_and_back(prompt: int, answer: int) -> None:
    theirs = TOTAL_LENGTH.write({ANSWER: answer}, prompt)

    assert TOTAL_LENGTH.read({ANSWER: answer}, str(theirs)) == prompt


def test_a_length_without_room_for_the_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="are not more than the 1024"):
        TOTAL_LENGTH.read({ANSWER: 1024}, "1024")


@pytest.mark.parametrize(("ours", "theirs"), [(0, -1), (1, 1), (500, 500)])
def test_never_is_zero_here_and_minus_one_there(ours: int, theirs: int) -> None:
    assert OFF_IS_MINUS_ONE.write({}, ours) == theirs
    assert OFF_IS_MINUS_ONE.read({}, str(theirs)) == ours


def test_a_key_becomes_a_stand_in_and_only_its_being_there_is_read() -> None:
    assert WANDB_KEY.write({}, True) == "WANDB_API_KEY"
    assert WANDB_KEY.write({}, False) is None
    assert WANDB_KEY.read({}, "anything") is True


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_every_number_is_one_to_argparse_and_keeps_its_value(number: float, is_pair: bool) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--x", type=float, nargs=2 if is_pair else None)
    word = plain_number(number)

    found = parser.parse_args(["--x", word, word] if is_pair else ["--x", word]).x

    assert found == ([number, number] if is_pair else number)


@pytest.mark.parametrize(("text", "number"), [("1e8", 10**8), ("12", 12), ("-1", -1), ("100000000.0", 10**8)])
def test_whole_numbers_are_read_as_trainers_write_them(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", ["1.5", "many", "inf", "nan", ""])
def test_what_is_no_whole_number_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        whole(text)


def test_several_words_are_divided_by_commas() -> None:
    assert listed(" q_proj, k_proj,,v_proj ") == ["q_proj", "k_proj", "v_proj"]
