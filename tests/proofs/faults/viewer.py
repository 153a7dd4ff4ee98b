"""A page that stays open whatever happens: follows a run's frames by websocket, from where it was cut off."""

import contextlib
import json
import threading

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

AGAIN_SECONDS = 0.3


class Viewer:
    """Notes what it got. `lost`, `doubled`: frames; `num_cuts`: how often it had to come back."""

    def __init__(self, *, url: str, run: str, cookie: str) -> None:
        self.last = self.lost = self.doubled = self.num_cuts = 0
        self._url, self._run, self._cookie = url, run, cookie
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"viewer of {run}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Go away."""
        self._ending.set()
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                self._follow()
            self.num_cuts += not self._ending.is_set()
            self._ending.wait(AGAIN_SECONDS)

    def _follow(self) -> None:
        address = f"{self._url.replace('http', 'ws')}/ws/runs/{self._run}?after={self.last}"
        headers = {"Cookie": f"pitwall_session={self._cookie}"}
        with connect(address, origin=self._url, additional_headers=headers, max_size=None, open_timeout=5) as ws:  # type: ignore[arg-type]
            while not self._ending.is_set():
                with contextlib.suppress(TimeoutError):
                    self._take(json.loads(ws.recv(timeout=0.5)))

    def _take(self, message: dict[str, object]) -> None:
        seq = message.get("seq")
        if message["type"] == "reset" and isinstance(seq, int):
            self.last = seq  # the page reads the series again, which holds them
        if message["type"] != "frame" or not isinstance(seq, int):
            return
        self.lost += max(0, seq - self.last - 1)
        self.doubled += seq <= self.last
        self.last = max(self.last, seq)
