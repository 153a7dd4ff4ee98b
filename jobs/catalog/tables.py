"""The TOML files of the catalogue as plain tables, parsed once for each content.

Python reads TOML slowly: that is most of what loading the catalogue takes. So what was parsed is kept beside Python's
own compiled files, with the digest of the texts that it was parsed from: other texts have another digest, and nothing
that is kept can be out of date. It is written where Python writes its compiled files (not under
PYTHONDONTWRITEBYTECODE); where nothing is kept, the files are parsed. `python -m jobs.catalog.tables` keeps all.
"""

import contextlib
import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

Table = dict[str, Any]

FOLDER = files("jobs.catalog")


def file_table(name: str) -> Table:
    """Return what the file `<name>.toml` says."""
    return _parsed(name, {name: (FOLDER / f"{name}.toml").read_text(encoding="utf-8")})[name]


def folder_tables(name: str) -> Mapping[str, Table]:
    """Return what each file of the folder says by its name without the ending, in the order of the names."""
    toml_files = [file for file in (FOLDER / name).iterdir() if file.name.endswith(".toml")]
    toml_files.sort(key=lambda file: file.name)
    return _parsed(name, {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in toml_files})


def plugin_tables(package: str, name: str) -> Mapping[str, Table]:
    """Return what `<name>.toml` says of each folder of a package that has it, by the folder's name."""
    toml_files = {folder.name: folder / f"{name}.toml" for folder in files(package).iterdir() if folder.is_dir()}
    texts = {folder: file.read_text(encoding="utf-8") for folder, file in sorted(toml_files.items()) if file.is_file()}
    return _parsed(f"{package}.{name}", texts)


def folder_entries(name: str) -> Iterator[tuple[str, Table]]:
    """Yield `<file>.<table>` and the table, in the order of the files of the folder and of the tables in each."""
    for group, tables in folder_tables(name).items():
        for table_name, table in tables.items():
            yield f"{group}.{table_name}", table


def _parsed(name: str, texts: Mapping[str, str]) -> dict[str, Table]:
    digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    place = _place(name)
    if place is not None:
        with contextlib.suppress(OSError, ValueError):
            head, _newline, cached = place.read_text(encoding="utf-8").partition("\n")
            if head == digest:
                parsed: dict[str, Table] = json.loads(cached)
                return parsed
    tables = {each: tomllib.loads(text) for each, text in texts.items()}
    if place is not None and not sys.dont_write_bytecode:
        _keep(place, digest, tables)
    return tables


def _place(name: str) -> Path | None:
    """Return where the parsed files are kept; None for a catalogue in an archive."""
    if not isinstance(FOLDER, Path):
        return None
    return Path(cache_from_source(str(FOLDER / "tables.py"))).with_name(f"{name}.tables")


def _keep(place: Path, digest: str, tables: Mapping[str, Table]) -> None:
    try:
        text = json.dumps(tables)
    except TypeError:  # a date, which JSON does not have
        return
    part = place.with_name(f"{place.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(f"{digest}\n{text}", encoding="utf-8")
        part.replace(place)  # whole or not at all, whoever else does the same


if __name__ == "__main__":
    sys.dont_write_bytecode = False
    for each in FOLDER.iterdir():
        if each.name.endswith(".toml"):
            file_table(each.name.removesuffix(".toml"))
        elif each.is_dir() and any(file.name.endswith(".toml") for file in each.iterdir()):
            folder_tables(each.name)
