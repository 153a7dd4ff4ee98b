"""M1, M4 (passwords), L3, L5, L11: people who are gone, links, passwords, and what is written of them."""

import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.attacks.bodies import socket_of
from tests.proofs.security.scene import PASSWORD
from tests.proofs.security.site import Site

NAMES = 105  # that one address tries
GONE_SECONDS = 8.0
CSRF = "x" * 32
FORM = {"Cookie": f"csrftoken={CSRF}", "X-CSRFToken": CSRF}  # as a page of the console sends them


@attack("M1")
def who_was_deactivated_goes_on(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """With the cookie, the token, the link and the open page of before."""
    del scene
    made = json.loads(site.python(_VICTIM).splitlines()[-1])
    tried = "cookie, token, link and websocket of who is deactivated"
    if missing := {"token", "session"} - set(_ways_in(site, made)):
        return outcome(tried, stopped_by="", got=f"it proves nothing, not let in before: {', '.join(missing)}")
    with socket_of(site, made["cookie"]) as page:
        page.recv(timeout=10)
        site.manage("account", "deactivate", made["name"])
        until = time.monotonic() + GONE_SECONDS
        left = ["all"]
        while left and time.monotonic() < until:
            left = _ways_in(site, made)
        left += ["link"] if _enters(site, made["link"]) else []
        left += [] if _ends(page, seconds=GONE_SECONDS) else ["websocket"]
    return outcome(tried, stopped_by="all ended", got=", ".join(left))


def _ways_in(site: Site, made: Mapping[str, str]) -> list[str]:
    with site.client() as client:
        token = client.get("/api/account", headers={"Authorization": f"Bearer {made['token']}"})
    with site.client() as client:
        page = client.get("/runs", headers={"Cookie": f"pitwall_session={made['cookie']}"})
    return [name for name, answer in (("token", token), ("session", page)) if answer.status_code == 200]


def _ends(page: ClientConnection, *, seconds: float) -> bool:
    """Return whether the websocket is closed within so many seconds."""
    until = time.monotonic() + seconds
    try:
        while (left := until - time.monotonic()) > 0:
            page.recv(timeout=left)
    except ConnectionClosed:
        return True
    except TimeoutError:
        pass
    return False


_VICTIM = """
import json, secrets
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from console.sign_in.api_token import make_token
from console.sign_in.link import make_link
from jobs.models import Membership, Project
user = User.objects.create_user(username="victim-" + secrets.token_hex(4))
Membership.objects.create(project=Project.objects.get(slug="theirs"), user=user, role="editor")
client = Client()
client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
link = make_link(user=user, base_url="http://x", now=timezone.now()).partition("http://x")[2]
token = make_token(user=user, name="t")[1]
cookie = client.cookies["pitwall_session"].value
print(json.dumps({"name": user.username, "token": token, "cookie": cookie, "link": link}))
"""


def _enters(site: Site, link: str) -> bool:
    """Return whether the button of the link's page signs in."""
    with site.client(headers=FORM) as client:
        return "pitwall_session" in client.post(link, follow_redirects=False).cookies


@attack("L5")
def a_scanner_uses_a_link_up(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """A mail scanner follows the link before the person does, and another page sends its form."""
    del scene
    link = json.loads(site.python(_VICTIM).splitlines()[-1])["link"]
    got = []
    for method in ("GET", "HEAD", "POST"):
        with site.client() as client:
            answer = client.request(method, link, follow_redirects=False)
            got += [f"{method} signs in"] if "pitwall_session" in answer.cookies else []
    got += [] if _enters(site, link) else ["the link is used up"]
    got += ["it works twice"] if _enters(site, link) else []
    tried = "GET, HEAD and POST without a CSRF token of a one-time link"
    return outcome(tried, stopped_by="they sign nobody in; its own button does, once", got=", ".join(got))


@attack("L3")
def a_sign_in_leaves_no_trace(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """A right password, a wrong one, and a link: who was it, and from where?"""
    del scene
    for password in (PASSWORD, "wrong one"):
        with site.client(headers=FORM) as client:
            client.post("/signin", data={"username": "a-viewer", "password": password})
    _enters(site, urlsplit(site.manage("signin-link", "a-viewer").strip()).path)
    verbs = "from jobs.models import AuditEvent; print(*AuditEvent.objects.values_list('verb', flat=True).distinct())"
    written = site.python(verbs).split()
    missing = [v for v in ("signin.password", "signin.failed", "link.create", "signin.link") if v not in written]
    return outcome(
        "signing in unseen", stopped_by="rows of the audit", got=f"no {', '.join(missing)}" if missing else ""
    )


@attack("L3")
def a_row_of_the_audit_is_changed(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """By whoever reaches the database with the console's own account."""
    del scene
    told = site.python(_FORGED).split()
    got = ", ".join(word for word in told if word != "refused")
    return outcome("UPDATE and DELETE of rows of the audit", stopped_by="the database refuses", got=got)


_FORGED = """
from django.db import Error, connection, transaction
for name, statement in (
    ("changed", "UPDATE jobs_auditevent SET verb = 'x'"), ("deleted", "DELETE FROM jobs_auditevent"),
):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
        print(name)
    except Error:
        print("refused")
"""


@attack("M4")
def an_address_tries_many_names(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """One wrong password for each of a hundred names: no pair of name and address is tried twice."""
    del scene
    status = 0
    tried = 0
    with site.client(headers=FORM) as client:
        for tried in range(1, NAMES + 1):
            form = {"username": f"person-{tried}", "password": "not the right one"}
            status = client.post("/signin", data=form).status_code
            if status in (403, 429):
                break
    site.manage("axes_reset")  # what comes after signs in from the same address
    got = "" if status in (403, 429) else f"{tried} names, the last answered {status}"
    return outcome("one password on many names", stopped_by=f"{status} at name {tried}", got=got)


@attack("L11")
def what_expired_stays_for_good(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Sessions and links of a month ago, and the sweep that `reconcile` does as it starts and once a day."""
    del scene
    site.python(_OLD)
    site.python(_SWEPT)
    left = site.python(_LEFT).split()[-1]
    return outcome(
        "rows that expired a month ago", stopped_by="the daily sweep", got="" if left == "0" else f"{left} are left"
    )


_SWEPT = """
from django.utils import timezone
from jobs.processes.housekeeping import sweep_expired
sweep_expired(now=timezone.now())
"""
_OLD = """
from datetime import timedelta
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
from jobs.models import SigninLink
old = timezone.now() - timedelta(days=31)
Session.objects.get_or_create(session_key="o" * 32, defaults={"session_data": "x", "expire_date": old})
SigninLink.objects.get_or_create(sha256="o" * 64, defaults={"user": User.objects.first(), "expires_at": old})
"""
_LEFT = """
from django.contrib.sessions.models import Session
from jobs.models import SigninLink
print(Session.objects.filter(session_key="o" * 32).count() + SigninLink.objects.filter(sha256="o" * 64).count())
"""
