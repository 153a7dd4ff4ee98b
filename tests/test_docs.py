"""What the documentation names is there: links, files, make targets, environment variables."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names(document: Path) -> list[str]:
    """Return what stands in backticks, fenced blocks included, word by word."""
    spans = re.findall(r"```.*?```|`[^`\n]+`", document.read_text(encoding="utf-8"), re.DOTALL)
    return [word for span in spans for word in span.strip("`").split()]


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return set(listed.splitlines())


@pytest.mark.parametrize("document", PAGES, ids=lambda document: str(document.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", document.read_text(encoding="utf-8"))

    ours = [link for link in links if "://" not in link]
    assert [link for link in ours if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", PAGES, ids=lambda document: str(document.relative_to(ROOT)))
def test_files_of_ours_are_where_the_page_says(document: Path) -> None:
    files = tracked()
    ours = [word.rstrip(",.:;") for word in names(document)]
    ours = [
        w
        for w in ours
        if re.fullmatch(r"(console|jobs|profiling|templates|tests|static|docs|requirements)/[\w./-]+", w)
    ]

    missing = [w for w in ours if w not in files and not any(f.startswith(w.rstrip("/") + "/") for f in files)]

    assert missing == []


def test_modules_that_are_named_can_be_started() -> None:
    files = tracked()
    named = {
        match
        for page in PAGES
        for match in re.findall(
            r"python3? -m ((?:console|jobs|profiling|tests)[\w.]*)", page.read_text(encoding="utf-8")
        )
    }
    paths = {name: name.replace(".", "/") for name in named}

    assert named
    assert [n for n, p in paths.items() if f"{p}.py" not in files and f"{p}/__main__.py" not in files] == []


def test_make_targets_that_are_named_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {t for page in PAGES for t in re.findall(r"`make ([a-z][a-z-]*)", page.read_text(encoding="utf-8"))}

    assert named
    assert sorted(named - targets) == []


def test_variables_that_are_named_are_read_and_settings_that_are_read_are_named() -> None:
    code = "\n".join(
        (ROOT / name).read_text(encoding="utf-8")
        for name in tracked()
        if name.endswith(".py") and name.startswith(("console/", "jobs/", "profiling/")) and (ROOT / name).is_file()
    )
    code += (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    said = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    variable = r"\bPITWALL_[A-Z_]+[A-Z]\b"

    assert sorted(set(re.findall(variable, said)) - set(re.findall(variable, code))) == []
    assert (
        sorted(set(re.findall(variable, (ROOT / "console/settings.py").read_text())) - set(re.findall(variable, said)))
        == []
    )
