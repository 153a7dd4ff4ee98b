"""One attack: what was tried, and what stopped it. A file of `attacks/` holds those on one part of the console."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.proofs.security.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`tried`: what was done; `stopped_by`: what the console did against it, "" if the attack got through.

    `got`: what it got, where it got through.
    """

    tried: str
    stopped_by: str = ""
    got: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether the console held."""
        return bool(self.stopped_by) and not self.got


Run = Callable[[Site, Mapping[str, Any]], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """`finding`: which finding of the review it is about. `is_local`: it attacks the code itself, so once is enough."""

    finding: str
    name: str
    run: Run
    is_local: bool = False


ATTACKS: list[Attack] = []


def attack(finding: str, *, is_local: bool = False) -> Callable[[Run], Run]:
    """Add a function to the attacks; its name and the finding tell it from others."""

    def add(run: Run) -> Run:
        ATTACKS.append(Attack(finding=finding, name=run.__name__.replace("_", " "), run=run, is_local=is_local))
        return run

    return add


def outcome(tried: str, *, stopped_by: str, got: str = "") -> Outcome:
    """Return what became of it."""
    return Outcome(tried=tried, stopped_by="" if got else stopped_by, got=got)
