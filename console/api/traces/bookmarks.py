"""Bookmarks of a trace: a window of its time, and some words on it."""

from django.http import HttpRequest
from django.utils import timezone
from ninja import Field, Router, Schema, Status

from console.api.problem import REFUSALS, RequestProblem
from console.api.traces.traces import trace_for
from console.api.visible import caller
from jobs.traces.bookmarks import Bookmark, BookmarkRefused, add_bookmark, bookmarks, remove_bookmark

router = Router(tags=["traces"])


class BookmarkIn(Schema):
    """A window of the trace and what to remember of it."""

    model_config = {"extra": "forbid"}

    text: str
    begin: str = Field(pattern=r"^\d{1,20}$", description="Unix ns")
    end: str = Field(pattern=r"^\d{1,20}$", description="Unix ns")


class BookmarkOut(Schema):
    """What somebody noted."""

    number: int
    text: str
    begin: str = Field(description="Unix ns")
    end: str = Field(description="Unix ns")
    by: str
    made_at: str


class BookmarksOut(Schema):
    """The bookmarks of a trace in the order of time."""

    bookmarks: list[BookmarkOut]


@router.get("/{trace_id}/bookmarks", response={200: BookmarksOut, **REFUSALS}, summary="Bookmarks")
def read_bookmarks(request: HttpRequest, trace_id: str) -> BookmarksOut:
    """Return what people noted of the trace."""
    return _out(bookmarks(trace_for(request, trace_id)))


@router.post("/{trace_id}/bookmarks", response={201: BookmarksOut, **REFUSALS}, summary="Keep a bookmark")
def post_bookmark(request: HttpRequest, trace_id: str, body: BookmarkIn) -> Status[BookmarksOut]:
    """Keep a window with a note, and return all bookmarks."""
    trace = trace_for(request, trace_id, "editor")
    try:
        stored = add_bookmark(
            trace=trace,
            text=body.text,
            begin=int(body.begin),
            end=int(body.end),
            user=caller(request),
            now=timezone.now(),
        )
    except BookmarkRefused as error:
        raise RequestProblem(422, str(error), field=error.field) from error
    return Status(201, _out(stored))


@router.delete("/{trace_id}/bookmarks/{int:number}", response={204: None, **REFUSALS}, summary="Take one away")
def delete_bookmark(request: HttpRequest, trace_id: str, number: int) -> Status[None]:
    """Take a bookmark away; one that is gone stays so."""
    trace = trace_for(request, trace_id, "editor")
    remove_bookmark(trace=trace, number=number, user=caller(request))
    return Status(204, None)


def _out(stored: list[Bookmark]) -> BookmarksOut:
    return BookmarksOut(
        bookmarks=[
            BookmarkOut(
                number=one.number, text=one.text, begin=str(one.begin), end=str(one.end), by=one.by, made_at=one.made_at
            )
            for one in stored
        ]
    )
