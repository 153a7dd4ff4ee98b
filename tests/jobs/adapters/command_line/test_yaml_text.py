"""Pasted YAML: aliases are followed as far as a text that people write has them."""

import time

import pytest

from jobs.adapters.command_line.yaml_text import yaml_of

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_parts_that_are_repeated_are_written_out() -> None:
    text = "base: &base {lr: 1e-5, seed: 1}\nsft:\n  <<: *base\n  seed: 2\nmodules: &m [q, v]\nmore: *m\n"

    found = yaml_of(text)

    assert isinstance(found, dict)
    assert (found["sft"], found["more"]) == ({"lr": "1e-5", "seed": 2}, ["q", "v"])


@pytest.mark.parametrize("text", [LAUGHS, MERGED, "a: &a [*a]\n", "a: &a\n  b: *a\n"])
def test_a_text_that_says_more_than_fits_is_refused_soon(text: str) -> None:
    began = time.monotonic()

    with pytest.raises(ValueError, match="repeats parts of itself"):
        yaml_of(text)

    assert time.monotonic() - began < 15
