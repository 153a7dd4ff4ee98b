"""What is asked of a list of runs: which ones, and in which order."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from jobs.catalog.knob import knobs
from jobs.catalog.metric import current_name, metrics
from jobs.runs.find.fields import ROW_SORTS, is_metric
from jobs.runs.find.names import FilterInvalid, unknown
from jobs.runs.find.terms import ANY_RUN, Kind, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list: those that `term` lets through, of the list or of the archive; or these ids of either."""

    term: Term = ANY_RUN
    ids: tuple[str, ...] = ()
    is_archived: bool = False


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
    allowed = _("%(names)s, the id of a knob, a metric, or tag: with a tag") % {"names": ", ".join(ROW_SORTS)}
    raise FilterInvalid("sort", unknown(_("column"), name, [*ROW_SORTS, *knobs(), *metrics()], allowed=allowed))
