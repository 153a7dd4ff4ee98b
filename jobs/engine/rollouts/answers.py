r"""Answers of mathematical tasks as text: which part of a response is its answer, and comparisons that need no algebra.

A model may write anything, and what reads it here runs in the driver: it takes time and memory in proportion to the
length of the text, whatever stands in it.

A response gives its answer behind `#### `, in `\boxed{...}`, after *Final answer is* or *Answer:*, or in a formula at
its very end. What cannot be compared here is left to math-verify (math_check.py), which takes milliseconds to seconds.
"""

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction

MOST_CHARS = 1000
"""Of an answer; a longer one is none. Parsers of formulas take more than linear time."""
_PLACES = 6  # decimals that have to agree, as math-verify compares floats

_MARKED = re.compile(r"####\s*\$?(-?[\d,]*\.?\d+)")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_ANNOUNCED = re.compile(r"\b(?:final\s+answer\s+is\b:?|answer\**\s*:)\**\s*(?=\S)", re.IGNORECASE)
_BRACE = re.compile(r"(?<!\\)[{}]")
_FORMULA = re.compile(r"(?:\$\$([^$]+)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\])[\s.*]*\Z", re.DOTALL)
_HOPE = "i hope it is correct"

_WRAPPED = re.compile(
    r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]|\\(?:text|textbf|mathrm|mathbf|mbox)\{([^{}]*)\}", re.DOTALL
)
_SPACING = re.compile(r"(?<!\\)(?:\\(?:left|right|quad|qquad|displaystyle)(?![a-zA-Z])|\\[,;: ]|~)")
_LOOSE_SPACE = re.compile(r"(?<!\w)\s|\s(?!\w)")
_FRACTION_NAMES = re.compile(r"\\[dtc]frac")
_PERCENT = re.compile(r"\s*(?:\\?%|\\?\s?percent)\Z", re.IGNORECASE)
_NUMBER = r"(?:\d{1,3}(?:(?:,|\{,\}| )\d{3})+|\d+)?(?:\.\d+)?"
_PLAIN = re.compile(rf"([+-]?)\s?(?:\\?\$\s?)?([+-]?)\s?({_NUMBER})")
_SLASHED = re.compile(r"([+-]?)\s?(\d+)\s?/\s?(\d+)")
_LATEX_FRACTION = re.compile(r"([+-]?)\s?\\frac\s?(?:\{(\d+)\}|(\d))\s?(?:\{(\d+)\}|(\d))")
_WORDS = re.compile(r"(?=.*[^\W\d_]{3})[^\W\d_]+(?:[\s'-]+[^\W\d_]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """The answer of a response; `is_marked` where it stands in one of the two forms that training asks for."""

    text: str
    is_marked: bool


def number(text: str) -> Decimal | None:
    """Return the number that `text` is (1,234 and 1234.0 are the same one), or None.

    Of a worked solution, as in GSM8K's answer column, it is the one behind the last `####`.
    """
    marked = _MARKED.findall(text)
    try:
        value = Decimal((marked[-1] if marked else text).strip().lstrip("$").replace(",", ""))
    except InvalidOperation:
        return None
    return value if value.is_finite() else None  # "infinity" is a word, and "NaN" equals nothing


def expected_answer(text: str) -> str:
    r"""Return the answer in a column of answers or of worked solutions: behind the last `####`, in the last box, or all
    of it.
    """
    return _marked_line(text) or last_box(text) or text.strip()


def given_answer(response: str, *, is_number: bool) -> GivenAnswer | None:
    """Return the answer of a response, None if it gives none. `is_number`: a number is expected.

    Then only a number, or LaTeX, is an answer behind `####`: words behind it are not the wanted form.
    """
    line = _marked_line(response)
    if line and (not is_number or "\\" in line):
        return GivenAnswer(text=line, is_marked=True)
    if box := last_box(response):
        return GivenAnswer(text=box, is_marked=True)
    if announced := _last(_ANNOUNCED, response):
        line = response[announced.end() :].partition("\n")[0]
        return GivenAnswer(text=_without_ending(line), is_marked=False)
    if formula := _FORMULA.search(response[-2 * MOST_CHARS :]):
        return GivenAnswer(text=next(group for group in formula.groups() if group is not None), is_marked=False)
    return None


def _marked_line(text: str) -> str:
    """Return what stands behind the last `####`, up to the end of the line."""
    _, marker, behind = text.rpartition("####")
    return _without_ending(behind.partition("\n")[0]).strip() if marker else ""


def marked_number(response: str) -> Decimal | None:
    """Return the number behind the last `####` of a response, None if there is none."""
    marked = _MARKED.findall(response)
    return number(marked[-1]) if marked else None


def last_box(text: str) -> str:
    r"""Return what stands in the last `\boxed{...}` (or `\boxed 5`) that is closed, "" if there is none.

    Of a box in a box it is the content of the inner one.
    """
    closing: dict[int, int] | None = None
    for match in reversed(list(_BOX.finditer(text))):  # what begins last is in no other that counts
        begin = match.end()
        content = text[begin : begin + 1]
        if content == "{":
            closing = _closing_braces(text) if closing is None else closing
            content = text[begin + 1 : closing.get(begin, begin)]
        if content.strip() and content != "}":
            return content.strip()
    return ""


def _closing_braces(text: str) -> dict[int, int]:
    """Return where each brace that opens is closed; those that are not are left out, as are escaped ones."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closing[opened.pop()] = brace.start()
    return closing


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    match = None
    for match in pattern.finditer(text):  # noqa: B007  the last one is wanted
        pass
    return match


def _without_ending(text: str) -> str:
    """Return the text without what ends a sentence: a full stop, emphasis, and *I hope it is correct*."""
    bare = _without_last(text, ".*")
    if bare.lower().endswith(_HOPE):
        before = bare[: -len(_HOPE)].rstrip()
        if before.endswith("."):
            return _without_last(before[:-1], "*")
    return bare


def _without_last(text: str, characters: str) -> str:
    """Return the text without such characters and spaces at its end, however they are mixed."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in characters):
        end -= 1
    return text[:end]


def tidy(text: str) -> str:
    """Return an answer without what only sets it: dollar signs, `\\text`, spacing, a full stop, fractions' names."""
    text = _FRACTION_NAMES.sub(r"\\frac", _SPACING.sub(" ", text.replace(r"\!", ""))).strip()
    for _ in range(4):
        wrapped = _WRAPPED.fullmatch(text)
        inside = next((group for group in wrapped.groups() if group is not None), "") if wrapped else ""
        if not inside.strip() or "$" in inside:
            break
        text = inside.strip()
    return re.sub(r"\s+", " ", text.removesuffix(".")).strip()


def without_percent(text: str) -> tuple[str, bool]:
    """Return a tidy answer without its percent sign, and whether it had one."""
    bare = _PERCENT.sub("", text)
    return bare, bare != text


def exact(text: str) -> tuple[Fraction, bool] | None:
    """Return the value of a tidy integer, decimal or fraction, and whether it is written as a decimal; None of others.

    Thousands may be separated by commas or spaces; a dollar sign may lead.
    """
    plain = _PLAIN.fullmatch(text)
    if plain and plain[3] and not (plain[1] and plain[2]):
        return Fraction(plain[1] + plain[2] + re.sub(r"[,{} ]", "", plain[3])), "." in plain[3]
    match = _SLASHED.fullmatch(text) or _LATEX_FRACTION.fullmatch(text)
    if not match:
        return None
    sign, above, below = (group for group in match.groups() if group is not None)
    if not int(below):
        return None
    return Fraction(int(above), int(below)) * (-1 if sign == "-" else 1), False


def quick_equal(expected: str, actual: str) -> bool | None:
    """Return whether two answers are the same, None if only algebra can say.

    Decided are equal texts, numbers (a decimal agrees to six places), and words. A percentage is equal to its number
    and to its hundredth: tasks ask for either.
    """
    if max(len(expected), len(actual)) > MOST_CHARS:
        return False
    expected, actual = tidy(expected), tidy(actual)
    if not expected or not actual:
        return False
    if _LOOSE_SPACE.sub("", expected) == _LOOSE_SPACE.sub("", actual):
        return True
    if is_wordy(expected) and is_wordy(actual):
        return _letters(expected) == _letters(actual)
    (expected, is_percent), (actual, is_given_percent) = without_percent(expected), without_percent(actual)
    left, right = exact(expected), exact(actual)
    if left is None or right is None:
        is_number_and_words = (left or right) and (is_wordy(expected) or is_wordy(actual))
        return False if is_number_and_words else None
    is_decimal = left[1] or right[1]
    if is_percent != is_given_percent:
        scaled = (left[0] / 100, right[0]) if is_percent else (left[0], right[0] / 100)
        return _same(left[0], right[0], is_decimal=is_decimal) or _same(*scaled, is_decimal=is_decimal)
    return _same(left[0], right[0], is_decimal=is_decimal)


def _same(left: Fraction, right: Fraction, *, is_decimal: bool) -> bool:
    return round(left, _PLACES) == round(right, _PLACES) if is_decimal else left == right


def is_wordy(text: str) -> bool:
    """Return whether a tidy answer is words: letters alone, three in a row somewhere, no command."""
    return _WORDS.fullmatch(text) is not None


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).casefold()
