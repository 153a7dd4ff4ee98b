"""What lines are held against: RE2's expressions, the texts that a match is sure to have, and levels of lines."""

import pytest

from jobs.catalog.log_level import PATTERNS
from jobs.telemetry.line_pattern import LinePattern, PatternInvalid, level_pattern, literals_of


@pytest.mark.parametrize(
    ("expression", "literals"),
    [
        (r"CUDA error: .* at \w+\.cu:\d+", (("CUDA error: ", " at ", ".cu:"),)),
        (r"^rank \d+ joins$", (("rank ", " joins"),)),
        ("lost|found", (("lost",), ("found",))),
        ("lost|x", ()),
        ("foo?bar+baz", (("bar", "baz"),)),
        ("x{3}abcd{0,2}", (("abc",),)),
        ("(abc|d)efg", (("efg",),)),
        ("(a(b[)]c)*)?efg", (("efg",),)),
        ("[[:alpha:]]]abc[^]x]def", (("abc", "def"),)),
        (r"\x41bcd", ()),
        ("ab", ()),
    ],
)
def test_literals_are_those_that_every_match_has(expression: str, literals: tuple[tuple[str, ...], ...]) -> None:
    assert literals_of(expression) == literals


def test_a_line_is_matched_from_its_begin_to_its_end_without_regard_to_case() -> None:
    pattern = LinePattern("^b.$")

    assert pattern.in_text("a\nBx\nc")
    assert pattern.matching(["a", "Bx", "bxx"]) == [1]
    assert not pattern.in_text("abx\nbxx")
    assert LinePattern(r"\Ab").in_text("a\nb")  # the text's own begin is a line's: the text cannot tell
    assert LinePattern("100% (Ü)", is_expression=False).matching(["100% (ü)", "100"]) == [0]


@pytest.mark.parametrize(("text", "reason"), [("layer_[0-", "missing ]"), (r"(a)\1", "invalid escape")])
def test_what_is_no_expression_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(PatternInvalid, match=reason) as refused:
        LinePattern(text)
    assert "(?" not in str(refused.value)  # what is put before it is none of theirs


def test_an_expression_that_takes_python_for_ever_is_answered() -> None:
    assert not LinePattern("(a+)+$").in_text("a" * 5000 + "!")


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("(EngineCore_0 pid=812) ERROR 11-20 12:00:00 [core.py:700] gone", "error"),
        ("\x1b[36m(PolicyActor pid=812, ip=10.0.0.5)\x1b[0m [rank1]: MemoryError", "error"),
        ("torch.OutOfMemoryError: CUDA out of memory", "error"),
        ("Traceback (most recent call last):", "error"),
        ("E1120 12:00:00.123000 812 torch/x.py:42] gone", "error"),
        ("(x pid=1) W1120 12:00:00.1 8 x] slow", "warning"),
        ("lib/x.py:3: UserWarning: old", "warning"),
        ("2026-11-20 WARNING slow", "warning"),
        ("INFO 0 errors, no Error: at all", ""),
        ("step 3 of 10", ""),
    ],
)
def test_the_level_of_a_line(line: str, level: str) -> None:
    matching = {name for name, pattern in PATTERNS.items() if level_pattern(pattern).in_text(line)}

    assert matching == {"error": {"error", "warning"}, "warning": {"warning"}, "": set()}[level]
