"""Read a long list of objects in JSON piece by piece: {"traceEvents": [{...}, ...], ...} or [{...}, ...].

Also an event a line without commas between them, as DFTracer and tools that log events write.

A piece of the text is cut where an object ends and the next begins. Only a cut at the level of the list gives valid
JSON, so a piece that parses was cut rightly, and no state is carried over. Pieces are bounded and the parser's own
depth is, so memory is, too: readers that build a path per level (ijson) need its square.
"""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from profiling.trace.formats.unpack import UnpackedFile
from profiling.trace.limits import Unreadable

_PIECE = 1 << 20
_LONGEST = 32 << 20
"""Bytes without an end of an object; a call stack is some kB."""
_TRIES = 50
_MOST_HEADS = 20
"""Places at which the list may seem to begin: in a text, or deeper in the file."""
_BARE = re.compile(rb"(:\s*)(0x[0-9a-fA-F]{1,16}|\(nil\)|nccl[A-Za-z0-9_]{1,40})(?=\s*[,}])")
"""Addresses and names that stand without quotes, as NCCL's example of a profiler writes them."""
_BETWEEN_LINES = re.compile(rb"\}([ \t\r]*\n\s*)\{")
"""Between objects that have lines of their own; inside a text of JSON there is no line's end."""
_NOTHING = b" \t\r\n\0"
_DECODER = json.JSONDecoder(strict=False)
_NOT_WHOLE = "The file is cut off or damaged; what comes after that is missing"


def is_event_lines(text: bytes) -> bool:
    """Return True for events of a trace that have a line each, with no comma between them."""
    first, _, rest = text.lstrip().partition(b"\n")
    line = first.rstrip()
    is_event = line.startswith(b"{") and line.endswith(b"}") and b'"ph"' in line and b'"traceEvents"' not in line
    return is_event and rest.lstrip().startswith(b"{")


class _BareWords(Exception):
    """A piece holds words without quotes."""


def thousandfold(key: str) -> str:
    """Return the key of a value that is given a thousand times as large."""
    return f"{key} (thousandfold)"


class JsonList:
    """The objects of a list in a file. `head` holds the keys before the list, `tail` those after it, `problem` why the
    end is missing, `beyond` the beginning of what follows the end; these once all was read. Raises: Unreadable.
    """

    def __init__(self, file: UnpackedFile, *, key: str) -> None:
        self.head: dict[str, object] = {}
        self.tail: dict[str, object] = {}
        self.problem = ""
        self.beyond = b""
        self._file = file
        self._text = b""
        self._is_over = self._is_bare = self._has_lines = self._quotes = False
        self._long: re.Pattern[bytes] | None = None
        self._decoder = _DECODER
        self._find(key)

    def keep_long(self, key: str) -> None:
        """Give the values of a key exactly where a float64 does not hold them: decimals from 8e12 on.

        One with three decimals is given as an integer, a thousand times as large, under `thousandfold(key)`, which
        costs half of what the others do: they are given as texts.
        """
        name = key.encode()
        self._key = b'"%b"' % name
        self._exact = re.compile(rb'"%b":\s*([89]\d{12}|\d{14,16})\.(\d{3})(?=[\s,}])' % name)
        self._as_integer = b'"%b":\\1\\2' % thousandfold(key).encode()
        self._long = re.compile(rb'"%b":\s*((?:[89]\d{12}|\d{14,})\.\d+)' % name)
        self._as_text = b'"%b":"\\1"' % name
        self._decoder = json.JSONDecoder(strict=False, parse_float=_long_as_text)

    def pieces(self) -> Iterator[list[Any]]:
        """Yield the values in lists of about a megabyte of text. Raises: Unreadable."""
        size = _PIECE
        while True:
            more = self._file.read(max(size - len(self._text), _PIECE // 4))
            self._text += more
            if not more:
                yield from self._last()
                return
            if self._quotes:
                self._text = _quoted(self._text)
            if self._has_lines:
                self._text = _BETWEEN_LINES.sub(rb"},\1{", self._text)
            try:
                values = self._cut()
            except _BareWords:
                self._text, self._quotes = _quoted(self._text), True
                values = self._cut()
            if values is None:
                if size < _LONGEST:
                    size *= 2
                    continue
                values = self._values(self._text, rest=len(self._text))  # the list may have ended long ago
                if values is None:
                    raise Unreadable("The list of events holds one that is longer than 32 MiB.")
            size = _PIECE
            yield values
            if self._is_over:
                return

    def _find(self, key: str) -> None:
        """Read up to the beginning of the list."""
        pattern = re.compile(rb'"%s"\s*:\s*\[' % key.encode())
        looked_at, heads = 0, 0
        while len(self._text) < _LONGEST // 2 and heads < _MOST_HEADS:
            more = self._file.read(_PIECE)
            self._text += more
            text = self._text.removeprefix(b"\xef\xbb\xbf").lstrip()
            if text.startswith(b"[") or is_event_lines(text):
                self._text, self._is_bare = text.removeprefix(b"["), True
                self._has_lines = is_event_lines(self._text)
                return
            for match in itertools.islice(pattern.finditer(text, looked_at), _MOST_HEADS - heads):
                looked_at, heads = match.end(), heads + 1
                head = _value(text[: match.start()] + b'"":0}')
                if isinstance(head, dict):
                    head.pop("", None)
                    self.head, self._text = head, text[match.end() :]
                    return
            if not more:
                break
        raise Unreadable(f"The file holds no list {key}, or does not begin with it.")

    def _cut(self) -> list[Any] | None:
        """Take the longest run of whole values off the text; None if there is none yet."""
        text = self._text
        at = len(text)
        for _ in range(_TRIES):
            at, comma = _boundary(text, at)
            if at < 0:
                return None
            values = self._values(text[:comma], rest=at)
            if values is not None:
                return values
        return None

    def _values(self, text: bytes, *, rest: int) -> list[Any] | None:
        """Return the values of a piece; None if it is not whole. What is taken leaves the text."""
        parsed = self._exactly(text) if self._long else text
        try:
            values: list[Any] = orjson.loads(b"[%b]" % parsed)
        except orjson.JSONDecodeError as error:
            if error.pos >= len(parsed):
                return None
            if not self._quotes and _BARE.search(text):
                raise _BareWords from error
        else:
            self._text = self._text[rest:]
            return values
        # The slow way knows NaN, and where the list ends.
        piece = "[" + text.decode(errors="replace") + "]"
        try:
            values, end = self._decoder.raw_decode(piece)
        except RecursionError as error:
            raise Unreadable("The file nests deeper than any trace does.") from error
        except json.JSONDecodeError as error:
            if error.pos >= len(piece) - 1:
                return None
            return self._recover(piece[1 : error.pos])
        if end < len(piece):
            self._is_over = True
            self._end(self._text[len(piece[:end].encode()) - 1 :])
        else:
            self._text = self._text[rest:]
        return list(values)

    def _exactly(self, text: bytes) -> bytes:
        """Return a piece with the values of `keep_long` as JSON keeps them."""
        assert self._long is not None
        parsed, num_exact = self._exact.subn(self._as_integer, text)
        if text.count(self._key) > num_exact:
            parsed = self._long.sub(self._as_text, parsed)
        return parsed

    def _cut_off(self) -> str:
        """Return that the end is missing, and how much of the file was read until then."""
        return f"{_NOT_WHOLE} ({self._file.read_so_far})."

    def _recover(self, piece: str) -> list[Any]:
        """Return the values before a place that is no JSON, and stop there."""
        self.problem, self._is_over = self._cut_off(), True
        text = piece.encode()
        at = len(text)
        for _ in range(_TRIES):
            at = text.rfind(b"}", 0, at)
            if at < 0:
                return []
            values = _value(b"[%b]" % text[: at + 1], self._decoder)
            if isinstance(values, list):
                return values
        return []

    def _last(self) -> Iterator[list[Any]]:
        """Yield what is left at the end of the file."""
        self.problem = self._file.problem
        self._text = _quoted(self._text)
        if self._has_lines:
            self._text = _BETWEEN_LINES.sub(rb"},\1{", self._text)
        piece = "[" + self._text.decode(errors="replace")
        try:
            values, end = self._decoder.raw_decode(piece)
        except RecursionError as error:
            raise Unreadable("The file nests deeper than any trace does.") from error
        except json.JSONDecodeError as error:
            if (values := self._unclosed()) is not None:
                yield values
                return
            yield self._recover(piece[1 : error.pos if error.pos < len(piece) else None])
            self.problem = f"{self._file.problem} {self._cut_off()}".strip()
            return
        yield values
        self._end(piece[end:].encode())

    def _unclosed(self) -> list[Any] | None:
        """Return what is left where a list without anything around it ends with a whole object: tools that write while
        they record (Horovod, for one) never close it, and the format allows that.
        """
        if not self._is_bare or self.problem:
            return None
        text = self._text.rstrip(b" \t\r\n\0,")
        values = _value(b"[%b]" % text, self._decoder) if not text or text.endswith(b"}") else None
        return values if isinstance(values, list) else None

    def _end(self, text: bytes) -> None:
        """Read what comes after the list; text that is no JSON is let be, the list is whole."""
        while len(text) < _LONGEST and (more := self._file.read(_PIECE)):
            text += more
        rest = text.strip(_NOTHING)
        if self._is_bare or not rest.startswith(b","):
            self.problem = self._file.problem
            self.beyond = (rest if self._is_bare else rest.removeprefix(b"}")).strip(_NOTHING)
            return
        whole = '{"":0' + rest.decode(errors="replace")
        try:
            tail, end = _DECODER.raw_decode(whole)
        except (ValueError, RecursionError):
            self.problem = self._file.problem
        else:
            self.tail, self.beyond = _without_first(tail), whole[end : end + 1000].strip().encode()
            return
        for at in (len(rest), rest.rfind(b",")):  # the end is missing: what of it is whole
            tail = _value(b'{"":0%b}' % rest[: max(at, 0)])
            if isinstance(tail, dict) and (at < len(rest) or not text[-1:].isdigit()):
                self.tail = _without_first(tail)
                return


def _without_first(tail: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in tail.items() if key}


def _quoted(text: bytes) -> bytes:
    """Return a text whose bare words have quotes."""
    return _BARE.sub(rb'\1"\2"', text)


def _boundary(text: bytes, before: int) -> tuple[int, int]:
    """Return where the last object after "}," begins before a place, and where that comma is; -1 if there is none."""
    at = before
    while (at := text.rfind(b"{", 0, at)) >= 0:
        comma = _last_sign(text, at)
        if comma >= 0 and text[comma] == 0x2C:  # ,
            brace = _last_sign(text, comma)
            if brace >= 0 and text[brace] == 0x7D:  # }
                return at, comma
    return -1, -1


def _last_sign(text: bytes, before: int) -> int:
    """Return the place of the last byte before a place that is no white space; -1 if there is none."""
    at = before - 1
    while at >= 0 and text[at] in b" \t\r\n":
        at -= 1
    return at


def _long_as_text(text: str) -> str | float:
    """Return a decimal that a float64 does not hold as it is written."""
    return text if len(text.partition(".")[0]) > 12 and "e" not in text and "E" not in text else float(text)


def _value(text: bytes, decoder: json.JSONDecoder = _DECODER) -> Any:
    """Return the value of a text, None if it is not JSON."""
    try:
        return decoder.decode(text.decode())
    except (ValueError, RecursionError):
        return None
