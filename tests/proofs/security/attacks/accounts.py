"""M1, M4 (passwords), L3, L5, L11: people who are gone, links, passwords, and what is written of them."""

import json
import time
from collections.abc import Mapping
from typing import Any

from tests.proofs.security.attack import Outcome, attack, outcome
from tests.proofs.security.scene import PASSWORD
from tests.proofs.security.site import Site

NAMES = 105  # that one address tries
GONE_SECONDS = 8.0


@attack("M1")
def who_was_deactivated_goes_on(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """With the cookie, the token and the link of before."""
    del scene
    made = json.loads(site.python(_VICTIM).splitlines()[-1])
    try:
        site.manage("account", "deactivate", "victim")
    except Exception as error:  # whatever the command does
        return outcome("deactivating an account", stopped_by="", got=f"there is no way to: {type(error).__name__}")
    until = time.monotonic() + GONE_SECONDS
    left = ["all"]
    while left and time.monotonic() < until:
        with site.client() as client:
            headers = {"Authorization": f"Bearer {made['token']}"}
            cookie = {"Cookie": f"pitwall_session={made['cookie']}"}
            left = ["token"] if client.get("/api/account", headers=headers).status_code == 200 else []
            left += ["session"] if client.get("/runs", headers=cookie).status_code == 200 else []
            left += ["link"] if _enters(site, made["link"]) else []
    return outcome("cookie, token and link of who is deactivated", stopped_by="all ended", got=", ".join(left))


_VICTIM = """
import json
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from console.sign_in.api_token import make_token
from console.sign_in.link import make_link
from jobs.models import Membership, Project
user, _ = User.objects.get_or_create(username="victim")
Membership.objects.get_or_create(project=Project.objects.get(slug="theirs"), user=user, defaults={"role": "editor"})
client = Client()
client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
link = make_link(user=user, base_url="http://x", now=timezone.now()).partition("http://x")[2]
token = make_token(user=user, name="t")[1]
print(json.dumps({"token": token, "cookie": client.cookies["pitwall_session"].value, "link": link}))
"""


def _enters(site: Site, link: str) -> bool:
    with site.client() as client:
        return "pitwall_session" in client.get(link, follow_redirects=False).cookies


@attack("L5")
def a_scanner_uses_a_link_up(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """A mail scanner follows the link before the person does."""
    del scene
    link = json.loads(site.python(_VICTIM).splitlines()[-1])["link"]
    got = "the scanner is signed in, and the link is used up" if _enters(site, link) else ""
    return outcome("GET of a one-time link", stopped_by="it signs nobody in", got=got)


@attack("M4")
def an_address_tries_many_names(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """One wrong password for each of a hundred names: no pair of name and address is tried twice."""
    del scene
    token = "x" * 32
    headers = {"Cookie": f"csrftoken={token}", "X-CSRFToken": token}
    status = 0
    tried = 0
    with site.client(headers=headers) as client:
        for tried in range(1, NAMES + 1):
            form = {"username": f"person-{tried}", "password": "not the right one"}
            status = client.post("/signin", data=form).status_code
            if status in (403, 429):
                break
    got = "" if status in (403, 429) else f"{tried} names, the last answered {status}"
    return outcome("one password on many names", stopped_by=f"{status} at name {tried}", got=got)


@attack("L3")
def a_sign_in_leaves_no_trace(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """A right password, a wrong one, and a link: who was it, and from where?"""
    del scene
    token = "x" * 32
    headers = {"Cookie": f"csrftoken={token}", "X-CSRFToken": token}
    for password in (PASSWORD, "wrong one"):
        with site.client(headers=headers) as client:
            client.post("/signin", data={"username": "a-viewer", "password": password})
    site.python(_VICTIM)
    verbs = "from jobs.models import AuditEvent; print(*AuditEvent.objects.values_list('verb', flat=True).distinct())"
    written = site.python(verbs).split()
    missing = [v for v in ("signin.password", "signin.failed", "link.create") if v not in written]
    return outcome(
        "signing in unseen", stopped_by="rows of the audit", got=f"no {', '.join(missing)}" if missing else ""
    )


@attack("L11")
def what_expired_stays_for_good(site: Site, scene: Mapping[str, Any]) -> Outcome:
    """Sessions and links of a month ago."""
    del scene
    site.python(_OLD)
    until = time.monotonic() + 30
    left = "2"
    while left != "0" and time.monotonic() < until:
        left = site.python(_LEFT).split()[-1]
    return outcome(
        "rows that expired a month ago", stopped_by="they are gone", got="" if left == "0" else f"{left} are left"
    )


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
