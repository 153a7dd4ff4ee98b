"""Views of the list of runs that people keep under a name: their own, or the project's."""

from collections.abc import Sequence

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet
from django.utils.translation import gettext as _

from jobs.accounts.access import User, require
from jobs.catalog.value import is_storable
from jobs.models import Project, SavedView
from jobs.runs.find.asked import check_sort
from jobs.runs.find.language import parse
from jobs.runs.find.names import FilterInvalid

MAX_NAME_CHARS = 60
MAX_VIEWS = 100  # of one person, or of a project
MAX_COLUMNS = 100


def views_of(project: Project, user: User) -> QuerySet[SavedView]:
    """Return the project's views and the person's own of it, by name."""
    own = Q(owner=None) | Q(owner=user.pk)
    return SavedView.objects.filter(own, project=project).select_related("owner").order_by("name", "pk")


def save_view(
    *,
    project: Project,
    user: AbstractBaseUser,
    name: str,
    is_shared: bool,
    view: str,
    query: str,
    sort: str,
    columns: Sequence[str],
) -> SavedView:
    """Keep a view, in place of the one of that name that the same people see, and return it.

    Raises: FilterInvalid, its `field` is what is wrong: name, q, sort or columns.
    """
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME_CHARS or not is_storable(name):
        text = _("%(given)r is not a name. Use 1 to %(most)s characters on one line.")
        raise FilterInvalid("name", text % {"given": name[:200], "most": MAX_NAME_CHARS})
    if len(columns) > MAX_COLUMNS:
        text = _("%(given)s columns are too many. Use at most %(most)s.")
        raise FilterInvalid("columns", text % {"given": len(columns), "most": MAX_COLUMNS})
    parse(query)
    check_sort(sort)
    owner_id = None if is_shared else user.pk
    others = SavedView.objects.filter(project=project, owner=owner_id)
    if others.exclude(name=name).count() >= MAX_VIEWS:
        raise FilterInvalid("name", _("There are %(most)s views already. Delete one first.") % {"most": MAX_VIEWS})
    values = {"view": view, "query": query, "sort": sort, "columns": list(columns), "created_by_id": user.pk}
    saved, _is_new = SavedView.objects.update_or_create(project=project, owner_id=owner_id, name=name, defaults=values)
    return saved


def may_change(user: User, saved: SavedView, *, is_editor: bool) -> bool:
    """Return True for the person's own views, and for the project's to who may edit in it."""
    return is_editor if saved.owner_id is None else saved.owner_id == user.pk


def delete_view(project: Project, view_id: int, user: User) -> bool:
    """Delete a view; return False if there is none that the person knows of. Raises: NotAllowed for the project's."""
    saved = SavedView.objects.filter(project=project, pk=view_id).first()
    if saved is None or saved.owner_id not in (None, user.pk):
        return False
    if saved.owner_id is None:
        require(user, project, "editor")
    saved.delete()
    return True
