"""Whether an address means this machine."""

import ipaddress
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """Return the host of a URL as a `Host` header has it, without its port; an IPv6 address stays in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def is_loopback(url: str) -> bool:
    """Return True if the host of `url` is this machine and no other can reach it there."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
