"""Why a text that somebody pasted or wrote by hand is not JSON."""

import re

from django.utils.translation import gettext as _

_NO_JSON = re.compile(r"(^|[\s,{[])(//|#)|/\*|,\s*[}\]]")
_MOST = 120


def why_not_json(text: str, error: Exception) -> str:
    """Return what Python's reader says, and what JSON does not have where the text has it: it says of both alone that
    a name or a value is missing."""
    why = str(error)[:_MOST]
    if not _NO_JSON.search(text):
        return why
    return _("%(why)s; JSON has no comments, and no comma before a closing bracket") % {"why": why}
