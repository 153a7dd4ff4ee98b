"""Sign-in by OpenID Connect, against a real provider in a process of its own: there, back, and each way it fails."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from console.sign_in import provider as providers
from console.sign_in.link import make_link
from console.sign_in.oidc_settings import OidcSettings
from jobs.accounts.group_mapping import read_groups
from jobs.accounts.identities import connect
from jobs.accounts.members import set_member
from jobs.models import AuditEvent, Identity, Membership, Project
from tests.loopback import HTTP
from tests.rows import make_project, make_user, signed_in

pytestmark = pytest.mark.django_db

HERE = "http://127.0.0.1:8000"  # where the console of the test would be; Django's client stands in for it
GROUPS = "ml=team:editor; ml-leads=team:admin; vision=vision:viewer; ops=superuser"


class TheProvider:
    """The provider's process, told who comes next."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer

    def tell(self, **told: Any) -> None:
        HTTP.post(f"{self.issuer}/control", json=told).raise_for_status()

    def person(self, name: str, *groups: str, sub: str = "", **more: Any) -> None:
        claims = {"preferred_username": name, "groups": list(groups)}
        self.tell(person={"sub": sub or f"sub-{name}", "claims": claims, **more})

    def visit(self, url: str) -> str:
        """Do as a browser does at the provider; return the address in the console that it leads back to."""
        with httpx.Client() as browser:
            for _ in range(8):
                answer = browser.get(url)
                assert answer.is_redirect, answer.text
                url = str(answer.url.join(answer.headers["Location"]))
                if url.startswith(HERE):
                    return url.removeprefix(HERE)
        raise AssertionError(f"the provider led nowhere: {url}")


@pytest.fixture(scope="module")
def running() -> Iterator[TheProvider]:
    node = shutil.which("node")
    script = Path(__file__).with_name("provider.mjs")
    looked = [*os.environ.get("NODE_PATH", "").split(os.pathsep), *(p / "node_modules" for p in script.parents)]
    if node is None or not any((Path(place) / "oidc-provider").is_dir() for place in looked if str(place)):
        pytest.skip("Node.js with oidc-provider is not here (make install-dev installs it)")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [node, str(script), HERE], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as it:
        assert it.stdout is not None
        issuer = next((line.strip() for line in it.stdout if line.startswith("http://")), "")
        assert issuer, "the provider did not start; it needs Node.js 20 or newer"
        yield TheProvider(issuer)
        it.terminate()


@pytest.fixture
def idp(running: TheProvider, settings: Any) -> TheProvider:
    settings.PUBLIC_URL = HERE
    settings.ALLOWED_HOSTS = ["*"]
    settings.OIDC = configured(running)
    running.tell(forges=False)
    return running


def configured(running: TheProvider, **more: Any) -> OidcSettings:
    values = {"name": "Example", "scopes": "openid profile groups", "groups": read_groups(GROUPS)} | more
    client = {"client_id": "pitwall", "client_secret": "a secret of the test"}
    return OidcSettings(issuer=running.issuer, **client, **values)


@pytest.fixture
def team() -> Project:
    return make_project("team")


def begun(client: Client, query: str = "") -> str:
    return str(client.get(f"/signin/oidc{query}")["Location"])


def sign_in(idp: TheProvider, client: Client | None = None) -> Any:
    """Sign in whoever the provider has; return the console's answer to who comes back."""
    client = client or Client()
    return client.get(idp.visit(begun(client)))


def roles(name: str) -> dict[str, str]:
    return dict(Membership.objects.filter(user__username=name).values_list("project__slug", "role"))


def said(answer: Any) -> str:
    assert answer.status_code in (403, 502)
    assert not answer.wsgi_request.user.is_authenticated
    return str(answer.content.decode())


def test_a_person_signs_in_with_the_roles_of_their_groups(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml", "ml-leads", "unrelated")
    client = Client()

    asked = parse_qs(urlsplit(begun(client, "?next=/runs%3Fq%3Dx")).query)
    answer = client.get(idp.visit(begun(client, "?next=/runs%3Fq%3Dx")))

    assert asked["code_challenge_method"] == ["S256"]
    assert {"state", "nonce"} <= set(asked)
    assert answer["Location"] == "/runs?q=x"
    assert answer.wsgi_request.user.username == "mara"
    assert not User.objects.get(username="mara").has_usable_password()
    assert roles("mara") == {"team": "admin"}
    assert client.session.get_expiry_age() <= 12 * 3600
    verbs = set(AuditEvent.objects.values_list("verb", flat=True))
    assert {"account.create", "member.set"} <= verbs


def test_groups_are_held_to_at_each_sign_in_and_roles_by_hand_stay(idp: TheProvider, team: Project) -> None:
    make_user("ada", project=team, role="admin")
    other = make_project("other")
    idp.person("mara", "ml-leads", "ops")
    sign_in(idp)
    mara = User.objects.get(username="mara")
    Membership.objects.create(project=other, user=mara, role="editor")
    assert mara.is_superuser

    idp.person("mara", "ml")
    sign_in(idp)
    assert roles("mara") == {"team": "editor", "other": "editor"}
    assert not User.objects.get(username="mara").is_superuser

    idp.person("mara")
    assert sign_in(idp).status_code == 302
    assert roles("mara") == {"other": "editor"}

    idp.person("mara", "ml")
    sign_in(idp)
    set_member(project=team, username="mara", role="viewer", actor=None)  # by hand from now on
    sign_in(idp)
    assert roles("mara") == {"other": "editor", "team": "viewer"}


def test_somebody_without_a_group_of_the_console_gets_no_account(idp: TheProvider, team: Project) -> None:
    idp.person("stranger", "sales")

    assert "None of the groups of stranger has a role in this console" in said(sign_in(idp))
    assert not User.objects.exists()


def test_an_account_that_is_not_active_stays_out(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml")
    sign_in(idp)
    User.objects.update(is_active=False)

    assert "The account mara is not active" in said(sign_in(idp))
    assert AuditEvent.objects.get(verb="signin.failed").after["subject"] == "sub-mara"


def test_a_local_account_of_that_name_is_not_taken_over(idp: TheProvider, team: Project) -> None:
    mara = make_user("mara")
    idp.person("Mara", "ml-leads", "ops")

    assert "There is an account Mara here already" in said(sign_in(idp))
    assert roles("mara") == {}

    connect(user=mara, issuer=idp.issuer, subject="sub-Mara", actor=None)
    assert sign_in(idp).wsgi_request.user == mara
    assert roles("mara") == {"team": "admin"}


def test_who_is_signed_in_connects_their_account(idp: TheProvider, team: Project) -> None:
    client = Client()
    client.force_login(make_user("mara"), backend="django.contrib.auth.backends.ModelBackend")
    idp.person("m.example", "ml")

    onward = client.post("/account/oidc/connect").context["url"]
    back = client.get(idp.visit(onward))

    assert back["Location"] == "/account"
    assert Identity.objects.get().user.username == "mara"
    assert sign_in(idp).wsgi_request.user.username == "mara"
    client.post("/account/oidc/disconnect")
    assert not Identity.objects.exists()


def test_signing_out_leads_to_the_provider(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml")
    client = Client()
    sign_in(idp, client)

    answer = client.post("/signout")

    assert client.get("/").status_code == 302
    assert answer.context["url"].startswith(f"{idp.issuer}/session/end?")
    asked = HTTP.get(answer.context["url"])
    assert asked.status_code == 200, asked.text  # it knows the token, and asks


def test_keys_that_the_provider_has_changed_are_read_anew(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml")
    sign_in(idp)

    idp.tell(rotates=True)

    assert sign_in(idp).status_code == 302


def test_a_token_that_another_key_signed_signs_nobody_in(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml")
    idp.tell(forges=True)

    assert "did not hold" in said(sign_in(idp))
    assert not User.objects.exists()


@pytest.mark.parametrize("change", ["nonce", "code_verifier"])
def test_an_answer_to_another_question_signs_nobody_in(idp: TheProvider, team: Project, change: str) -> None:
    idp.person("mara", "ml")
    client = Client()
    back = idp.visit(begun(client))
    session = client.session
    (key,) = [name for name in dict(session.items()) if name.startswith("_state_oidc_")]
    session[key]["data"][change] = "x" * 50
    session.save()

    said(client.get(back))
    assert not User.objects.exists()


def test_an_answer_that_this_browser_did_not_ask_for_signs_nobody_in(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml")
    client = Client()
    back = idp.visit(begun(client))

    assert "was not begun in this browser" in said(Client().get(back))
    assert "was not begun in this browser" in said(client.get(back.replace("state=", "state=x")))
    text = said(Client().get("/signin/oidc/callback?error=x&state=y&error_description=Call+this+number"))
    assert "Call this number" not in text
    assert client.get(back).status_code == 302
    assert "was not begun in this browser" in said(Client().get(back)), "a code works once"


def test_a_token_for_another_console_or_of_another_issuer_signs_nobody_in(
    idp: TheProvider, team: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    idp.person("mara", "ml")
    client = Client()
    back = idp.visit(begun(client))
    held = providers.provider(configured(idp))
    monkeypatch.setattr(held, "config", OidcSettings(issuer=idp.issuer, client_id="other", client_secret="-"))
    monkeypatch.setattr(providers, "provider", lambda _config: held)

    assert "did not hold" in said(client.get(f"{back}&iss=https://evil.example"))
    assert "did not hold" in said(client.get(back))


def test_no_is_an_answer(idp: TheProvider, team: Project) -> None:
    idp.person("mara", "ml", says_no=True)

    assert "you said no" in said(sign_in(idp))


def test_accounts_are_not_made_where_that_is_turned_off(idp: TheProvider, settings: Any, team: Project) -> None:
    settings.OIDC = configured(idp, creates_accounts=False)
    idp.person("mara", "ml")

    assert "none is made at sign-in" in said(sign_in(idp))


def test_a_provider_that_is_away_or_calls_itself_otherwise_is_a_sentence(running: TheProvider, settings: Any) -> None:
    settings.OIDC = OidcSettings(issuer="http://127.0.0.1:9", client_id="x")
    answer = Client().get("/signin/oidc")
    assert answer.status_code == 502
    assert "does not answer" in said(answer)

    settings.OIDC = OidcSettings(issuer=f"{running.issuer}/", client_id="x")
    assert "did not hold" in said(Client().get("/signin/oidc"))


def test_the_button_is_there_with_a_provider_and_passwords_can_be_turned_off(settings: Any) -> None:
    assert "/signin/oidc" not in Client().get("/signin").content.decode()
    assert Client().get("/signin/oidc").status_code == 404

    settings.OIDC = OidcSettings(issuer="https://id.example", client_id="x", name="Example")
    settings.HAS_PASSWORDS = False
    page = Client().get("/signin?next=/runs").content.decode()

    assert "Sign in with Example" in page
    assert "/signin/oidc?next=%2Fruns" in page
    assert "id_password" not in page
    assert Client().post("/signin", {"username": "a", "password": "b"}).status_code == 403
    mara = signed_in(make_user("mara"))
    mara.post("/account/password", {"new_password1": "long enough 1", "new_password2": "long enough 1"})
    assert not User.objects.get().has_usable_password()


def test_who_turns_back_at_the_provider_leaves_a_session_of_an_hour(idp: TheProvider, team: Project) -> None:
    client = Client()
    begun(client)
    assert client.session.get_expiry_age() <= 3600

    client.post(make_link(user=make_user("ada"), base_url="", now=timezone.now()))
    assert client.session.get_expiry_age() > 7 * 24 * 3600
