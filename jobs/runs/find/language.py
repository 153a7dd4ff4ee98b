"""The filter line: `state:running lr>1e-5 reward/mean>=0.6 tag:baseline -name:scratch (by:me or "two words")`.

    line    = any { any }                          both hold
    any     = all { "or" all }
    all     = one { ["and"] one }
    one     = [ "-" | "not" ] ( "(" any ")" | key ":" value { "," value } | name symbol value | word )
    symbol  = ">" | "<" | ">=" | "<=" | "=" | "!="

A value or word in double quotes may hold anything but a double quote.
"""

import re
from dataclasses import dataclass
from typing import Literal, NoReturn

from django.utils.translation import gettext as _

from jobs.runs.find.names import FilterInvalid, compared, keyed
from jobs.runs.find.terms import AllOf, AnyOf, HasWord, NotSo, Term, all_of

MAX_CHARS = 1000
MAX_DEPTH = 20

_QUOTED = r'"[^"]*"'
_TOKEN = re.compile(
    rf"""\s+
    | (?P<open>\() | (?P<close>\))
    | (?P<minus>-(?=[^\s)]))
    | (?P<compared>(?P<name>[A-Za-z][\w./@-]*)\s*(?P<symbol>>=|<=|!=|==|=|>|<)\s*(?P<value>(?:{_QUOTED}|[^\s()"])*))
    | (?P<keyed>(?P<key>[A-Za-z][\w./@-]*):(?P<values>(?:{_QUOTED}|[^\s()"])*))
    | (?P<quoted>{_QUOTED})
    | (?P<word>[^\s()"]+)
    | (?P<broken>")""",
    re.VERBOSE,
)
Sort = Literal["open", "close", "minus", "compared", "keyed", "quoted", "word", "broken"]


@dataclass(frozen=True, slots=True)
class FilterToken:
    """A piece of the line: what it is, and where it stands."""

    sort: Sort
    text: str
    start: int
    end: int
    match: re.Match[str]


def tokens(line: str) -> list[FilterToken]:
    """Return the pieces of a line; nothing of it is lost but spaces."""
    pieces = []
    for match in _TOKEN.finditer(line):
        if match.lastgroup is None:
            continue
        sort = next(name for name in Sort.__args__ if match[name] is not None)  # type: ignore[attr-defined]
        pieces.append(FilterToken(sort, match[0], match.start(), match.end(), match))
    return pieces


def parse(line: str, *, username: str = "") -> Term:
    """Return what a line says; `by:me` means `username`.

    Raises: FilterInvalid, a sentence about one piece, with the place where that stands.
    """
    if len(line) > MAX_CHARS:
        text = _("The filter has %(given)s characters. Use at most %(most)s.")
        raise FilterInvalid("q", text % {"given": len(line), "most": MAX_CHARS})
    return _Parser(tokens(line), username).whole()


class _Parser:
    """Reads the pieces from left to right."""

    def __init__(self, pieces: list[FilterToken], username: str) -> None:
        self.pieces = pieces
        self.username = username
        self.at = 0

    def whole(self) -> Term:
        if not self.pieces:
            return AllOf()
        term = self.any(0)
        if self.next is not None:  # only a parenthesis ends `any` early
            self.refuse(_("This parenthesis closes nothing. Take it away, or open one before."))
        return term

    @property
    def next(self) -> FilterToken | None:
        return self.pieces[self.at] if self.at < len(self.pieces) else None

    def is_next(self, word: str) -> bool:
        piece = self.next
        return piece is not None and piece.sort == "word" and piece.text.lower() == word

    def any(self, depth: int) -> Term:
        parts = [self.all(depth)]
        while self.is_next("or"):
            self.at += 1
            parts.append(self.all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def all(self, depth: int) -> Term:
        parts = [self.one(depth)]
        while (piece := self.next) is not None and piece.sort != "close" and not self.is_next("or"):
            self.at += self.is_next("and")
            parts.append(self.one(depth))
        return all_of(*parts)

    def one(self, depth: int) -> Term:
        piece = self.next
        if piece is None or piece.sort == "close" or self.is_next("or") or self.is_next("and"):
            self.at -= piece is None  # what stands before the end is what lacks something
            self.refuse(
                _("Something to look for is missing here. Words like “or” in quotes are looked for themselves.")
            )
        if depth > MAX_DEPTH:
            self.refuse(_("Parentheses and minus signs are more than %(most)s deep.") % {"most": MAX_DEPTH})
        self.at += 1
        if piece.sort == "minus" or (piece.sort == "word" and piece.text.lower() == "not"):
            return NotSo(self.one(depth + 1))
        if piece.sort == "open":
            return self.within(piece, depth + 1)
        if piece.sort == "broken":
            self.at -= 1
            self.refuse(_("This quotation mark has no second one. Close it, or take it away."))
        try:
            if piece.sort == "keyed":
                return keyed(piece.match["key"], piece.match["values"], username=self.username)
            if piece.sort == "compared":
                return compared(piece.match["name"], piece.match["symbol"], piece.match["value"])
        except FilterInvalid as error:
            raise FilterInvalid("q", str(error), start=piece.start, end=piece.end) from error
        return HasWord(piece.text.strip('"').lower())

    def within(self, opened: FilterToken, depth: int) -> Term:
        term = self.any(depth)
        if self.next is None:
            text = _("This parenthesis is not closed.")
            raise FilterInvalid("q", text, start=opened.start, end=opened.end)
        self.at += 1
        return term

    def refuse(self, message: str) -> NoReturn:
        piece = self.pieces[max(self.at, 0)]
        raise FilterInvalid("q", message, start=piece.start, end=piece.end)
