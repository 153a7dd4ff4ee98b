"""What a case of `make bench-web` is, and what it reads."""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from playwright.sync_api import Browser, BrowserContext

from tests.bench.web import cases

VIEWPORT = {"width": 1440, "height": 900}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number, once a round. `target` is the most its median may be, or the least if `is_floor`; None: no gate."""

    what: str
    values: tuple[float, ...]
    unit: str
    target: float | None = None
    is_floor: bool = False

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return float(np.median(self.values))

    @property
    def p95(self) -> float:
        """What 95 % of the rounds keep: the upper end, or the lower one where more is better."""
        return float(np.percentile(self.values, 5 if self.is_floor else 95))

    @property
    def is_met(self) -> bool:
        """Whether the median keeps the target."""
        if self.target is None:
            return True
        return self.median >= self.target if self.is_floor else self.median <= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A browser before the console at `url`; `session` is the cookie of somebody who may see everything.

    `web_pid` is the console's web process.
    """

    browser: Browser
    url: str
    session: str
    web_pid: int

    def context(self) -> BrowserContext:
        """Return a signed-in context that has cached nothing; the caller closes it."""
        context = self.browser.new_context(viewport=VIEWPORT, locale="en-US")  # type: ignore[arg-type]  # a plain dict
        context.add_cookies([{"name": "pitwall_session", "value": self.session, "url": self.url}])
        return context


class Case(Protocol):
    """A module of `cases/`."""

    def seed(self, project: Any, user: Any) -> Mapping[str, Any]:
        """Fill the store through the product's own writers, Django set up; return what `look` needs, as JSON has it.

        It runs once for each store, with the product's code of the revision that is measured: import it inside.
        """

    def look(self, window: Window, seeded: Mapping[str, Any], rounds: int) -> list[Reading]:
        """Drive the pages and return what was read, each number `rounds` times."""


def case_names() -> list[str]:
    """Return the names of all cases, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(cases.__path__))


def load_case(name: str) -> Case:
    """Return a case. Raises: ModuleNotFoundError if there is none of this name."""
    return importlib.import_module(f"{cases.__name__}.{name}")
