"""Discord's webhooks."""

import json

from django.utils.translation import gettext_lazy as _

from jobs.alerts.channels.channel import ChannelAddress
from jobs.alerts.content import AlertContent
from jobs.alerts.handing import Handed
from jobs.alerts.http import check_url, post

_COLORS = {"info": 0x2F62D9, "warning": 0x8A5300, "critical": 0xC02434}
_RESOLVED = 0x15703D


class Plugin:
    """One embed that links to the run; nobody is mentioned, whatever a run is called."""

    label = _("Discord")
    hint = _("The address of a webhook of a channel. It is not shown again.")
    placeholder = "https://discord.com/api/webhooks/…"

    def unavailable(self) -> str:
        """Return "": nothing is needed for it."""
        return ""

    def check(self, address: str) -> ChannelAddress:
        """Return the address; all of it is secret."""
        return ChannelAddress(shown=check_url(address), secrets={"url": address.strip()})

    def send(self, content: AlertContent, to: ChannelAddress, hand_over: Handed) -> str:
        """Send it as an embed."""
        about = " · ".join(part for part in (content.severity, content.project, content.rule) if part)
        embed = {
            "title": content.headline[:250],
            "url": content.url,
            "description": "\n".join(content.lines)[:2000],
            "color": _RESOLVED if content.event == "resolved" else _COLORS[content.severity],
            "footer": {"text": about[:500]},
            "timestamp": content.at,
        }
        body = {"embeds": [embed], "allowed_mentions": {"parse": []}}
        return post(to.secrets["url"], json.dumps(body).encode(), {"Idempotency-Key": content.key}, hand_over)


PLUGIN = Plugin()
