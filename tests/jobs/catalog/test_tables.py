"""The catalogue's files: parsed once for each content, and never out of date."""

import os
import subprocess
import sys
import tomllib
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from jobs.catalog import tables
from jobs.catalog.tables import file_table, folder_entries, folder_tables

ROOT = Path(__file__).resolve().parents[3]
CATALOG = ROOT / "jobs/catalog"


@pytest.fixture
def parsed(other_catalogue: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts that were parsed, in a catalogue of two files."""
    (other_catalogue / "rules").mkdir()
    write(other_catalogue, "b", "[two]\nn = 2")
    write(other_catalogue, "a", "[one]\nn = 1.5\nwords = ['x', 'ü']\n[more]\nn = inf")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    seen: list[str] = []

    def loads(text: str) -> object:
        seen.append(text)
        return parse(text)

    parse = tomllib.loads
    monkeypatch.setattr(tables.tomllib, "loads", loads)
    return seen


def write(catalogue: Path, name: str, text: str) -> None:
    (catalogue / "rules" / f"{name}.toml").write_text(text, encoding="utf-8")


def kept(catalogue: Path) -> Path:
    return Path(cache_from_source(str(catalogue / "tables.py"))).with_name("rules.tables")


def test_what_was_parsed_once_is_read_back_the_same_and_in_order(other_catalogue: Path, parsed: list[str]) -> None:
    first = list(folder_entries("rules"))
    assert len(parsed) == 2

    assert list(folder_entries("rules")) == first
    assert len(parsed) == 2
    assert first == [
        ("a.one", {"n": 1.5, "words": ["x", "ü"]}),
        ("a.more", {"n": float("inf")}),
        ("b.two", {"n": 2}),
    ]


@pytest.mark.parametrize("change", ["edited", "edited in the same second", "new file", "removed", "renamed"])
def test_a_changed_file_is_parsed_anew(other_catalogue: Path, parsed: list[str], change: str) -> None:
    before = folder_tables("rules")
    file = other_catalogue / "rules" / "b.toml"
    stamp = file.stat()
    match change:
        case "new file":
            write(other_catalogue, "c", "[three]\nn = 3")
        case "removed":
            file.unlink()
        case "renamed":
            file.rename(file.with_name("d.toml"))
        case _:
            write(other_catalogue, "b", "[two]\nn = 3")
            if change == "edited in the same second":
                os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    after = folder_tables("rules")

    assert after != before
    fresh = {f.stem: tomllib.loads(f.read_text(encoding="utf-8")) for f in sorted(file.parent.glob("*.toml"))}
    assert after == fresh


@pytest.mark.parametrize("damage", ["", "nonsense", "{digest}\n{{", "{digest}"])
def test_a_damaged_copy_is_passed_over(other_catalogue: Path, parsed: list[str], damage: str) -> None:
    before = folder_tables("rules")
    digest = kept(other_catalogue).read_text(encoding="utf-8").partition("\n")[0]
    kept(other_catalogue).write_text(damage.format(digest=digest))

    assert folder_tables("rules") == before


def test_what_cannot_be_kept_is_parsed_each_time(other_catalogue: Path, parsed: list[str]) -> None:
    (other_catalogue / "__pycache__").write_text("no folder")
    if not sys.pycache_prefix:
        assert folder_tables("rules") == folder_tables("rules")
        assert len(parsed) == 4


def test_nothing_is_written_where_python_may_write_nothing(
    other_catalogue: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    folder_tables("rules")

    assert not kept(other_catalogue).exists()


def test_who_changes_a_table_changes_only_their_own(other_catalogue: Path, parsed: list[str]) -> None:
    folder_tables("rules")["a"].clear()

    assert folder_tables("rules")["a"]


def test_the_whole_catalogue_is_kept_by_its_command_and_says_what_the_files_say(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-m", "jobs.catalog.tables"], cwd=ROOT, env=env, check=True)

    assert {file.stem for file in tmp_path.rglob("*.tables")} == {
        file.stem if file.parent == CATALOG else file.parent.name for file in CATALOG.rglob("*.toml")
    }
    code = "from jobs.catalog import tables; tables.tomllib = None; print(len(list(tables.folder_entries('knobs'))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    assert int(done.stdout) == sum(len(tomllib.loads(f.read_text())) for f in (CATALOG / "knobs").glob("*.toml"))


def test_a_file_is_read_as_it_stands() -> None:
    assert file_table("metrics") == tomllib.loads((CATALOG / "metrics.toml").read_text(encoding="utf-8"))
