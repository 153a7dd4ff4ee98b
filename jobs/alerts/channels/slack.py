"""Slack's incoming webhooks, and whoever takes their form (Mattermost, Rocket.Chat)."""

import json

from django.utils.translation import gettext_lazy as _

from jobs.alerts.channels.channel import ChannelAddress
from jobs.alerts.content import AlertContent
from jobs.alerts.handing import Handed
from jobs.alerts.http import check_url, post


def _escaped(text: str) -> str:
    """Return text that Slack shows as it is: no link, mention or entity."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Plugin:
    """A headline that links to the run, and a sentence."""

    label = _("Slack")
    hint = _("The address of an incoming webhook, also of Mattermost or Rocket.Chat. It is not shown again.")
    placeholder = "https://hooks.slack.com/services/…"

    def unavailable(self) -> str:
        """Return "": nothing is needed for it."""
        return ""

    def check(self, address: str) -> ChannelAddress:
        """Return the address; all of it is secret."""
        return ChannelAddress(shown=check_url(address), secrets={"url": address.strip()})

    def send(self, content: AlertContent, to: ChannelAddress, hand_over: Handed) -> str:
        """Send it as text with a link."""
        link = f"<{content.url}|{_escaped(content.headline)}>"
        lines = [f"*{link}*", *map(_escaped, content.lines)]
        about = " · ".join(part for part in (content.severity, content.project, content.rule) if part)
        body = {
            "text": _escaped(content.headline),
            "blocks": [
                {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(lines)[:2900]}},
                {"type": "context", "elements": [{"type": "mrkdwn", "text": _escaped(about)[:500]}]},
            ],
        }
        return post(to.secrets["url"], json.dumps(body).encode(), {"Idempotency-Key": content.key}, hand_over)


PLUGIN = Plugin()
