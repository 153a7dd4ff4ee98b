"""M2, M3, L8: bodies nobody may send, disks that fill, sockets without end."""

import contextlib
import hashlib
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.site import Site

MIB = 1 << 20
SOCKETS = 60


@attack("M3")
def nobody_parks_a_long_body(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Headers that promise a gigabyte to /api/uploads, some of it, and then silence."""
    del scene
    at = urlsplit(site.url)
    host = site.headers.get("Host", at.netloc)
    head = f"POST /api/uploads HTTP/1.1\r\nHost: {host}\r\nContent-Length: {1000 * MIB}\r\n"
    head += "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    sent = 0
    answer = b""
    with socket.create_connection((at.hostname or "", at.port or 80), 10) as line:
        line.sendall(head.encode())
        line.settimeout(0.2)
        until = time.monotonic() + 40
        while not answer and time.monotonic() < until:
            with contextlib.suppress(TimeoutError, ConnectionError):
                if sent < 32:
                    line.sendall(b"x" * MIB)
                    sent += 1
                answer = line.recv(4096)
    told = answer.split(b"\r\n")[0].decode() if answer else ""
    got = "" if answer and sent < 20 else f"{sent} MiB were taken from nobody" + (f", then {told}" if told else "")
    return outcome("1 GiB announced to /api/uploads by nobody", stopped_by=f"{told} after {sent} MiB", got=got)


@attack("M2")
def an_upload_cannot_be_deleted(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """What an editor has put on the disk, an editor must be able to take away."""
    rows = b'{"prompt": "1+1=", "answer": "2"}\n' * 50
    with site.client(headers={"Authorization": scene["tokens"]["editor"]}) as client:
        sent = client.post("/api/uploads", params={"project": "theirs"}, files={"file": ("mine.jsonl", rows)})
        if sent.status_code >= 400:
            return outcome("an upload", stopped_by="", got=f"it was refused: {sent.status_code} {sent.text[:120]}")
        sha = hashlib.sha256(rows).hexdigest()
        deleted = client.delete(f"/api/uploads/{sha}", params={"project": "theirs"})
        left = [
            u for u in client.get("/api/uploads", params={"project": "theirs"}).json()["uploads"] if u["sha256"] == sha
        ]
    got = f"it stays: {deleted.status_code}" if left or deleted.status_code >= 400 else ""
    return outcome("uploads that stay for good", stopped_by=f"DELETE answers {deleted.status_code}", got=got)


@contextlib.contextmanager
def _open(site: Site, scene: Mapping[str, Any]) -> Iterator[list[Any]]:
    opened: list[Any] = []
    try:
        yield opened
    finally:
        for one in opened:
            with contextlib.suppress(Exception):
                one.close()


def socket_of(site: Site, cookie: str, path: str = "/ws/updates?project=theirs") -> ClientConnection:
    """Open a websocket as a page does; without a cookie, of somebody signed out."""
    at = urlsplit(site.url)
    host = site.headers.get("Host", at.netloc)
    line = socket.create_connection((at.hostname or "", at.port or 80), 10)
    headers = {"Cookie": f"pitwall_session={cookie}"} if cookie else {}
    url = f"ws://{host}{path}"
    return connect(url, sock=line, origin=Origin(f"http://{host}"), additional_headers=headers, close_timeout=1)


@attack("L8")
def one_person_opens_sixty_websockets(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """All with one cookie."""
    refusal = ""
    with _open(site, scene) as opened:
        for number in range(1, SOCKETS + 1):
            try:
                opened.append(socket_of(site, scene["cookies"]["viewer"]))
                opened[-1].recv(timeout=10)
            except ConnectionClosed as error:
                refusal = f"number {number} was closed with {error.rcvd.code if error.rcvd else 'nothing'}"
                break
            except (InvalidHandshake, TimeoutError) as error:
                refusal = f"number {number}: {type(error).__name__}"
                break
    got = "" if refusal else f"{SOCKETS} open at once"
    return outcome(f"{SOCKETS} websockets of one person", stopped_by=refusal, got=got)


@attack("L8")
def a_browser_sends_long_messages(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Pages send nothing, so that whatever is long is none of theirs."""
    with _open(site, scene) as opened:
        try:
            opened.append(socket_of(site, scene["cookies"]["editor"]))
            opened[0].recv(timeout=10)
            opened[0].send("x" * 500_000)
            for _ in range(3):
                opened[0].recv(timeout=7)
        except (ConnectionClosed, ConnectionError) as error:
            return outcome("a message of 500 kB", stopped_by=f"the socket was closed: {error}")
        except TimeoutError:
            pass
    return outcome("a message of 500 kB", stopped_by="", got="it was read, and the socket stayed")
