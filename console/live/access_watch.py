"""Whether those who follow something may go on: asked for all websockets of a web process together, each period."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from channels.db import database_sync_to_async

from console.live.hub import Mailbox
from console.live.shared_reads import one_per_loop
from jobs.accounts.access import members
from jobs.accounts.sessions import signed_in
from jobs.models import Project, Run, Trace

log = logging.getLogger(__name__)

PERIOD_SECONDS = 5.0
"""A socket is closed so long after its session or membership has ended, and the time of one read."""
Followed = Literal["run", "trace", "project"]
SIGN_IN, NOT_YOURS, STUMBLED = 4401, 4403, 1011
_PROJECT_OF: dict[Followed, Callable[[Collection[str]], Iterable[tuple[str, int]]]] = {
    "run": lambda names: Run.objects.filter(pk__in=names).values_list("pk", "project_id"),
    "trace": lambda names: Trace.objects.filter(pk__in=names).values_list("pk", "project_id"),
    "project": lambda names: Project.objects.filter(slug__in=names).values_list("slug", "pk"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Who follows what: by which session somebody came in, and the run's or trace's id or the project's slug."""

    session_key: str
    user_id: int
    kind: Followed
    name: str


def refusals(seats: Collection[Seat]) -> dict[Seat, int]:
    """Return why some of them may not go on, by close code: signed out since, or no member any more.

    Two queries for who is signed in and one for memberships, however many they are; one more for each kind followed.
    """
    standing = signed_in({seat.session_key for seat in seats})
    projects: dict[tuple[str, str], int] = {}
    for kind, find in _PROJECT_OF.items():
        names = {seat.name for seat in seats if seat.kind == kind}
        if names:
            projects |= {(kind, name): project_id for name, project_id in find(names)}
    held = members({seat.user_id for seat in seats}, set(projects.values()))
    codes = {}
    for seat in seats:
        if standing.get(seat.session_key) != seat.user_id:
            codes[seat] = SIGN_IN
        elif (seat.user_id, projects.get((seat.kind, seat.name))) not in held:
            codes[seat] = NOT_YOURS
    return codes


class AccessWatch:
    """Shuts the mailboxes of those who may not go on. One per event loop: `access_watch()`."""

    def __init__(self) -> None:
        self._seats: dict[Mailbox, Seat] = {}
        self._task: asyncio.Task[None] | None = None

    def enter(self, mailbox: Mailbox, seat: Seat) -> None:
        """Ask about them from now on."""
        self._seats[mailbox] = seat
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="access watch")

    def leave(self, mailbox: Mailbox) -> None:
        """Ask about them no more; the last one to go ends the watch."""
        self._seats.pop(mailbox, None)
        if not self._seats and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _watch(self) -> None:
        ask = database_sync_to_async(refusals, thread_sensitive=False)
        while self._task is asyncio.current_task():
            await asyncio.sleep(PERIOD_SECONDS)
            seats = dict(self._seats)
            try:
                codes = await ask(set(seats.values()))
            except Exception:
                log.exception("Nobody can be asked whether live pages may go on; they have to come back.")
                codes = dict.fromkeys(seats.values(), STUMBLED)
            for mailbox, seat in seats.items():
                if seat in codes:
                    mailbox.shut(codes[seat])


access_watch = one_per_loop(AccessWatch)
"""The watch of the running event loop."""
