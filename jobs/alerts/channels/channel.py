"""What a channel is: a file of this folder that checks an address and sends a message to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from django.utils.functional import Promise

from jobs.alerts.content import AlertContent
from jobs.alerts.handing import Handed
from profiling import plugins

FOLDER = "jobs.alerts.channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAddress:
    """A checked address: what may be shown of it, and what must not be."""

    shown: str
    secrets: Mapping[str, str]


class ChannelPlugin(Protocol):
    """A way to reach somebody."""

    label: Promise
    hint: Promise
    placeholder: str

    def unavailable(self) -> str:
        """Return why this console cannot use it, as a sentence; "" if it can."""

    def check(self, address: str) -> ChannelAddress:
        """Return the address as it is kept. Raises: jobs.alerts.kinds.AlertRefused."""

    def send(self, content: AlertContent, to: ChannelAddress, hand_over: Handed) -> str:
        """Send, once, and return the receiver's answer in a line. Raises: NotDelivered."""


def channel_kinds() -> tuple[str, ...]:
    """Return the ids of all kinds of channels."""
    return plugins.names(FOLDER)


def channel_plugin(kind: str) -> ChannelPlugin:
    """Return a kind of channel. Raises: profiling.plugins.UnknownPlugin."""
    plugin: ChannelPlugin = plugins.load(FOLDER, kind)
    return plugin
