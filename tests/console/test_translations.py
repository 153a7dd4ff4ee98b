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
from django.utils import timezone, translation

from console.translations import CatalogUnreadable, compile_catalogs, messages
from jobs.alerts.words import sentence
from jobs.models import AlertIncident, RunEvent
from tests.rows import make_project, make_run, make_user

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = ROOT / "console" / "locale" / "zh_Hans" / "LC_MESSAGES"
DOMAINS = ("django", "djangojs")
PLACEHOLDER = re.compile(r"%\(\w+\)[sdr]|%%\w+|<code>|</code>")

STORED_CAUSE = "policy rank 1 ran out of host memory in step 7. Use a smaller model or batch, or a larger node"
SAID_CAUSE = "policy 第 1 号进程耗尽了主机内存（第 7 步）。请使用更小的模型或批次，或更大的节点"

needs_gettext = pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext's msgfmt and xgettext")


HEADER = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=n != 1;\\n"

"""
OTHER = """msgid "page"
msgid_plural "pages"
msgstr[0] "une page"
msgstr[1] "%d pages"

msgctxt "tree"
msgid "leaf"
msgstr ""
"feuille \\"a\\"\\n"
"\\té"

msgid "not yet"
msgstr ""

#, fuzzy
msgid "perhaps"
msgstr "peut-être"
"""


def write_catalog(folder: Path, entries: str) -> Path:
    """Write x.po of one language and return its path."""
    path = folder / "fr" / "LC_MESSAGES" / "x.po"
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + entries, encoding="utf-8")
    return path


def compiled(path: Path) -> dict[Any, str]:
    """Return what a compiled catalog translates, by msgid (or msgid and plural index)."""
    with path.open("rb") as file:
        found: dict[Any, str] = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    return {key: text for key, text in found.items() if key}


@pytest.mark.parametrize("domain", DOMAINS)
def test_nothing_is_untranslated_or_fuzzy(domain: str) -> None:
    missing = [text for text, translation in messages(MESSAGES / f"{domain}.po").items() if not translation]

    assert missing == []


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_catalogs_do_not_change_when_code_moves(domain: str) -> None:
    lines = (MESSAGES / f"{domain}.po").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if line.startswith(("#:", '"POT-Creation-Date'))] == [], "run: make messages"


@needs_gettext
@pytest.mark.parametrize("domain", DOMAINS)
def test_our_compiler_and_gettext_s_agree(domain: str, tmp_path: Path) -> None:
    command = ["msgfmt", "--check-format", "-o", str(tmp_path / "fresh.mo"), str(MESSAGES / f"{domain}.po")]
    subprocess.run(command, check=True)

    assert compiled(MESSAGES / f"{domain}.mo") == compiled(tmp_path / "fresh.mo")


@needs_gettext
def test_contexts_plurals_and_escapes_are_compiled_as_gettext_does(tmp_path: Path) -> None:
    source = write_catalog(tmp_path, OTHER)
    subprocess.run(["msgfmt", "-o", str(tmp_path / "fresh.mo"), str(source)], check=True)

    assert compile_catalogs(tmp_path) == [source.with_suffix(".mo")]

    assert compiled(source.with_suffix(".mo")) == compiled(tmp_path / "fresh.mo")
    assert compiled(source.with_suffix(".mo")) == {
        ("page", 0): "une page",
        ("page", 1): "%d pages",
        "tree\x04leaf": 'feuille "a"\n\té',
    }


def test_a_catalog_is_compiled_again_only_when_its_text_changed(tmp_path: Path) -> None:
    source = write_catalog(tmp_path, 'msgid "a"\nmsgstr "b"\n')

    first, second = compile_catalogs(tmp_path), compile_catalogs(tmp_path)
    source.write_text(source.read_text(encoding="utf-8").replace('"b"', '"c"'), encoding="utf-8")
    third = compile_catalogs(tmp_path)

    assert (len(first), len(second), len(third)) == (1, 0, 1)
    assert compiled(source.with_suffix(".mo")) == {"a": "c"}


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    write_catalog(tmp_path, "<<<<<<< HEAD\n")

    with pytest.raises(CatalogUnreadable, match=r"x\.po, line 5: '<<<<<<< HEAD' is neither"):
        compile_catalogs(tmp_path)


def test_a_folder_that_cannot_be_written_leaves_the_pages_in_english(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_catalog(tmp_path, 'msgid "a"\nmsgstr "b"\n')
    source.with_name(f"x.mo.{os.getpid()}").mkdir()  # root may write into any folder

    assert compile_catalogs(tmp_path) == []

    assert "its texts stay in English" in caplog.text


@needs_gettext
def test_the_catalogs_hold_what_the_code_says_and_nothing_else(tmp_path: Path) -> None:
    for part in ("console", "jobs", "profiling", "templates"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("bundled", "*.mo"))
    shutil.copytree(ROOT / "static" / "js", tmp_path / "static" / "js")
    shutil.copy(ROOT / "manage.py", tmp_path)
    settings = {"DJANGO_SETTINGS_MODULE": "console.settings", "PITWALL_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "manage.py", "messages"]
    subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, **settings})

    for domain in DOMAINS:
        said = set(messages(tmp_path / "console" / "locale" / "zh_Hans" / "LC_MESSAGES" / f"{domain}.po"))
        kept = set(messages(MESSAGES / f"{domain}.po"))
        assert sorted(said - kept) == [], "new strings: run make messages and translate them"
        assert sorted(kept - said) == [], "strings that nobody says any more: run make messages"


@pytest.mark.parametrize("domain", DOMAINS)
def test_translations_keep_every_placeholder(domain: str) -> None:
    for key, text in compiled(MESSAGES / f"{domain}.mo").items():
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


@pytest.mark.django_db
def test_a_run_s_history_and_why_it_failed_are_said_in_chinese(client: Client) -> None:
    project = make_project()
    cause = {"side": "cluster", "role": "policy", "rank": 1, "step": 7, "text": STORED_CAUSE}
    run = make_run(project, state="failed", spec={"name": "r"}, now=timezone.now(), cause=cause, step=7)
    for verb, text in (
        ("note", "Checkpoint 40 saved, 7.54 MiB in 0.063 s"),
        ("person_note", "Stop requested"),  # a person's own words stay
        ("failed", f"Failed: {STORED_CAUSE}"),
    ):
        RunEvent.objects.create(run=run, at=timezone.now(), verb=verb, text=text)
    client.force_login(make_user(project=project), backend="django.contrib.auth.backends.ModelBackend")

    def events() -> list[str]:
        return [event["text"] for event in client.get(f"/api/runs/{run.pk}/events").json()["events"]][::-1]

    in_english = events()
    client.cookies["django_language"] = "zh-hans"

    assert in_english == [
        "Queued",
        "Checkpoint 40 saved, 7.54 MiB in 0.063 s",
        "Stop requested",
        f"Failed: {STORED_CAUSE}",
    ]
    assert events() == [
        "已排队",
        "已保存第 40 步的检查点，7.54 MiB，用时 0.063 秒",
        "Stop requested",
        f"失败：{SAID_CAUSE}",
    ]
    for address in (reverse("home"), reverse("runs"), reverse("run", args=[run.pk])):
        page = client.get(address).content.decode()
        assert SAID_CAUSE in page, address
        assert f">{STORED_CAUSE}" not in page, address
    incident = AlertIncident(kind="failed", data={"what": "failed", "name": "r", "cause": STORED_CAUSE})
    with translation.override("zh-hans"):
        assert sentence(incident) == SAID_CAUSE
