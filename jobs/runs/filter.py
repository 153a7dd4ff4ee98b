"""What to list of a project's runs: a line as people type it (jobs.runs.find.language), and what pages and API add."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _

from jobs.catalog.knob import knobs
from jobs.catalog.metric import current_name, metrics
from jobs.models import LIVE
from jobs.runs.find.fields import BY_ALGORITHM, ROW_SORTS, is_metric, main_metric
from jobs.runs.find.language import parse
from jobs.runs.find.names import FilterInvalid, check_states, unknown
from jobs.runs.find.terms import ANY_RUN, HasTag, HasText, Kind, Term, all_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list: those that `term` lets through, of the list or of the archive; or these ids of either."""

    term: Term = ANY_RUN
    ids: tuple[str, ...] = ()
    is_archived: bool = False


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


def sort_key(sort: str) -> tuple[Kind, str]:
    """Return kind and name of what `sort` orders by. Raises: FilterInvalid if there is nothing of that name."""
    name = check_sort(sort)
    if name.startswith("tag:"):
        return "tag", name.removeprefix("tag:")
    if name in ROW_SORTS:
        return "field", name
    return ("metric" if is_metric(name) else "knob"), name


def check_sort(sort: str) -> str:
    """Return the sort key without its leading minus. Raises: FilterInvalid if there is nothing of that name."""
    name = current_name(sort.removeprefix("-"))
    if name in ROW_SORTS or is_metric(name) or name in knobs() or name.startswith("tag:"):
        return name
    raise FilterInvalid("sort", unknown(_("column"), name, [*ROW_SORTS, *knobs(), *metrics()]))
