"""Read an SQLite database of somebody else: only its plain tables, only columns that we name, never its own SQL."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from profiling.trace.names import LONGEST_NAME, shortened

MAGIC = b"SQLite format 3\0"
_ROWS = 20_000
_LONGEST = 64 << 20
"""Bytes of one value."""
_LEAST_ROW = 4
"""Bytes of a row in a page, and of its place there. Pages may stand in a tree many times: then rows never end."""


class Tables:
    """The tables of a file, opened so that nothing can be changed. Raises: sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._most_rows = path.stat().st_size // _LEAST_ROW
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            self.names = self._tables()
        except sqlite3.Error:
            self._connection.close()
            raise

    def _tables(self) -> frozenset[str]:
        """Forbid views and functions, and return the names of plain tables: a view could be any program."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        self._connection.text_factory = lambda value: value.decode(errors="replace")
        for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
            self._connection.execute(f"PRAGMA {pragma}")
        listed = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
        ).fetchall()
        return frozenset(str(name) for (name,) in listed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def columns(self, table: str) -> frozenset[str]:
        """Return the stored columns of a table; none if there is no such table."""
        if table not in self.names:
            return frozenset()
        about = self._connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        return frozenset(str(row[1]) for row in about)

    def count(self, table: str) -> int:
        """Return how many rows a table has, 0 if there is none of that name."""
        if table not in self.names:
            return 0
        return int(self._connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])  # noqa: S608

    def rows(self, table: str, *wanted: str, only: tuple[str, int] | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the wanted columns of each row; a column that this version of the schema lacks is None in all.

        Names stand in our code; `a|b` is the first of them that is there, `a,b` the first that is filled. `only` is a
        column and the number that it has in the rows that are wanted.
        """
        there = self.columns(table)
        if not there or (only and only[0] not in there):
            return
        chosen = [_first(names, there) for names in wanted]
        where, parameters = (f' WHERE "{only[0]}" = ?', only[1:]) if only else ("", ())
        cursor = self._connection.execute(f'SELECT {", ".join(chosen)} FROM "{table}"{where}', parameters)  # noqa: S608
        num_rows = 0
        while rows := cursor.fetchmany(_ROWS):
            yield from rows
            num_rows += len(rows)
            if num_rows > self._most_rows:
                raise sqlite3.DatabaseError(f"table {table} has more rows than the file has room for")

    def texts(self, table: str, *, most: int = 1_000_000, longest: int = LONGEST_NAME) -> dict[int, str]:
        """Return a table of (id, value) as a dict; texts that differ anywhere stay different.

        Raises: ValueError if it is larger than any trace has.
        """
        by_key: dict[int, str] = {}
        room = 256 << 20
        for key, value in self.rows(table, "id", "value|name"):
            if isinstance(key, int) and isinstance(value, str):
                by_key[key] = shortened(value, longest)
                room -= len(by_key[key])
            if len(by_key) > most or room < 0:
                raise ValueError(f"table {table} holds more than {most:,} texts, or more than 256 MiB of them")
        return by_key


def _first(names: str, there: frozenset[str]) -> str:
    """Return the SQL of the first of some columns: that is there (`a|b`), or that is filled (`a,b`)."""
    columns = [f'"{name}"' for name in names.replace("|", ",").split(",") if name in there]
    if "," in names and len(columns) > 1:
        return f"coalesce({', '.join(columns)})"
    return columns[0] if columns else "NULL"
