"""A config.json that is too long for an address, kept for the one who pasted it until the session ends."""

from hashlib import sha256

from django.contrib.sessions.backends.base import SessionBase

MAX_CONFIG_BYTES = 1 << 20
MOST = 3
"""Of one session; the oldest goes."""

_MARK = "kept:"
_KEY = "configs"


def is_name(text: str) -> bool:
    """Return True for a name under which a config.json is kept, and not one itself."""
    return text.startswith(_MARK)


def keep(session: SessionBase, text: str) -> str:
    """Keep a text and return its name. Raises: ValueError for one that is larger than MAX_CONFIG_BYTES."""
    raw = text.encode()
    if len(raw) > MAX_CONFIG_BYTES:
        raise ValueError(len(raw))
    name = f"{_MARK}{sha256(raw).hexdigest()[:24]}"
    others = {known: held for known, held in session.get(_KEY, {}).items() if known != name}
    session[_KEY] = dict([*others.items(), (name, text)][-MOST:])
    return name


def text_of(session: SessionBase, given: str) -> str | None:
    """Return the text that a name stands for, None if it is not kept (any more); a text stands for itself."""
    if not is_name(given):
        return given
    held: str | None = session.get(_KEY, {}).get(given)
    return held
