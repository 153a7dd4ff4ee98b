"""Expressions of rules: what they compute, and what they refuse to be."""

from typing import Any

import pytest

from jobs.catalog.rules.expression import ExpressionInvalid, NotApplicable, parse_expression

VALUES = {"train.batch_size": 12, "async.enable": True, "rollout.backend": "vllm", "data.seed": None, "is.rl": True}


def look(name: str) -> Any:
    if name not in VALUES:
        raise NotApplicable(name)
    return VALUES[name]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("train.batch_size % 5 == 2", True),
        ("1 < train.batch_size <= 12", True),
        ("rollout.backend not in ['sglang', 'trtllm']", True),
        ("async.enable and is.rl", True),
        ("data.seed or 42", 42),
        ("data.seed == None", True),
        ("get(train.micro_batch_size, 8)", 8),
        ("get(train.batch_size, 8)", 12),
        ("has(train.batch_size) and not has(train.micro_batch_size)", True),
        ("train.batch_size // 5 if is.rl else 0", 2),
        ("ceil(train.batch_size / 5)", 3),
        ("words('cpu, cuda,') == ['cpu', 'cuda']", True),
        ("all_in(words('cpu,gpu'), ['cpu', 'cuda'])", False),
        ("max(-train.batch_size, 3)", 3),
    ],
)
def test_an_expression_has_the_value_that_it_says(text: str, value: object) -> None:
    assert parse_expression(text).value(look) == value


@pytest.mark.parametrize("text", ["train.micro_batch_size > 1", "data.seed + 1", "1 / (train.batch_size - 12)"])
def test_what_the_run_does_not_have_or_has_not_set_makes_an_expression_not_apply(text: str) -> None:
    with pytest.raises(NotApplicable):
        parse_expression(text).value(look)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "train.batch_size.__class__()",
        "[x for x in (1,)]",
        "lambda: 1",
        "open('/etc/passwd')",
        "get(1, 2)",
        "has(train.batch_size, 1)",
        "max(1, key=2)",
        "1 +",
    ],
)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(ExpressionInvalid):
        parse_expression(text)


def test_an_expression_names_what_it_reads() -> None:
    names = parse_expression("get(async.enable, False) and train.batch_size > 1 and is.rl").names

    assert names == ("async.enable", "train.batch_size", "is.rl")
