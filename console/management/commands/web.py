"""`manage.py web`: pages, API and websocket, served by uvicorn."""

import logging
import threading
import warnings
from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from console.hardening import harden
from jobs.preflight.trial_switch import start_line

log = logging.getLogger(__name__)


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
        uvicorn.run(
            settings.ASGI_APPLICATION.replace(".application", ":application"),
            host=options["host"],
            port=options["port"],
            ws="websockets-sansio",
            ws_per_message_deflate=False,  # live frames are small, and deflate doubled the latency
            timeout_graceful_shutdown=3,  # browsers' sockets never end by themselves
            access_log=settings.DEBUG,
            log_config=None,  # as settings.LOGGING says
            lifespan="off",
            server_header=False,
            proxy_headers=bool(settings.TRUSTED_PROXIES),
            forwarded_allow_ips=settings.TRUSTED_PROXIES,
        )
