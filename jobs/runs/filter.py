"""What to list of a project's runs: a line as people type it (jobs.runs.find.language), and what pages and API add."""

from collections.abc import Iterable

from jobs.models import LIVE
from jobs.runs.find.asked import RunFilter, check_sort
from jobs.runs.find.fields import BY_ALGORITHM, ROW_SORTS, is_metric, main_metric
from jobs.runs.find.language import parse
from jobs.runs.find.names import FilterInvalid, check_states
from jobs.runs.find.terms import HasTag, HasText, all_of

__all__ = [
    "BY_ALGORITHM",
    "ROW_SORTS",
    "VIEWS",
    "FilterInvalid",
    "RunFilter",
    "check_sort",
    "is_metric",
    "main_metric",
    "parse_filter",
    "view_filter",
]

VIEWS = ("all", "running", "failed", "mine", "archived")
"""The lists that every project has."""


def parse_filter(
    *,
    q: str = "",
    username: str = "",
    states: Iterable[str] = (),
    algorithms: Iterable[str] = (),
    tags: Iterable[str] = (),
    authors: Iterable[str] = (),
    is_archived: bool = False,
) -> RunFilter:
    """Return the filter of a typed line and what is chosen beside it: any of the states, all of the tags.

    Raises: FilterInvalid naming what is unknown, with the nearest known one.
    """
    check_states(states := tuple(states))
    chosen = (("state", states), ("algorithm", algorithms), ("author", authors))
    fields = [HasText(name, tuple(value.lower() for value in values)) for name, values in chosen if values]
    term = all_of(*fields, *(HasTag(tag) for tag in tags), parse(q, username=username))
    return RunFilter(term=term, is_archived=is_archived)


def view_filter(line: str, *, view: str, username: str) -> RunFilter:
    """Return the filter of a typed line within one of the lists that every project has. Raises: FilterInvalid."""
    states = {"running": LIVE, "failed": ("failed",)}.get(view, ())
    authors = (username,) if view == "mine" else ()
    return parse_filter(q=line, username=username, states=states, authors=authors, is_archived=view == "archived")
