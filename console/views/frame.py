"""What every page's frame shows: project, navigation, cluster use."""

from typing import Any

from django.http import HttpRequest


def frame(request: HttpRequest) -> dict[str, Any]:
    """Return the template context of the frame."""
    return {}
