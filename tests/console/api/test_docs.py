"""The API's schema is there before somebody asks for it, and made once."""

import threading
from typing import Any

import pytest

from console.api import docs

SCHEMA: dict[str, Any] = {"info": {}, "paths": {}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "MAKE_AFTER_SECONDS", 0.0)


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
