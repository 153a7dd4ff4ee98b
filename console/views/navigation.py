"""Where one can go: the entries of the top bar, and the further pages that the search (Ctrl K) finds by name."""

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from jobs.accounts.access import Role

# Pages below an entry of the top bar whose address does not begin with the entry's own.
_BELOW = (("/trash", "runs"), ("/traces", "runs"), ("/people", "settings"), ("/audit", "settings"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NavigationEntry:
    """A page to go to; `keys` are pressed one after the other, "" for none."""

    name: str
    label: str
    url: str
    keys: str = ""
    is_current: bool = False


def navigation(request: HttpRequest) -> list[NavigationEntry]:
    """Return the entries of the top bar; the one that the page belongs to is current, also on an answer to a form."""
    entries = (
        ("home", _("Home"), "g h"),
        ("new-run", _("New run"), "g n"),
        ("runs", _("Runs"), "g r"),
        ("compare", _("Compare"), "g c"),
        ("tune", _("Tune"), "g t"),
        ("cluster", _("Cluster"), "g u"),
        ("guide", _("Guide"), "g d"),
        ("settings", _("Settings"), "g s"),
    )
    urls = {name: reverse(name) for name, _label, _keys in entries}
    current = _current(request.path_info, urls)
    return [
        NavigationEntry(name=name, label=label, url=urls[name], keys=keys, is_current=name == current)
        for name, label, keys in entries
    ]


def further_pages(user: User, project_slug: str, held: Role | None) -> list[NavigationEntry]:
    """Return the pages that the top bar does not name and that this person may open."""
    is_admin = held == "admin"
    rows = [
        ("alerts", _("Alerts"), reverse("alerts"), True),
        ("alert-rules", _("Alert rules and channels"), reverse("alert-rules"), True),
        ("trash", _("Trash"), reverse("trash"), True),
        ("retention", _("Retention"), reverse("retention", args=[project_slug]) if project_slug else "", True),
        ("people-project", _("Who can do what"), _access(user, project_slug), is_admin or user.is_superuser),
        ("audit", _("Audit"), reverse("audit"), is_admin or user.is_superuser),
        ("people", _("People"), reverse("people"), user.is_superuser),
        ("account", _("Account"), reverse("account"), True),
        ("tokens", _("API tokens"), f"{reverse('account')}#tokens", True),
    ]
    return [
        NavigationEntry(name=name, label=label, url=url) for name, label, url, is_allowed in rows if is_allowed and url
    ]


def _current(path: str, urls: dict[str, str]) -> str:
    below = [name for prefix, name in _BELOW if path.startswith(prefix)]
    # The longest address wins: a new run's begins with that of the runs, and all begin with Home's.
    named = [name for name, url in urls.items() if path == url or (url != "/" and path.startswith(f"{url}/"))]
    return (below or sorted(named, key=lambda name: len(urls[name]), reverse=True) or [""])[0]


def _access(user: User, project_slug: str) -> str:
    if project_slug and not user.is_superuser:
        return reverse("people-project", args=[project_slug])
    return reverse("people-rights") if user.is_superuser else ""
