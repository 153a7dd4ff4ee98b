"""The API's schema is there before somebody asks for it, made once and kept until a source changes."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.api import docs, openapi

SCHEMA: dict[str, Any] = {"info": {}, "paths": {}}


@pytest.fixture(autouse=True)
def sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> Iterator[Path]:
    """Return a folder of sources of which nothing is kept yet."""
    settings.BASE_DIR = tmp_path
    (tmp_path / "console").mkdir()
    (tmp_path / "console" / "address.py").write_text("one")
    monkeypatch.setattr(docs, "make_document", lambda api: api.get_openapi_schema())
    monkeypatch.setattr(openapi, "_place", lambda: tmp_path / "kept" / "openapi.json")
    openapi._digest.cache_clear()
    yield tmp_path
    openapi._digest.cache_clear()


class _Api:
    """An API that counts how often its schema is made."""

    def __init__(self) -> None:
        self.num_made = 0

    def get_openapi_schema(self) -> dict[str, Any]:
        self.num_made += 1
        return SCHEMA


def test_who_asks_while_it_is_made_elsewhere_waits_for_it() -> None:
    api: Any = _Api()
    is_begun, may_end = threading.Event(), threading.Event()

    def made_apart() -> dict[str, Any]:
        is_begun.set()
        assert may_end.wait(60)
        return SCHEMA

    making = docs.make_in_background(api, made_apart)  # which has returned while the schema is not there yet
    assert is_begun.wait(60)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(docs.document(api)))
    asking.start()
    assert answers == []
    may_end.set()
    asking.join(60)
    making.join(60)

    assert (answers, api.num_made) == ([SCHEMA], 0)
    assert making.daemon


def test_one_that_could_not_be_made_ahead_is_made_when_it_is_asked_for() -> None:
    api: Any = _Api()

    def broken() -> dict[str, Any]:
        raise OSError("no such program")

    docs.make_in_background(api, broken).join(60)

    assert [docs.document(api), docs.document(api)] == [SCHEMA, SCHEMA]
    assert api.num_made == 1


def test_what_was_kept_is_read_until_a_source_changes(sources: Path) -> None:
    assert openapi.kept_document() is None
    openapi.keep_document(SCHEMA)
    assert openapi.kept_document() == SCHEMA
    assert [file.name for file in (sources / "kept").iterdir()] == ["openapi.json"]

    (sources / "console" / "address.py").write_text("two")
    openapi._digest.cache_clear()

    assert openapi.kept_document() is None


def test_a_start_takes_what_was_kept_and_makes_nothing(sources: Path) -> None:
    api: Any = _Api()
    openapi.keep_document(SCHEMA)

    docs.make_in_background(api, lambda: pytest.fail("made although it was kept")).join(60)

    assert (docs.document(api), api.num_made) == (SCHEMA, 0)


def test_damaged_bytes_count_as_not_kept(sources: Path) -> None:
    openapi.keep_document(SCHEMA)
    kept = sources / "kept" / "openapi.json"
    kept.write_bytes(kept.read_bytes()[:-1])

    assert openapi.kept_document() is None
