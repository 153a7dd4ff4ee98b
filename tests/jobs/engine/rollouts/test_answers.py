"""Which part of a response is its answer, and which answers are the same: by text and numbers, else by math-verify."""

import json
import subprocess
import sys

import pytest

from jobs.engine.rollouts.answers import MOST_CHARS, expected_answer, given_answer, last_box, number, quick_equal
from jobs.engine.rollouts.math_check import is_equal

EQUAL = [
    # fractions and decimals
    (r"\frac{1}{2}", "0.5"),
    (r"\frac{1}{2}", "1/2"),
    ("1/2", r"\dfrac12"),
    (r"\frac{3}{6}", r"\frac12"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"3\frac{1}{2}", "3.5"),
    (r"3\frac{1}{2}", r"\frac{7}{2}"),
    ("1/3", "0.333333"),
    ("5", "5.0"),
    ("5", "05"),
    (".5", "0.5"),
    ("-1", "- 1"),
    ("5", "5."),
    # percentages: of the number, and of its hundredth
    (r"50\%", "0.5"),
    (r"50\%", "50"),
    ("50", "50%"),
    (r"50\%", r"\frac{1}{2}"),
    (r"12.5\%", "12.5 percent"),
    (r"16\frac{2}{3}\%", r"\frac{1}{6}"),
    # thousands
    ("1,234,567", "1234567"),
    (r"1{,}234", "1234"),
    ("1,234.5", "1234.5"),
    (r"1\,234", "1234"),
    (r"10,\!080", "10080"),
    # units and currency
    (r"5\text{ meters}", "5"),
    (r"5\text{ cm}", "5 cm"),
    (r"10\text{ cm}^2", "10"),
    (r"6 \mbox{ inches}", "6"),
    (r"90^\circ", "90"),
    (r"\$1,500", "1500"),
    ("$5", "5"),
    # sets, tuples, intervals
    (r"\{1,2,3\}", r"\{3, 2, 1\}"),
    (r"\{1,2,3\}", "3,2,1"),
    ("10,11", "11, 10"),
    (r"2\text{ and }3", "2,3"),
    (r"\emptyset", r"\{\}"),
    ("(1,2)", "(1, 2)"),
    ("(1,2,3)", r"\left(1, \frac{4}{2}, 3\right)"),
    (r"[0,\infty)", r"\left[0, +\infty\right)"),
    (r"(-\infty,0)\cup(1,\infty)", r"(1,\infty)\cup(-\infty,0)"),
    (r"x \ge 2", r"[2,\infty)"),
    # algebra
    (r"\sqrt{12}", r"2\sqrt{3}"),
    (r"\frac{\sqrt3}{3}", r"\frac{1}{\sqrt 3}"),
    (r"\pi/2", r"\frac{\pi}{2}"),
    ("2^{10}", "1024"),
    (r"3\cdot 10^5", "300000"),
    ("x^2+2x+1", "(x+1)^2"),
    ("x=5", "5"),
    ("5", "x = 5"),
    (r"1 \pm \sqrt{2}", r"1+\sqrt2, 1-\sqrt2"),
    (r"\frac{1}{2} + i", r"i+\frac12"),
    (r"\begin{pmatrix}1\\ 2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    # text
    (r"\text{Monday}", "monday"),
    (r"\text{no solution}", "No solution."),
    (r"\textbf{(A)}", "A"),
    (r"\text{(A)}", "(A)"),
    ("yes", r"\text{Yes}"),
    ("星期一", "星期一"),
    # set in a formula
    ("$5$", "5"),
    (r"\(\frac{1}{2}\)", r"$\displaystyle \tfrac{1}{2}$"),
]
DIFFERENT = [
    (r"\frac{1}{2}", r"\frac{1}{3}"),
    ("1/3", "0.33"),
    (r"\pi", "3.14"),
    ("100", "1000"),
    ("1234", "1,235"),
    ("5", "-5"),
    (r"50\%", "5"),
    (r"50\%", "0.05"),
    (r"5\text{ cm}", r"6\text{ cm}"),
    (r"\{1,2,3\}", r"\{1,2\}"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("(1,2,3)", "(1,3,2)"),
    (r"[0,\infty)", r"(0,\infty)"),
    (r"\sqrt{12}", r"2\sqrt{2}"),
    ("x^2+2x+1", "(x-1)^2"),
    ("x=5", "y=5"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    (r"\text{Monday}", r"\text{Tuesday}"),
    ("tea", "eat"),  # words, no products
    (r"\text{(A)}", "B"),
    (r"\text{no solution}", "5"),
    ("yes", "no"),
    ("1 2", "12"),
    ("5", ""),
    ("5", r"\frac{1"),
    ("5", "5" * (MOST_CHARS + 1)),
]
HOSTILE = [
    r"\boxed{" * 20_000,
    r"\boxed{" * 20_000 + "5" + "}" * 20_000,
    r"\boxed{ " * 10_000 + r"\boxed{}" * 10_000,
    "#### 5" + " *" * 20_000 + "x",
    "#### 5" + " " * 40_000 + "x",
    "####" * 20_000 + "," * 40_000,
    "#### " + "1" * 200_000 + "x",
    "answer: " * 20_000,
    "answer" + "*" * 40_000 + " " * 40_000 + "x",
    "final " * 20_000 + "answer is",
    r"\(" * 20_000 + r"\) " * 20_000 + "x",
    "$" * 40_000 + "x",
    "#### 5" + "." * 40_000 + " I hope it is correct" * 2_000,
]


OURS = {("tea", "eat"), (r"1\,234", "1234")}
"""Which math-verify takes for products."""


def are_equal(expected: str, given: str) -> bool:
    quick = quick_equal(expected, given)
    return is_equal(expected, given) if quick is None else quick


@pytest.mark.parametrize(("expected", "given"), EQUAL)
def test_equal_answers(expected: str, given: str) -> None:
    assert are_equal(expected, given)


@pytest.mark.parametrize(("expected", "given"), DIFFERENT)
def test_different_answers(expected: str, given: str) -> None:
    assert not are_equal(expected, given)


@pytest.mark.parametrize(("expected", "given"), [*EQUAL, *DIFFERENT])
def test_what_is_decided_without_algebra_is_decided_alike(expected: str, given: str) -> None:
    quick = quick_equal(expected, given)

    if quick is not None and (expected, given) not in OURS and given.isascii() and len(given) <= MOST_CHARS:
        assert is_equal(expected, given) is quick


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{54}", "54"),
        (r"\boxed{1}, no: \boxed{2}", "2"),
        (r"\boxed{\frac{1}{\sqrt{2}}} is it", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{x = \fbox{5}}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed 7", "7"),
        (r"\boxed{5} and \boxed{6", "5"),  # cut at the longest response
        (r"\boxed{5}, \boxed{}", "5"),
        ("no box", ""),
        (r"\boxed", ""),
    ],
)
def test_the_last_box_that_is_closed_counts(text: str, box: str) -> None:
    assert last_box(text) == box


@pytest.mark.parametrize(
    ("response", "text", "is_marked"),
    [
        ("#### Monday", "Monday", True),
        ("#### 44 no, #### Monday\nbecause", "Monday", True),
        ("#### Monday \\boxed{Tuesday}", "Monday \\boxed{Tuesday}", True),
        (r"it is $3$, \boxed{4}. The final answer is 5", "4", True),
        ("The final answer is $5$. I hope it is correct.", "$5$", False),
        ("**Final Answer:** 5.", "5", False),
        ("Answer: The final answer is 5", "5", False),
        ("Answer: 4\nAnswer: 5", "5", False),
        (r"it is $3$, so $x = 5$.", "x = 5", False),
        (r"hence \[ x = 5 \]", " x = 5 ", False),
        (r"hence \(5\)", "5", False),
    ],
)
def test_what_a_response_gives_as_its_answer(response: str, text: str, is_marked: bool) -> None:
    answer = given_answer(response, is_number=False)

    assert answer is not None
    assert (answer.text, answer.is_marked) == (text, is_marked)


@pytest.mark.parametrize("response", ["", "The answer is 54.", "54", "####", "#### ", "it is $5$, I think", "costs $5"])
def test_a_response_may_give_none(response: str) -> None:
    assert given_answer(response, is_number=False) is None


@pytest.mark.parametrize("response", ["#### apples", "#### -", "#### $"])
def test_words_behind_the_mark_are_no_number(response: str) -> None:
    assert given_answer(response, is_number=True) is None


def test_no_response_takes_more_than_its_length_in_time_memory_or_depth() -> None:
    """A model that repeats itself writes such texts. What is not linear in them takes minutes, or many GiB."""
    program = (
        "import resource, sys, json\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "from jobs.engine.rewards.format import FormatReward\n"
        "from jobs.engine.rollouts.answers import expected_answer, given_answer, marked_number, quick_equal\n"
        "from jobs.engine.rollouts.reward import Completion\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "for text in json.load(sys.stdin):\n"
        "    for is_number in (True, False):\n"
        "        given_answer(text, is_number=is_number)\n"
        "    marked_number(text), quick_equal('5', expected_answer(text))\n"
        "    FormatReward().score([Completion(prompt='', completion=text, answer='5')])\n"
    )

    ended = subprocess.run([sys.executable, "-c", program], input=json.dumps(HOSTILE), text=True, capture_output=True)

    assert ended.returncode == 0, ended.stderr[-2000:]


def test_the_innermost_box_of_very_many_is_found() -> None:
    assert last_box(r"\boxed{" * 5000 + "5" + "}" * 5000) == "5"
    assert last_box(r"\boxed{a \boxed}") == r"a \boxed"


def test_a_word_that_python_takes_for_a_number_is_a_word() -> None:
    assert number("Infinity") is None
    answer = given_answer("#### infinity", is_number=number("Infinity") is not None)
    assert answer is not None
    assert quick_equal("Infinity", answer.text)


def test_the_expected_answer_may_end_a_worked_solution() -> None:
    assert expected_answer("2+3=5\n#### 5") == "5"
    assert expected_answer(r"It is $2+3=\boxed{5}$.") == "5"
    assert expected_answer(" \\frac{1}{2}\n") == r"\frac{1}{2}"
