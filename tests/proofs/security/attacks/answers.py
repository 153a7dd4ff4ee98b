"""L4, L6, L10 and a page without knobs: what answers carry, and how soon they come."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.site import Site

ROOT = Path(__file__).resolve().parents[4]
PAGES = ("/", "/runs", "/account", "/settings", "/cluster", "/guide/knobs", "/tune", "/traces/")
CALLS = ("/api/account", "/api/projects", "/api/runs?project=theirs", "/api/tokens")
DOCUMENT_SECONDS = 0.5


@attack("L4")
def back_after_signing_out(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """What a browser keeps of a signed-in person's pages, it shows to who presses Back."""
    stored = []
    with site.client() as client:
        for path in (*PAGES, *CALLS):
            is_api = path in CALLS
            token, cookie = scene["tokens"]["admin"], f"pitwall_session={scene['cookies']['admin']}"
            answer = client.get(path, headers={"Authorization": token} if is_api else {"Cookie": cookie})
            if answer.status_code == 200 and "no-store" not in answer.headers.get("cache-control", ""):
                stored.append(path)
    return outcome("pages kept by a browser", stopped_by="no-store", got=", ".join(stored))


@attack("L6", is_local=True)
def plain_http_after_tls(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """With PITWALL_TLS browsers are told to come back by TLS alone."""
    del site, scene
    code = "from django.conf import settings as s; print(s.SECURE_HSTS_SECONDS)"
    environment = {**os.environ, "PITWALL_TLS": "1", "DJANGO_SETTINGS_MODULE": "console.settings"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    seconds = int(done.stdout.split()[-1])
    return outcome("http:// after https://", stopped_by=f"HSTS of {seconds} s", got="" if seconds else "no HSTS")


@attack("L10")
def the_document_blocks_a_process(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """The OpenAPI document of a process that nobody has asked for it yet; asked before anything else is."""
    del scene
    slowest = site_first_document.get(site.name, 0.0)
    got = "" if slowest < DOCUMENT_SECONDS else f"{slowest:.1f} s"
    return outcome("the first /api/openapi.json", stopped_by=f"{slowest:.2f} s", got=got)


site_first_document: dict[str, float] = {}


def ask_first_document(site: Site, scene: Mapping[str, Any]) -> None:
    """Time the very first document of each web process."""
    for url in site.urls:
        with site.client(headers={"Authorization": scene["tokens"]["admin"]}) as client:
            began = time.perf_counter()
            client.get(f"{url}/api/openapi.json").raise_for_status()
            seconds = time.perf_counter() - began
        site_first_document[site.name] = max(site_first_document.get(site.name, 0.0), seconds)


@attack("also")
def a_study_without_knobs(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Its page."""
    cookie = {"Cookie": f"pitwall_session={scene['cookies']['viewer']}"}
    with site.client() as client:
        status = client.get(f"/tune/{scene['values']['knobless']}", headers=cookie).status_code
    return outcome("/tune of a study without knobs", stopped_by=f"{status}", got=f"{status}" if status >= 500 else "")
