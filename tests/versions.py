"""Versions of trainers as parameters: `make test` asks the newest of each what is dear, `make proof-tests` all."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def newest_first(versions: Iterable[Any], *, of: Callable[[Any], Hashable] = lambda _: None) -> list[Any]:
    """Return parameters of a test: the first of each kind plain, those after it left to `make proof-tests`.

    `of` tells kinds apart; without it all are of one kind. A tuple becomes several parameters.
    """
    found: list[Any] = []
    seen: set[Hashable] = set()
    for version in versions:
        marks = [pytest.mark.proof] if of(version) in seen else []
        seen.add(of(version))
        values = version if isinstance(version, tuple) else (version,)
        found.append(pytest.param(*values, marks=marks))
    return found
