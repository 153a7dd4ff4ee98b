"""Headers for websockets: each change of a run is read from the database once per web process, however many watch."""

import asyncio
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass
from weakref import WeakKeyDictionary

import orjson
from channels.db import database_sync_to_async

from jobs.models import Run
from jobs.runs.header import run_header

MAX_AGE_SECONDS = 2.0  # silence changes a header too: lost contact, elapsed time
MAX_RUNS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderMessage:
    """A `run` message as JSON text, and the project that may see it."""

    project: str
    text: str


class Headers:
    """Remembers headers until the run changes. One per event loop; `headers()` finds it."""

    def __init__(self) -> None:
        self._cached: OrderedDict[str, tuple[float, asyncio.Future[HeaderMessage | None]]] = OrderedDict()

    async def get(self, run_id: str) -> HeaderMessage | None:
        """Return the run's header, None if there is no such run."""
        at, reading = self._cached.get(run_id, (0.0, None))
        if reading is None or time.monotonic() - at > MAX_AGE_SECONDS:
            reading = asyncio.ensure_future(database_sync_to_async(_read, thread_sensitive=False)(run_id))
            self._cached[run_id] = time.monotonic(), reading
            if len(self._cached) > MAX_RUNS:
                self._cached.popitem(last=False)
        try:
            return await asyncio.shield(reading)
        except Exception:
            self.forget(run_id)
            raise

    def forget(self, run_id: str) -> None:
        """The run changed: what is being read right now may be older, and is for those who asked before."""
        self._cached.pop(run_id, None)


def _read(run_id: str) -> HeaderMessage | None:
    run = Run.objects.select_related("project", "created_by").filter(pk=run_id, trashed_at=None).first()
    if run is None:
        return None
    text = orjson.dumps({"type": "run", "run": asdict(run_header(run))}).decode()
    return HeaderMessage(project=run.project.slug, text=text)


_headers: WeakKeyDictionary[asyncio.AbstractEventLoop, Headers] = WeakKeyDictionary()


def headers() -> Headers:
    """Return the headers of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _headers:
        _headers[loop] = Headers()
    return _headers[loop]
