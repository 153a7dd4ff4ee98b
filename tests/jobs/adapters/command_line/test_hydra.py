"""Overrides are written so that Hydra reads the same value, and are read as Hydra reads them."""

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from jobs.adapters.command_line.hydra import Interpolation, override, read, read_value

PARSER = OverridesParser.create()
TEXTS = st.text(alphabet=st.sampled_from(list("ab1 .'\"\\${}[](),:=#~!&é\n\t-+e_/%*")), max_size=12) | st.text(
    max_size=8
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def as_hydra_reads(word: str) -> Any:
    """Return the value that a config gets of a word."""

    def bare(value: Any) -> Any:
        if isinstance(value, QuotedString):
            return value.text
        if isinstance(value, list):
            return [bare(item) for item in value]
        if isinstance(value, dict):
            return {bare(key): bare(item) for key, item in value.items()}
        return value

    config = OmegaConf.create({"key": bare(PARSER.parse_override(word).value())})
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return plain["key"]


@given(VALUES)
def test_what_is_written_is_what_hydra_reads_and_what_we_read(value: Any) -> None:
    word = override("a.key", value)

    assert as_hydra_reads(word) == value
    assert read(word).value == value
    assert type(read(word).value) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("a:b", "s3://bucket/x", "a b", "3e-4", "1_000", ".5", "1.", "inf", "null", "True", "'a'", '"it\'s"'),
        *("[1,'2',x y]", "{a:1,b:{c:[2]}}", "a\\,b", "[]", "{}", "", "-1", "['console','file']", "{a:b:c}", "a@b"),
    ],
)
def test_words_of_people_mean_what_hydra_says(text: str) -> None:
    assert read(f"key={text}").value == as_hydra_reads(f"key={text}")


@pytest.mark.parametrize(("word", "mark", "key"), [("+a.b=1", "+", "a.b"), ("++a=1", "++", "a"), ("~a.b", "~", "a.b")])
def test_marks_are_told_apart_from_keys(word: str, mark: str, key: str) -> None:
    assert (read(word).mark, read(word).key) == (mark, key)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("a=1,2", "a sweep"),
        ("a=choice(1,2)", "function"),
        ("a", "has no value"),
        ("a='open", "closing"),
        ("a=[1,2", "lacks"),
        ("=1", "key=value"),
        ("a=b'c", "quotes"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(word: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read(word)


def test_an_interpolation_is_not_a_text() -> None:
    assert isinstance(read_value("${data.max_prompt_length}"), Interpolation)
    assert not isinstance(read_value(r"'\${data.max_prompt_length}'"), Interpolation)
