"""What the documentation names is there: links, files, make targets, environment variables."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

WRITTEN = [page for page in PAGES if page.parent.name != "proofs"]
"""By people: reports of proofs are written by programs."""
MOST_COLUMNS = 120
DJANGO = {"migrate", "collectstatic", "createsuperuser", "check", "makemigrations"}
# A file of DeepSpeed, and what PPO will bring.
ELSEWHERE = {"stage_1_and_2.py", "ppo.py", "critic.py"}


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


@pytest.mark.parametrize("document", PAGES, ids=lambda document: str(document.relative_to(ROOT)))
def test_a_file_that_is_named_without_its_folder_is_there(document: Path) -> None:
    if document.parent.name == "decisions":  # they say what was
        return
    files = {name.rpartition("/")[2] for name in tracked()}

    missing = [w for w in names(document) if re.fullmatch(r"[a-z]\w*\.py", w) and w not in files | ELSEWHERE]

    assert missing == []


@pytest.mark.parametrize("document", PAGES, ids=lambda document: str(document.relative_to(ROOT)))
def test_modules_of_ours_and_what_is_in_them_are_there(document: Path) -> None:
    files = tracked()
    named = {word.rstrip(",.:;()") for word in names(document)}
    dotted = [word for word in named if re.fullmatch(r"(console|jobs|profiling|tests)(\.\w+)+", word)]

    assert [word for word in dotted if not is_there(word, files)] == []


def is_there(dotted: str, files: set[str]) -> bool:
    """Return True if there is such a module or package, such a name in one, or a file that is called so."""
    path, _, name = dotted.replace(".", "/").rpartition("/")
    if f"{path}/{name}.py" in files or any(file.startswith(f"{path}/{name}/") for file in files):
        return True
    if f"{path}.py" in files:
        return (
            re.search(
                rf"^\s*(?:async )?(?:def|class) {name}\b|^{name}\b", (ROOT / f"{path}.py").read_text("utf-8"), re.M
            )
            is not None
        )
    return any(Path(file).name == dotted for file in files)


@pytest.mark.parametrize("document", PAGES, ids=lambda document: str(document.relative_to(ROOT)))
def test_globs_of_ours_match_something(document: Path) -> None:
    globs = [word.rstrip(",.:;") for word in names(document) if "*" in word]
    ours = [
        word for word in globs if re.fullmatch(r"(console|jobs|profiling|templates|tests|static|docs)/[\w./*-]+", word)
    ]

    assert [word for word in ours if next(ROOT.glob(word), None) is None] == []


@pytest.mark.parametrize("document", WRITTEN, ids=lambda document: str(document.relative_to(ROOT)))
def test_lines_of_text_are_not_longer_than_those_of_code(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > MOST_COLUMNS and not line.startswith("|")]

    assert [line for line in long if len(re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)) > 20] == []


def test_commands_of_manage_that_are_named_are_there() -> None:
    there = {path.stem for path in (ROOT / "console" / "management" / "commands").glob("*.py")} | DJANGO
    named = {c for page in PAGES for c in re.findall(r"manage\.py ([a-z][\w-]*)", page.read_text(encoding="utf-8"))}

    assert named
    assert sorted(named - there) == []


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


def test_the_paths_through_the_code_enter_as_many_files_as_is_said() -> None:
    page = (ROOT / "docs/develop/architecture.md").read_text(encoding="utf-8")
    paths = page.partition("## Three paths through the code")[2].split("\n### ")[1:]

    for path in paths:
        rows = " ".join(line for line in path.splitlines() if line.startswith("|"))
        named = set(re.findall(r"`([\w./-]+\.(?:py|js))`", rows))
        said = re.search(r"^(\d+) files", path, re.MULTILINE)
        assert said is not None
        assert int(said[1]) == len(named), path.partition("\n")[0]
    assert len(paths) == 3
