"""Half-sent bodies and long messages against a real web process, over raw sockets."""

import hashlib
import socket
from pathlib import Path

import pytest
from django.conf import settings
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from console.middleware.body_limit import SMALL_BYTES
from console.sign_in.api_token import make_token
from jobs.models import Upload
from jobs.preflight.inputs import uploads_dir
from tests.console.live_console import LiveConsole
from tests.loopback import HTTP
from tests.waiting import wait_until

SIZE = 24 << 20
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="rows.jsonl"\r\n\r\n'


def _open_files(port: int) -> list[str]:
    """Return the deleted or incoming temporary files that the web process at this port has open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"web" not in words or f"PITWALL_PORT={port}".encode() not in (process / "environ").read_bytes():
                continue
            found += [str(each.readlink()) for each in (process / "fd").iterdir()]
        except OSError:
            continue
    return [name for name in found if "deleted" in name or "/incoming/" in name]


def _connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.parametrize("length", ["content-length: 1000000000", "transfer-encoding: chunked"])
def test_a_stranger_is_answered_before_the_second_mebibyte_and_leaves_no_file(
    live_console: LiveConsole, length: str
) -> None:
    port = int(live_console.url.rpartition(":")[2])
    with _connect(live_console.url) as line:
        line.sendall(f"POST /api/uploads HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{length}\r\n\r\n".encode())
        piece = b"x" * (64 << 10)
        sent = 0
        line.setblocking(False)
        answer = b""
        while not answer and sent < 2 * SMALL_BYTES:
            line.settimeout(0.05)
            try:
                answer = line.recv(65536)
            except TimeoutError:
                line.settimeout(60)
                line.sendall(piece if "content" in length else b"10000\r\n" + piece + b"\r\n")
                sent += len(piece)

        assert answer.startswith(b"HTTP/1.1 401"), (sent, answer)
        assert sent <= SMALL_BYTES + len(piece)
        assert not _open_files(port)


def test_a_long_upload_of_somebody_we_know_is_written_once_beside_its_part_file(live_console: LiveConsole) -> None:
    port = int(live_console.url.rpartition(":")[2])
    token = make_token(user=live_console.user, name="upload")[1]
    row = b'{"prompt": "1+1=", "answer": "2"}\n'
    content = row * (SIZE // len(row))
    whole = HEAD + content + b"\r\n--b--\r\n"
    with _connect(live_console.url) as line:
        line.sendall(
            f"POST /api/uploads?project={live_console.project.slug} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {token}\r\ncontent-type: multipart/form-data; boundary=b\r\n"
            f"content-length: {len(whole)}\r\nconnection: close\r\n\r\n".encode()
        )
        line.sendall(whole[: len(whole) // 2])
        wait_until(lambda: len(_open_files(port)) == 1, 60, what="no upload is being written")
        (coming,) = _open_files(port)
        assert Path(coming).parent == Path(settings.FILE_UPLOAD_TEMP_DIR)  # and nowhere else besides
        line.sendall(whole[len(whole) // 2 :])
        answer = b"".join(iter(lambda: line.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 201"), answer
    upload = Upload.objects.get(project=live_console.project)
    assert upload.sha256 == hashlib.sha256(content).hexdigest()
    assert (uploads_dir() / upload.sha256).stat().st_size == len(content)
    assert not _open_files(port)
    assert not list(Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir())


def test_an_upload_that_breaks_off_leaves_nothing(live_console: LiveConsole) -> None:
    port = int(live_console.url.rpartition(":")[2])
    token = make_token(user=live_console.user, name="broken")[1]
    with _connect(live_console.url) as line:
        line.sendall(
            f"POST /api/uploads HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n"
            f"content-type: multipart/form-data; boundary=b\r\ncontent-length: {SIZE}\r\n\r\n".encode()
        )
        line.sendall(HEAD + b"x" * (8 << 20))
        wait_until(lambda: bool(_open_files(port)), 60, what="no upload is being written")

    wait_until(lambda: not _open_files(port), 20, what=lambda: f"these are left: {_open_files(port)}")
    assert HTTP.get(f"{live_console.url}/healthz", timeout=60).status_code == 200


def test_a_long_message_closes_the_websocket(live_console: LiveConsole) -> None:
    cookie = live_console.session_cookie()
    address = f"{live_console.url.replace('http', 'ws')}/ws/updates?project={live_console.project.slug}"
    headers = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    with connect(address, origin=Origin(live_console.url), additional_headers=headers) as feed:
        assert "heartbeat" in feed.recv(60)
        feed.send("x" * 1025)
        with pytest.raises(ConnectionClosed) as closed:
            list(iter(lambda: feed.recv(60), None))
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
