"""One page of a long list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.http import HttpRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Rows of a page, counted from 1; `total` rows on `num_pages` pages."""

    rows: Sequence[T]
    total: int
    number: int
    num_pages: int

    @property
    def before(self) -> int | None:
        """The page before it."""
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        """The page after it."""
        return self.number + 1 if self.number < self.num_pages else None


def page_number(request: HttpRequest, field: str = "page") -> int:
    """Return which page is asked for; the first where that is no number."""
    text = request.GET.get(field, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else 1


def paged(rows: Any, number: int, *, size: int) -> Page[Any]:
    """Return the page of a list or query, the last one where there are not so many."""
    total = len(rows) if isinstance(rows, list) else rows.count()
    num_pages = max(1, -(-total // size))
    number = min(max(1, number), num_pages)
    return Page(rows=list(rows[(number - 1) * size : number * size]), total=total, number=number, num_pages=num_pages)
