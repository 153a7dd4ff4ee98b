"""Secrets at rest: encrypted with a key made of the console's secret key, so that a copy of the database alone is of no
use. Each purpose has a key of its own: what was sealed for one project opens for no other.
"""

import base64
import hashlib
import json
from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.utils.translation import gettext as _

ALERT_CHANNELS = "alert channels"


class SealBroken(ValueError):
    """The console's secret key is another one than when this was sealed."""


def seal(secrets: Mapping[str, str], *, purpose: str = ALERT_CHANNELS) -> str:
    """Return the secrets as text that only this console can read; "" for none."""
    return _fernet(purpose).encrypt(json.dumps(dict(secrets)).encode()).decode() if secrets else ""


def unseal(sealed: str, *, purpose: str = ALERT_CHANNELS) -> dict[str, str]:
    """Return the secrets. Raises: SealBroken."""
    if not sealed:
        return {}
    try:
        secrets: dict[str, str] = json.loads(_fernet(purpose).decrypt(sealed.encode()))
    except InvalidToken as error:
        raise SealBroken(_("The console's secret key has changed since this was stored. Give it anew.")) from error
    return secrets


def _fernet(purpose: str) -> Fernet:
    key = hashlib.sha256(f"pitwall {purpose}\0".encode() + settings.SECRET_KEY.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
