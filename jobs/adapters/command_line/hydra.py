"""Hydra's override grammar, both ways: `key=value` as one word of a command. Standard library only.

Source: hydra/grammar/OverrideParser.g4 of Hydra 1.3 (values, lists, dicts, quotes) and OmegaConf 2.3 (interpolations).
What it cannot be asked for here (sweeps, functions such as `choice(...)`) raises ValueError with a sentence.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.catalog.sentence import Sentence

Plain = Any
"""None, bool, int, float, str, or a list or dict of them."""

_BARE = re.compile(r"[A-Za-z0-9_./@%+-]+")
_INT = re.compile(r"[+-]?\d[\d_]*")
_FLOAT = re.compile(
    r"[+-]?(\d[\d_]*\.([\d_]*\d)?|\.\d[\d_]*|\d[\d_]*(?=[eE]))([eE][+-]?\d[\d_]*)?|[+-]?(inf|nan)", re.I
)
_KEY = re.compile(r"(?P<mark>\+\+|\+|~)?(?P<key>[A-Za-z_][\w./@:-]*)(?P<rest>=.*)?", re.S)
_ESCAPED_INTERPOLATION = re.compile(r"(?<!\\)(\\*)\$\{")
_QUOTED_INTERPOLATION = re.compile(r"(?<!\\)((?:\\\\)*)\\\$\{")
_BACKSLASHES_AT_QUOTE = re.compile(r"(?<!\\)(\\*)('|\Z)")
_ENDS = {"": (), "[": (",", "]"), "{": (",", "}"), "key": (":",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One word: `mark` is "", "+", "++" or "~" (delete), `value` what is set; None where nothing follows a "~"."""

    mark: str
    key: str
    value: Plain


class Interpolation(str):
    """A text that names other keys, `${data.max_prompt_length}`: it means something only with the whole config."""

    __slots__ = ()


def override(key: str, value: Plain) -> str:
    """Return `key=value`. A key that starts with "+" is added to the schema; texts are quoted where they must be."""
    return f"{key}={write(value)}"


def write(value: Plain) -> str:
    """Return a value as Hydra reads it back, with its type.

    Raises: TypeError for what is no plain value.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return value if _is_bare(value) else _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{write(str(key))}:{write(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(write(item) for item in value) + "]"
    raise TypeError(f"{value!r} cannot be written into an override.")


def read(word: str) -> Override:
    """Return what one word of a command overrides.

    Raises: ValueError with a sentence if it is no override, or one of many values (a sweep).
    """
    match = _KEY.fullmatch(word.strip())
    if match is None:
        raise ValueError(Sentence("{text} is not of the form key=value.", text=repr(word[:80])))
    mark, rest = match["mark"] or "", match["rest"]
    if rest is None and mark != "~":
        raise ValueError(Sentence("{text} has no value: write {key}=value.", text=repr(word[:80]), key=match["key"]))
    return Override(mark=mark, key=match["key"], value=None if rest is None else read_value(rest[1:]))


def read_value(text: str) -> Plain:
    """Return the value that Hydra reads in a text: 3e-4 is a number, '3e-4' a text, [a,b] a list.

    Raises: ValueError with a sentence.
    """
    reader = _ValueReader(text)
    value = reader.element("")
    if not reader.is_at_end():
        what = "several values, a sweep" if reader.peek() == "," else f"{reader.peek()!r} where a value ends"
        message = "{text} holds {what}. Give one value, in quotes if it has such characters."
        raise ValueError(Sentence(message, text=repr(text[:80]), what=what))
    return value


def _is_bare(text: str) -> bool:
    return _BARE.fullmatch(text) is not None and isinstance(_typed(text), str)


def _quoted(text: str) -> str:
    """Quote: backslashes count only before a quote (Hydra) or an interpolation (OmegaConf), and are doubled there."""
    text = _ESCAPED_INTERPOLATION.sub(lambda m: m[1] * 2 + "\\${", text)
    text = _BACKSLASHES_AT_QUOTE.sub(lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{text}'"


def _typed(text: str) -> Plain:
    """Return a bare word as Hydra types it."""
    low = text.lower()
    if low in ("null", "true", "false"):
        return {"null": None, "true": True, "false": False}[low]
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return Interpolation(text) if "${" in text else text


class _ValueReader:
    """Reads one value from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def is_at_end(self) -> bool:
        return self.at >= len(self.text)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def element(self, inside: str) -> Plain:
        self._skip_space()
        first = self.peek()
        if first and first in "'\"":
            value: Plain = self._quoted(first)
        elif first == "[":
            value = list(self._items("[", "]"))
        elif first == "{":
            value = dict(self._items("{", "}"))
        else:
            value = self._bare(inside)
        self._skip_space()
        return value

    def _items(self, opening: str, closing: str) -> Iterator[Plain]:
        self.at += 1
        self._skip_space()
        while self.peek() != closing:
            if opening == "{":
                key = self.element("key")
                self._expect(":")
                yield key, self.element("{")
            else:
                yield self.element("[")
            if self.peek() != closing:
                self._expect(",")
                self._skip_space()
        self.at += 1

    def _quoted(self, quote: str) -> str:
        begin = self.at + 1
        end, num_backslashes = self._closing(quote, begin)
        self.at = end + 1
        inner = self.text[begin : end - num_backslashes]
        inner = re.sub(rf"(?<!\\)(\\+){quote}", lambda m: "\\" * (len(m[1]) // 2) + quote, inner)
        inner += "\\" * (num_backslashes // 2)
        if re.search(r"(?<!\\)(\\\\)*\$\{", inner):
            return Interpolation(inner)
        return _QUOTED_INTERPOLATION.sub(lambda m: "\\" * (len(m[1]) // 2) + "${", inner)

    def _closing(self, quote: str, begin: int) -> tuple[int, int]:
        """Return where the closing quote is, and how many backslashes stand before it: an even number."""
        at = self.text.find(quote, begin)
        while at >= 0:
            start = at
            while start > begin and self.text[start - 1] == "\\":
                start -= 1
            if (at - start) % 2 == 0:
                return at, at - start
            at = self.text.find(quote, at + 1)
        raise ValueError(Sentence("{text} has an opening quote without its closing one.", text=repr(self.text[:80])))

    def _bare(self, inside: str) -> Plain:
        start, depth = self.at, 0
        ends = _ENDS[inside] or (",", "]", "}")
        while not self.is_at_end():
            here = self.peek()
            if here == "\\" and self.at + 1 < len(self.text) and self.text[self.at + 1] in "\\()[]{}:=, \t":
                self.at += 2
                continue
            if self.text.startswith("${", self.at):
                depth += 1
            elif here == "}" and depth:
                depth -= 1
            elif here == "(" and not depth:
                message = "{text} calls a function of Hydra. Give the value itself."
                raise ValueError(Sentence(message, text=repr(self.text[:80])))
            elif here in ends and not depth:
                break
            elif here in "[{'\"" and not depth and not self.text.startswith("${", self.at - 1):
                message = "{text} has {sign} inside a word. Put the value in quotes."
                raise ValueError(Sentence(message, text=repr(self.text[:80]), sign=repr(here)))
            self.at += 1
        raw = self.text[start : self.at].strip()
        if raw == "" and inside:
            raise ValueError(Sentence("{text} has an empty place in a list.", text=repr(self.text[:80])))
        plain = re.sub(r"\\([\\()\[\]{}:=, \t])", r"\1", raw)
        return plain if plain != raw else _typed(raw)

    def _expect(self, sign: str) -> None:
        if self.peek() != sign:
            raise ValueError(Sentence("{text} lacks a {sign}.", text=repr(self.text[:80]), sign=repr(sign)))
        self.at += 1

    def _skip_space(self) -> None:
        while self.peek() in (" ", "\t", "\n") and not self.is_at_end():
            self.at += 1
