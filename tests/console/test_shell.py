"""The frame: navigation, search, cluster use, what the strict CSP demands of templates, and what is vendored."""

import json
import re
from pathlib import Path

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from jobs.models import Project
from tests.rows import make_project, make_run, make_user

ROOT = Path(__file__).resolve().parents[2]
DOWNLOADED = ROOT / "templates" / "compare" / "report.html"  # a file that opens without the console, styles and all
TEMPLATES = sorted(set((ROOT / "templates").rglob("*.html")) - {DOWNLOADED})
MODULES = sorted((ROOT / "static" / "js").rglob("*.js"))


def sign_in(client: Client, project: Project, role: str = "editor") -> Client:
    client.force_login(make_user(project=project, role=role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.mark.django_db
def test_every_entry_of_the_navigation_leads_to_a_page(client: Client) -> None:
    sign_in(client, make_project())

    page = client.get(reverse("home")).content.decode()
    nav = re.search(r'<nav class="topnav".*?</nav>', page, re.DOTALL)
    assert nav
    links = re.findall(r'href="([^"]+)"', nav[0])

    assert len(links) == 8
    for link in links:
        assert client.get(link).status_code == 200, link


@pytest.mark.django_db
@pytest.mark.parametrize(("role", "is_superuser"), [("viewer", False), ("admin", False), ("viewer", True)])
def test_the_search_names_the_further_pages_that_one_may_open(client: Client, role: str, is_superuser: bool) -> None:
    user = make_user(project=make_project("team"), role=role)
    type(user).objects.filter(pk=user.pk).update(is_superuser=is_superuser)
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    page = client.get(reverse("home")).content.decode()
    listed = re.search(r"data-further-pages>.*?</div>", page, re.DOTALL)
    assert listed
    links = re.findall(r'href="([^"]+)"', listed[0])

    assert {"/alerts", "/alerts/rules", "/trash", "/account"} <= set(links)
    assert ("/audit" in links) == (role == "admin" or is_superuser)
    assert ("/people" in links) == is_superuser
    for link in links:
        assert client.get(link).status_code == 200, link


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("address", "entry"),
    [("/runs/new", "new-run"), ("/trash", "runs"), ("/audit", "settings"), ("/settings/team/retention", "settings")],
)
def test_a_page_below_an_entry_of_the_navigation_marks_it(client: Client, address: str, entry: str) -> None:
    sign_in(client, make_project("team"), role="admin")

    page = client.get(address).content.decode()
    nav = re.search(r'<nav class="topnav".*?</nav>', page, re.DOTALL)

    assert nav
    assert re.findall(r'href="([^"]+)"[^>]*aria-current="page"', nav[0]) == [reverse(entry)]


@pytest.mark.django_db
def test_every_page_turns_away_who_is_not_signed_in(client: Client) -> None:
    open_to_all = {
        "signin",
        "signin-link",
        "oidc",
        "oidc-callback",
        "js-catalog",
        "healthz",
        "readyz",
        "metrics",
        "signout",
    }

    def patterns(found: list[URLPattern | URLResolver], prefix: str = "") -> list[tuple[str, str]]:
        rows = []
        for one in found:
            if isinstance(one, URLResolver):
                rows += patterns(one.url_patterns, prefix + str(one.pattern))
            else:
                rows.append((str(one.name), prefix + str(one.pattern)))
        return rows

    pages = [(n, p) for n, p in patterns(get_resolver().url_patterns) if not p.startswith(("api/", "ingest/"))]
    assert len(pages) > 15
    for name, pattern in pages:
        if name in open_to_all:
            continue
        values = {"run_id": "r-00000000", "tab": "logs"}
        address = "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda m, v=values: v.get(m[1], "1"), pattern)
        answer = client.get(address)
        assert answer.status_code == 302, (name, address, answer.status_code)
        assert "/signin" in answer["Location"], name


@pytest.mark.django_db
def test_the_project_in_the_address_is_kept_and_others_are_not_reachable(client: Client) -> None:
    first, second, foreign = make_project("one"), make_project("two"), make_project("three")
    user = make_user(project=first)
    make_run(second, spec={"name": "of two"})
    second.membership_set.create(user=user, role="viewer")
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")

    assert "of two" not in client.get("/runs").content.decode()
    assert "of two" in client.get("/runs?project=two").content.decode()
    assert "of two" in client.get("/runs").content.decode()
    assert f'data-project="{foreign.slug}"' not in client.get("/runs?project=three").content.decode()


@pytest.mark.django_db
def test_search_finds_runs_by_words_of_name_and_id_in_ones_own_projects_only(client: Client) -> None:
    mine, foreign = make_project(), make_project()
    found = make_run(mine, spec={"name": "qwen grpo math"})
    make_run(mine, spec={"name": "qwen sft"})
    make_run(foreign, spec={"name": "qwen grpo secret"})
    sign_in(client, mine)

    by_words = client.get(reverse("search"), {"q": "math qwen"}).json()["runs"]
    by_id = client.get(reverse("search"), {"q": found.pk}).json()["runs"]

    assert [row["id"] for row in by_words] == [found.pk]
    assert by_id == by_words
    assert by_words[0]["url"] == f"/runs/{found.pk}"
    assert "secret" not in json.dumps(client.get(reverse("search"), {"q": "qwen"}).json())


@pytest.mark.django_db
def test_the_top_bar_says_when_the_cluster_does_not_answer(client: Client) -> None:
    make_run(project := make_project())
    sign_in(client, project)

    answer = client.get(reverse("usage")).json()

    assert answer["total"] is None
    assert "Cluster does not answer" in answer["html"]
    assert "1 queued" in answer["html"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("cookie", "theme"), [("dark", "dark"), ("light", "light"), ("system", "light"), ("<x>", "light")]
)
def test_the_theme_is_in_the_page_before_any_script_runs(client: Client, cookie: str, theme: str) -> None:
    sign_in(client, make_project())
    client.cookies["pitwall_theme"] = cookie

    page = client.get(reverse("home")).content.decode()

    assert f'data-bs-theme="{theme}"' in page


def test_the_modules_texts_are_there_for_everybody_in_the_asked_language(client: Client) -> None:
    client.cookies["django_language"] = "zh-hans"

    answer = client.get(reverse("js-catalog"))

    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/javascript")
    assert json.dumps("切换主题").strip('"') in answer.content.decode()


@pytest.mark.django_db
def test_unknown_pages_answer_a_sentence(client: Client) -> None:
    sign_in(client, make_project())

    answer = client.get("/no/such/page")

    assert answer.status_code == 404
    assert "There is no such page, run, sweep or trace" in answer.content.decode()


def test_a_broken_console_answers_without_the_database(client: Client) -> None:
    from django.test import RequestFactory

    from console.views.errors import broken

    answer = broken(RequestFactory().get("/"))

    assert answer.status_code == 500
    assert "training goes on without the console" in answer.content.decode()


@pytest.mark.django_db
def test_a_form_without_its_token_is_told_that_the_page_is_too_old() -> None:
    client = Client(enforce_csrf_checks=True)

    answer = client.post(reverse("signin"), {"username": "a", "password": "b"})

    assert answer.status_code == 403
    assert "too old to send" in answer.content.decode()


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_templates_hold_nothing_that_the_csp_forbids(template: Path) -> None:
    text = re.sub(r"\{#.*?#\}|\{% comment %\}.*?\{% endcomment %\}", "", template.read_text(), flags=re.DOTALL)

    assert not re.findall(r"<style\b", text)
    assert not re.findall(r"\sstyle=", text)
    assert not re.findall(r"\son[a-z]+=\"", text)
    assert not re.findall(r"\bhx-on\b|hx-vals=['\"]js:|javascript:", text)
    for script in re.findall(r"<script\b[^>]*>", text):
        assert "src=" in script or "application/json" in script, script
    for address in re.findall(r"(?:src|href)=\"(https?:)?//", text):
        raise AssertionError(f"an outside address: {address}")


def test_every_icon_that_is_used_is_in_the_sprite() -> None:
    sprite = (ROOT / "static" / "icons" / "sprite.svg").read_text()
    have = set(re.findall(r'<symbol id="([\w-]+)"', sprite))
    used = set()
    for path in [*TEMPLATES, *MODULES, *(ROOT / "console").rglob("*.py")]:
        text = path.read_text()
        used |= set(re.findall(r'\{% icon "([\w-]+)" %\}', text)) | set(re.findall(r'\bicon\("([\w-]+)"\)', text))
    from console.templatetags.pitwall import STATE_ICONS

    assert len(used) > 20
    assert used | set(STATE_ICONS.values()) <= have


def test_vendored_files_are_whole_licensed_and_name_no_missing_map() -> None:
    vendor = ROOT / "static" / "vendor"
    pinned = json.loads((ROOT / "package.json").read_text())["devDependencies"]

    assert pinned["@tabler/core"] == "1.6.1"
    assert pinned["htmx.org"] == "2.0.11"
    assert pinned["uplot"] == "1.6.32"
    for path in vendor.rglob("*"):
        if path.suffix in (".js", ".css"):
            assert "sourceMappingURL" not in path.read_text(), path.name
    for part in ("tabler", "htmx", "uplot", "inter", "jetbrains-mono", "tabler-icons"):
        assert (vendor / "LICENSES" / f"{part}.txt").stat().st_size > 100, part
    assert "://" not in re.sub(r'"url": "[^"]*"', "", (ROOT / "package-lock.json").read_text())
