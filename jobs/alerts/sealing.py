"""Secrets of channels at rest: encrypted with a key made of the console's secret key, so that a copy of the database
alone is of no use."""

import base64
import hashlib
import json
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.utils.translation import gettext as _


class SealBroken(ValueError):
    """The console's secret key is another one than when the channel was made."""


def seal(secrets: Mapping[str, str]) -> str:
    """Return the secrets as text that only this console can read; "" for none."""
    return _fernet().encrypt(json.dumps(dict(secrets)).encode()).decode() if secrets else ""


def unseal(sealed: str) -> dict[str, str]:
    """Return the secrets. Raises: SealBroken."""
    if not sealed:
        return {}
    try:
        secrets: dict[str, str] = json.loads(_fernet().decrypt(sealed.encode()))
    except InvalidToken as error:
        raise SealBroken(
            _("The console's secret key has changed since this channel was made. Make it anew.")
        ) from error
    return secrets


def _fernet() -> Fernet:
    key = hashlib.sha256(b"pitwall alert channels\0" + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
