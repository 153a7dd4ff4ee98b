"""What a session keeps from one page to the next: a config.json that is too long for an address, secrets shown once.

A secret is kept over the redirect that follows a form and gone with the first look. So none stands in an address, and a
page that shows one is no form's answer, which a reload would send again.
"""

from hashlib import sha256

from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

MAX_CONFIG_BYTES = 1 << 20
MOST = 3
"""Of one session; the oldest goes."""

_MARK = "kept:"
_CONFIGS = "configs"
_SECRETS = "shown_once"


def is_name(text: str) -> bool:
    """Return True for a name under which a config.json is kept, and not one itself."""
    return text.startswith(_MARK)


def keep(session: SessionBase, text: str) -> str:
    """Keep a text and return its name. Raises: ValueError for one that is larger than MAX_CONFIG_BYTES."""
    raw = text.encode()
    if len(raw) > MAX_CONFIG_BYTES:
        raise ValueError(len(raw))
    name = f"{_MARK}{sha256(raw).hexdigest()[:24]}"
    others = {config: held for config, held in session.get(_CONFIGS, {}).items() if config != name}
    session[_CONFIGS] = dict([*others.items(), (name, text)][-MOST:])
    return name


def text_of(session: SessionBase, config: str) -> str | None:
    """Return the text that a name stands for, None if it is not kept (any more); a text stands for itself."""
    if not is_name(config):
        return config
    held: str | None = session.get(_CONFIGS, {}).get(config)
    return held


def keep_once(request: HttpRequest, **values: str) -> None:
    """Keep values for the next page of this session that takes them; what nobody has taken yet is forgotten."""
    request.session[_SECRETS] = values


def take_once(request: HttpRequest, *names: str) -> dict[str, str]:
    """Return the values kept under these names and forget them; {} unless all of them were kept."""
    secrets = request.session.get(_SECRETS, {})
    if not all(name in secrets for name in names):
        return {}
    del request.session[_SECRETS]
    return {name: secrets[name] for name in names}
