"""The Simplified Chinese catalogs are complete, up to date with the code, and compiled."""

import gettext
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.rows import make_project, make_run, make_user

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = ROOT / "console" / "locale" / "zh_Hans" / "LC_MESSAGES"
DOMAINS = ("django", "djangojs")
PLACEHOLDER = re.compile(r"%\(\w+\)[sdr]|%%\w+|<code>|</code>")

needs_gettext = pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext's msgfmt and xgettext")


def catalog(path: Path) -> dict[Any, str]:
    """Return what a compiled catalog translates, by msgid (or msgid and plural index)."""
    with path.open("rb") as file:
        found: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: text for key, text in found.items() if key}


def msgids(path: Path) -> set[str]:
    """Return every msgid of a .po file."""
    strings = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
    found = re.findall(rf"^msgid {strings}", path.read_text(), re.MULTILINE)
    return {"".join(re.findall(r'"((?:[^"\\]|\\.)*)"', one)) for one in found} - {""}


@needs_gettext
@pytest.mark.parametrize("domain", DOMAINS)
def test_nothing_is_untranslated_or_fuzzy(domain: str) -> None:
    command = ["msgfmt", "--check-format", "--statistics", "-o", "/dev/null", str(MESSAGES / f"{domain}.po")]

    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    )

    assert re.fullmatch(r"\d+ translated messages\.", done.stderr.strip()), done.stderr


@needs_gettext
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_compiled_catalog_is_that_of_the_source(domain: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.mo"
    subprocess.run(["msgfmt", "-o", str(fresh), str(MESSAGES / f"{domain}.po")], check=True)

    assert catalog(MESSAGES / f"{domain}.mo") == catalog(fresh)


@needs_gettext
def test_the_catalogs_hold_what_the_code_says_and_nothing_else(tmp_path: Path) -> None:
    for part in ("console", "jobs", "profiling", "templates"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "bundled", "*.mo"))
    shutil.copytree(ROOT / "static" / "js", tmp_path / "static" / "js")
    shutil.copy(ROOT / "manage.py", tmp_path)
    settings = {"DJANGO_SETTINGS_MODULE": "console.settings", "PITWALL_DATA_DIR": str(tmp_path / "data")}
    manage = [sys.executable, "manage.py", "makemessages", "-l", "zh_Hans", "--no-obsolete", "--no-wrap"]
    for domain in DOMAINS:
        subprocess.run([*manage, "-d", domain], cwd=tmp_path, check=True, env={**os.environ, **settings})

    for domain in DOMAINS:
        said = msgids(tmp_path / "console" / "locale" / "zh_Hans" / "LC_MESSAGES" / f"{domain}.po")
        kept = msgids(MESSAGES / f"{domain}.po")
        assert sorted(said - kept) == [], "new strings: run make messages and translate them"
        assert sorted(kept - said) == [], "strings that nobody says any more: run make messages"


@pytest.mark.parametrize("domain", DOMAINS)
def test_translations_keep_every_placeholder(domain: str) -> None:
    for key, text in catalog(MESSAGES / f"{domain}.mo").items():
        source = key[0] if isinstance(key, tuple) else key
        source = source.rpartition("\x04")[2]
        assert set(PLACEHOLDER.findall(source)) == set(PLACEHOLDER.findall(text)), source


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["home", "runs", "cluster", "account", "new-run"])
def test_every_page_speaks_chinese(client: Client, name: str) -> None:
    project = make_project()
    make_run(project, spec={"name": "r"})
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")
    client.cookies["django_language"] = "zh-hans"

    page = client.get(reverse(name)).content.decode()

    assert '<html lang="zh-hans"' in page
    assert "跳到内容" in page
    assert "新建运行" in page
