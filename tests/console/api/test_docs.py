"""The API's schema is there before somebody asks for it, and made once."""

import threading
from typing import Any

import pytest

from console.api import docs


class _Slow:
    """An API whose schema takes a while."""

    def __init__(self) -> None:
        self.num_made = 0
        self.go_on = threading.Event()

    def get_openapi_schema(self) -> dict[str, Any]:
        self.num_made += 1
        assert self.go_on.wait(60)
        return {"info": {}, "paths": {}}


def test_it_is_made_in_the_background_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs, "MAKE_AFTER_SECONDS", 0.0)
    api: Any = _Slow()

    background = docs.make_in_background(api)  # which has returned while the schema is not there yet
    asking = threading.Thread(target=docs.document, args=(api,))
    asking.start()
    api.go_on.set()
    background.join(60)
    asking.join(60)

    assert docs.document(api) == {"info": {}, "paths": {}}
    assert api.num_made == 1
    assert background.daemon
