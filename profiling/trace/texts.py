"""Texts of a store under construction: each name and each event's details are kept once, and events have numbers."""

import json
from typing import TYPE_CHECKING

from profiling.trace import schema
from profiling.trace.names import shortened

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_NAMES = 200_000
MOST_NAME_BYTES = 64 << 20
LONGEST_INFO = 16_000
OTHER_NAME = "(another name)"
"""What events are called once a trace has used up the names that a store keeps."""
_KNOWN_INFOS = 100_000
_KNOWN_INFO_BYTES = 16 << 20


class Names:
    """Names of events; all stay in memory until the store is finished."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, text: str) -> int:
        """Return the number of a text; of one longer than LONGEST_NAME a hash stands for the rest."""
        number = self._numbers.get(text)
        if number is not None:
            return number
        text = shortened(text.encode(errors="replace").decode())
        if text not in self._numbers:
            if len(self._numbers) >= MOST_NAMES or self._bytes > MOST_NAME_BYTES:
                text = OTHER_NAME
            self._bytes += len(text)
            self._numbers.setdefault(text, len(self._numbers))
        return self._numbers[text]

    def texts(self) -> list[str]:
        """Return the names in the order of their numbers."""
        return list(self._numbers)


class Infos:
    """Details of events as JSON; they go to the database every now and then."""

    def __init__(self, connection: "DuckDBPyConnection") -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._new: list[str] = []
        self._bytes = 0

    def number(self, text: str) -> int:
        """Return the number of a JSON object, from 1 on. One longer than LONGEST_INFO is left out, and says so."""
        number = self._numbers.get(text)
        if number is not None:
            return number
        if len(text) > LONGEST_INFO:
            return self.number(json.dumps({"left out": f"{len(text):,} characters"}))
        self._last += 1
        self._numbers[text] = self._last
        self._new.append(text.encode(errors="replace").decode())
        self._bytes += len(text)
        if len(self._numbers) >= _KNOWN_INFOS or self._bytes >= _KNOWN_INFO_BYTES:
            self.flush()
            self._numbers.clear()  # the same text may then be kept twice, which harms nobody
        return self._last

    def flush(self) -> None:
        """Put what is new into the database."""
        first = self._last - len(self._new) + 1
        schema.insert(self._connection, "infos", [(first + i, text) for i, text in enumerate(self._new)])
        self._new = []
        self._bytes = 0
