"""A reward server for Pitwall's built-in trainer, of the standard library alone: copy it and write your own `score`.

    REWARD_TOKEN=some-secret python reward_server.py 8008

In the run: reward "Reward server", address http://<this machine>:8008/score, token variable REWARD_TOKEN, which the
nodes of the cluster have, too. Without REWARD_TOKEN it answers whoever asks: only behind a firewall.
"""

import hmac
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MOST_BYTES = 64 << 20


def score(prompt: str, completion: str, answer: str) -> float:  # noqa: ARG001
    """Return what a completion earns: here 1 for the expected answer anywhere in it, less a little for length."""
    return float(bool(answer) and answer in completion) - 0.0001 * len(completion)


class Handler(BaseHTTPRequestHandler):
    """POST {"version": 1, "prompts": [...], "completions": [...], "answers": [...]} -> {"scores": [...]}."""

    protocol_version = "HTTP/1.1"
    token = ""

    def do_POST(self) -> None:
        """Answer one batch: 200 with scores, or 400, 401, 413 with {"error": ...}, which no client should try again."""
        if self.token and not hmac.compare_digest(self.headers.get("Authorization", ""), f"Bearer {self.token}"):
            self.reply(401, {"error": "wrong token"})
            return
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_BYTES:
            self.reply(413, {"error": f"more than {MOST_BYTES} bytes"})
            return
        try:
            batch = json.loads(self.rfile.read(length))
            rows = list(zip(batch["prompts"], batch["completions"], batch["answers"], strict=True))
        except (ValueError, KeyError, TypeError) as error:
            self.reply(400, {"error": f"not a batch: {error!r}"})
            return
        self.reply(200, {"scores": [score(*row) for row in rows]})  # what raises here is no answer: it is tried again

    def reply(self, status: int, body: object) -> None:
        """Send JSON; after anything but 200 the connection is closed, as the request may not have been read."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status != 200:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


def make_server(port: int, *, token: str = "", host: str = "0.0.0.0") -> ThreadingHTTPServer:
    """Return the server, which `serve_forever` runs; port 0 takes a free one."""
    return ThreadingHTTPServer((host, port), type("Handler", (Handler,), {"token": token}))


if __name__ == "__main__":
    make_server(int(sys.argv[1]), token=os.environ.get("REWARD_TOKEN", "")).serve_forever()
