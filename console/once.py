"""Secrets that a page shows once: kept in the session over the redirect that follows a form, gone with the first look.

So no secret stands in an address, and a page that shows one is no form's answer, which a reload would send again.
"""

from django.http import HttpRequest

_KEY = "shown_once"


def keep_once(request: HttpRequest, **values: str) -> None:
    """Keep values for the next page of this session that takes them; what nobody has taken yet is forgotten."""
    request.session[_KEY] = values


def take_once(request: HttpRequest, *names: str) -> dict[str, str]:
    """Return the values kept under these names and forget them; {} unless all of them were kept."""
    kept = request.session.get(_KEY, {})
    if not all(name in kept for name in names):
        return {}
    del request.session[_KEY]
    return {name: kept[name] for name in names}
