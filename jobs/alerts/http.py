"""POST to an address that a person gave, without opening the console's own network to them.

The host's name is resolved here, each address it has is looked at, and the connection goes to the very address that was
looked at: a name that points elsewhere a moment later changes nothing. No redirect is followed and no proxy is asked.
"""

import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpcore
from django.conf import settings
from django.utils.translation import gettext as _

from jobs.alerts.handing import Handed, NotDelivered
from jobs.alerts.kinds import AlertRefused

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
MAX_ANSWER_BYTES = 2048
MAX_URL_CHARS = 2000
_RETRIED = (408, 425, 429)


class AddressRefused(OSError):
    """The name leads into a network that this console does not send to."""


def check_url(url: str) -> str:
    """Return the host of an address that messages may go to. Raises: AlertRefused; names are not looked up here."""
    url = url.strip()
    if len(url) > MAX_URL_CHARS or any(ord(c) <= 32 or ord(c) > 126 for c in url):
        raise AlertRefused(
            "address", _("An address has at most %(most)s characters, without spaces.") % {"most": MAX_URL_CHARS}
        )
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        host, parts = "", urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise AlertRefused("address", _("This is not an address of a webhook. It begins with https:// and a host."))
    if parts.username is not None or parts.password is not None:
        raise AlertRefused("address", _("Leave name and password out of the address; they would not be sent."))
    if parts.scheme == "http" and not _is_named(host):
        text = _(
            "Use https://. Plain http:// goes only to hosts that the operator of this console lists in "
            "PITWALL_WEBHOOK_HOSTS; %(host)s is not among them."
        )
        raise AlertRefused("address", text % {"host": host})
    address = _as_address(host)
    if address is not None and not _may_go_to(host, address):
        raise AlertRefused("address", _refusal(host))
    return host


@cache
def _trusted() -> ssl.SSLContext:
    """Return whose certificates are believed: to read them takes longer than to send."""
    return ssl.create_default_context()


def post(url: str, body: bytes, headers: Mapping[str, str], hand_over: Handed) -> str:
    """Send and return the answer in a line: "200 ok". Raises: NotDelivered."""
    was_handed = False

    def trace(name: str, _info: Mapping[str, Any]) -> None:
        nonlocal was_handed
        if name == "http11.send_request_headers.started":
            hand_over()
            was_handed = True

    seconds = {"connect": CONNECT_SECONDS, "pool": CONNECT_SECONDS, "read": ANSWER_SECONDS, "write": ANSWER_SECONDS}
    sent = [("User-Agent", "Pitwall"), ("Content-Type", "application/json"), ("Connection", "close"), *headers.items()]
    try:
        with (
            httpcore.ConnectionPool(ssl_context=_trusted(), network_backend=_Guarded()) as pool,
            pool.stream(
                "POST", url, headers=sent, content=body, extensions={"timeout": seconds, "trace": trace}
            ) as answer,
        ):
            with contextlib.suppress(httpcore.ReadTimeout, httpcore.ReadError, httpcore.RemoteProtocolError):
                text = _first_bytes(answer.iter_stream())
            status, names = answer.status, dict(answer.headers)
    except AddressRefused as error:
        raise NotDelivered(str(error), is_final=True) from error
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
        said = str(error) or type(error).__name__
        raise NotDelivered(said[:300], may_have_arrived=was_handed) from error
    line = f"{status} {text}".strip()
    if 200 <= status < 300:
        return line
    after = names.get(b"Retry-After", b"").decode("ascii", "replace")
    is_final = 300 <= status < 500 and status not in _RETRIED
    raise NotDelivered(
        line, is_final=is_final, retry_after=float(after) if after.isdigit() and len(after) < 6 else None
    )


def _first_bytes(chunks: Iterable[bytes]) -> str:
    """Return the beginning of an answer as one line; however long it is, no more is read."""
    beginning = b""
    for chunk in chunks:
        beginning += chunk
        if len(beginning) >= MAX_ANSWER_BYTES:
            break
    text = beginning[:MAX_ANSWER_BYTES].decode("utf-8", "replace").replace("\0", " ")
    return " ".join(text.split())[:300]


class _Guarded(httpcore.SyncBackend):
    """Connects only where the console may send to."""

    def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host}: {getattr(error, 'strerror', None) or 'no such host'}") from error
        addresses = [str(entry[4][0]).partition("%")[0] for entry in entries]
        if not all(_may_go_to(host, ipaddress.ip_address(address)) for address in addresses):
            raise AddressRefused(_refusal(host))
        return super().connect_tcp(addresses[0], port, *args, **options)


def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None  # a name


def _is_named(host: str) -> bool:
    return host.lower() in {entry.lower() for entry in settings.WEBHOOK_HOSTS} or any(
        _contains(entry, host) for entry in settings.WEBHOOK_HOSTS
    )


def _contains(network: str, address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _may_go_to(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether messages for `host` may go to this address of it: public, or listed by the operator."""
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    if _is_named(host) or any(
        _contains(entry, str(one)) for entry in settings.WEBHOOK_HOSTS for one in (address, inner) if one
    ):
        return True
    if inner is not None and not _is_public(inner):
        return False
    return _is_public(address)


_NOT_PUBLIC = tuple(
    map(
        ipaddress.ip_network,
        (
            "64:ff9b::/96",  # through a gateway any IPv4 address, private ones too
            "64:ff9b:1::/48",
            "::ffff:0:0:0/96",
            "::/96",  # IPv4 in IPv6, as it once was
            "fec0::/10",  # private networks, as they once were
            "192.0.0.0/24",  # metadata of some clouds
        ),
    )
)
"""What Python's `is_global` lets through, in some of its versions."""


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    is_inside = any(address.version == network.version and address in network for network in _NOT_PUBLIC)
    return address.is_global and not address.is_multicast and not is_inside


def _refusal(host: str) -> str:
    text = _(
        "%(host)s is in a private network. The operator of this console can list it in PITWALL_WEBHOOK_HOSTS; "
        "until then nothing is sent there."
    )
    return text % {"host": host}
