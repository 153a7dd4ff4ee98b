"""A webhook of one's own: JSON, signed, with a key that stays the same however often a message is tried."""

import hashlib
import hmac
import json
import secrets as random
import time

from django.utils.translation import gettext_lazy as _

from jobs.alerts.channels.channel import ChannelAddress
from jobs.alerts.content import AlertContent
from jobs.alerts.handing import Handed
from jobs.alerts.http import check_url, post


class Plugin:
    """POST of JSON; `Pitwall-Signature` is HMAC-SHA256 over timestamp, a dot and the body."""

    label = _("Webhook")
    hint = _("JSON by POST, signed with a secret that is shown once. The address is not shown again.")
    placeholder = "https://"

    def unavailable(self) -> str:
        """Return "": nothing is needed for it."""
        return ""

    def check(self, address: str) -> ChannelAddress:
        """Return the address with a new signing secret."""
        host = check_url(address)
        secrets = {"url": address.strip(), "signing_secret": random.token_urlsafe(32)}
        return ChannelAddress(shown=host, secrets=secrets)

    def send(self, content: AlertContent, to: ChannelAddress, hand_over: Handed) -> str:
        """Send the facts."""
        body = json.dumps(content.as_json()).encode()
        stamp = str(int(time.time()))
        headers = {
            "Idempotency-Key": content.key,
            "Pitwall-Event": content.event,
            "Pitwall-Timestamp": stamp,
            "Pitwall-Signature": f"v1={signature(to.secrets['signing_secret'], stamp, body)}",
        }
        return post(to.secrets["url"], body, headers, hand_over)


def signature(secret: str, stamp: str, body: bytes) -> str:
    """Return what a receiver computes, too, to know that a message is from this console and not old."""
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


PLUGIN = Plugin()
