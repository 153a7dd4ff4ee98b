"""`manage.py web`: pages, API and websocket, served by uvicorn."""

import contextlib
import logging
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from console.api.docs import make_in_background
from console.hardening import harden
from console.http_protocol import PatientForAWhile
from console.websocket_protocol import WritesFrames
from jobs.planning.search_pool import pool
from jobs.preflight.trial_switch import start_line
from jobs.telemetry.heartbeats import Heartbeat

log = logging.getLogger(__name__)
KEEP_ALIVE_SECONDS = 20
"""Between two requests. A proxy must let go earlier (docker-compose.yml), or it sends into a line that we close."""
WS_MAX_BYTES = 1024
"""Of a message from a client: our pages send none at all."""

_STALE_SECONDS = 86_400


def sweep_incoming() -> None:
    """Remove what a web process that was killed in the middle of an upload has left."""
    for file in Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _STALE_SECONDS:
                file.unlink()


def _say_how_trials_are_confined() -> None:
    if line := start_line():
        log.warning(line)


class Command(BaseCommand):
    help = "Serve pages, API and websocket. Run as many as you like behind one address."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=settings.HOST, help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=settings.PORT, help="port to listen on (default: %(default)s)")

    def handle(self, *_: Any, **options: Any) -> None:
        harden()
        threading.Thread(target=_say_how_trials_are_confined, name="trials", daemon=True).start()
        # Static files are read in pieces by plain reads, which Django mentions once a process.
        warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
        Heartbeat("web").keep_beating()
        sweep_incoming()
        from console.api.api import api  # all of it, which other commands have no need of

        make_in_background(api)
        uvicorn.run(
            settings.ASGI_APPLICATION.replace(".application", ":application"),
            host=options["host"],
            port=options["port"],
            http=PatientForAWhile,
            ws=WritesFrames,
            ws_max_size=WS_MAX_BYTES,
            ws_per_message_deflate=False,  # live frames are small, and deflate doubled the latency
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            limit_concurrency=settings.MAX_CONNECTIONS,  # beyond it 503: better than a process without descriptors
            timeout_graceful_shutdown=3,  # browsers' sockets never end by themselves
            access_log=settings.DEBUG,
            log_config=None,  # as settings.LOGGING says
            lifespan="off",
            server_header=False,
            proxy_headers=bool(settings.TRUSTED_PROXIES),
            forwarded_allow_ips=settings.TRUSTED_PROXIES,
        )
        pool().close()
