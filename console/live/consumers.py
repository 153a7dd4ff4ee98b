"""Websockets: subscribe, catch up from `after`, follow. docs/develop/protocol.md section 5 is their contract."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qs

import orjson
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpRequest
from django.urls import path
from django.utils import translation

from console.api.traces.schema import trace_out
from console.api.traces.traces import whole
from console.live.access_watch import SIGN_IN, Followed, Seat, access_watch
from console.live.hub import LiveFrame, Mailbox, Shut, end, hub
from console.live.run_headers import forget_header, headers
from console.live.shared_reads import SharedReads, one_per_loop
from console.live.sockets import open_sockets
from console.websocket_protocol import WRITER, FrameWriter
from jobs.accounts.access import role
from jobs.alerts.incidents import CHANGED as ALERTS_CHANGED
from jobs.models import Project, Trace
from jobs.telemetry.frame_log import MissedFrames, missed, newest_seq

HEARTBEAT_SECONDS = 5.0
HEADER_SECONDS = 0.5
TRACE_SECONDS = 0.2
NEWEST_SECONDS = 0.5
MISSED_SECONDS = 1.0
P = ParamSpec("P")
T = TypeVar("T")

NOT_THERE, TOO_MANY = 4404, 4429
TOO_TALKATIVE = 1008  # of RFC 6455: it breaks our rules
GONE = '{"type":"gone"}'
"""Said of a run in the trash, or deleted for good."""
MOST_SAID = 10
"""Messages of a client until it is closed: our pages send none."""


newest = one_per_loop(lambda: SharedReads(newest_seq, max_age=NEWEST_SECONDS))
"""The numbers of runs' newest frames: all that follow a run ask at each heartbeat."""
missed_frames = one_per_loop(lambda: SharedReads(_read_missed, max_age=MISSED_SECONDS, max_keys=16))
"""Frames that the database has, by run, the last frame sent and the newest known: all ask for them at the same time."""


class _Follower(AsyncWebsocketConsumer):
    """What both sockets share: who may come in, one task that sends, one way to end it."""

    channel_layer_alias = "none"  # a socket of ours waits for nothing on the channel layer
    heartbeat_seconds = HEARTBEAT_SECONDS

    async def connect(self) -> None:
        """Let the person in, or say by the close code why not."""
        self.mailbox = Mailbox()
        self.sender: asyncio.Task[None] | None = None
        self.counted_as: dict[str, int] = {}
        self.num_said = 0
        self._language = _language(self.scope)
        await self.accept()
        code = await self._admit() or self._count()
        if code:
            await self.close(code)
            return
        self.sender = asyncio.create_task(self._serve(), name="websocket sender")

    async def disconnect(self, _code: int) -> None:
        """Stop sending; the connection is gone."""
        open_sockets.leave(self.counted_as)
        self.counted_as = {}
        if self.sender is not None:
            await end(self.sender)

    async def send(self, text_data: str | None = None, bytes_data: bytes | None = None, close: bool = False) -> None:
        """Send it to who may still have it. Raises: Shut."""
        self.mailbox.check()
        await super().send(text_data=text_data, bytes_data=bytes_data, close=close)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:  # noqa: ARG002
        """Ignore what browsers send, as they only listen, and close who goes on."""
        self.num_said += 1
        if self.num_said == MOST_SAID:
            await self.close(TOO_TALKATIVE)

    async def _admit(self) -> int:
        raise NotImplementedError

    async def _follow(self) -> None:
        raise NotImplementedError

    @property
    def _followed(self) -> tuple[Followed, str]:
        """What it follows: of what kind, and its id or slug."""
        raise NotImplementedError

    def _count(self) -> int:
        """Count it among the person's sockets and those of what it follows; return why it may not stay, else 0."""
        most = {f"person {self._user.pk}": settings.SOCKETS_OF_PERSON}
        kind, name = self._followed
        if kind != "project":
            most[f"{kind} {name}"] = settings.SOCKETS_OF_RUN
        if not open_sockets.enter(most):
            return TOO_MANY
        self.counted_as = most
        return 0

    async def _serve(self) -> None:
        access_watch().enter(self.mailbox, self._seat())
        try:
            await self._follow()
        except asyncio.CancelledError:
            raise
        except Shut as shut:
            await self.close(shut.code)
        except Exception:
            with contextlib.suppress(Exception):
                await self.close(1011)  # the page comes back by itself, from its last frame
            raise
        finally:
            access_watch().leave(self.mailbox)
            await hub().unsubscribe(self.mailbox)

    @property
    def _user(self) -> AbstractBaseUser | AnonymousUser:
        return self.scope.get("user") or AnonymousUser()

    def _seat(self) -> Seat:
        kind, name = self._followed
        session_key = self.scope["session"].session_key or ""
        return Seat(session_key=session_key, user_id=self._user.pk or 0, kind=kind, name=name)

    def _argument(self, name: str) -> str:
        return parse_qs(self.scope.get("query_string", b"").decode("latin-1")).get(name, [""])[0]


class RunConsumer(_Follower):
    """`/ws/runs/<run>?after=<seq>`: every frame above `after`, once and in order, and the header."""

    @property
    def _followed(self) -> tuple[Followed, str]:
        return "run", self.run_id

    async def _admit(self) -> int:
        self.run_id = self.scope["url_route"]["kwargs"]["run_id"]
        if not self._user.is_authenticated:
            return SIGN_IN
        after = self._argument("after")
        there = await _in_database(newest_seq)(self.run_id)
        is_allowed = await _in_database(_may_see_run)(self._user, self.run_id)
        if there is None or not is_allowed:
            return NOT_THERE  # which of the two is not theirs to know
        self.last = int(after) if after.isascii() and after.isdigit() and len(after) < 19 else there
        self._last_at = time.monotonic()
        self._header, self._header_due = "", 0.0
        return 0

    async def _follow(self) -> None:
        await hub().subscribe(self.mailbox, self.run_id)
        forget_header(self.run_id)  # what was read before may be older than the page that asks
        await self._send_header()
        await self._catch_up()
        await self._beat()
        self.mailbox.pass_on = self._passed_on
        beat_at = time.monotonic() + self.heartbeat_seconds
        while True:
            wake_at = min(beat_at, self._header_due) if self.mailbox.has_changed else beat_at
            await self.mailbox.wait(wake_at - time.monotonic())
            if self.mailbox.take_lost():
                await self._catch_up()
            for frame in self.mailbox.take_frames():
                if frame.seq > self.last + 1 or (frame.seq == self.last + 1 and frame.utf8 is None):
                    await self._catch_up_to(frame.seq)
                if frame.seq == self.last + 1 and frame.utf8 is not None:
                    await self._send_frame(frame.seq, frame.text)
            now = time.monotonic()
            if self.mailbox.has_changed and now >= self._header_due:
                self.mailbox.take_changed()
                await self._send_header()
            if now >= beat_at:
                beat_at = now + self.heartbeat_seconds
                await self._check_newest()
                await self._send_header()
                await self._beat()

    async def _catch_up(self) -> None:
        """Send what the database has above the last frame sent."""
        is_behind = True
        while is_behind:
            is_behind = await self._send_missed(await _in_database(missed)(run_id=self.run_id, after=self.last))

    async def _catch_up_to(self, seq: int) -> None:
        """Send what the database has above the last frame sent; `seq` is known to be there."""
        is_behind = True
        while is_behind and self.last != seq:
            is_behind = await self._send_missed((await missed_frames().get((self.run_id, self.last, seq))).value)

    async def _send_missed(self, frames: MissedFrames) -> bool:
        """Send them; return whether there are more."""
        if frames.is_folded:
            self.last = frames.newest
            await self._send({"type": "reset", "seq": frames.newest})
            return False
        for seq, text in frames.frames:
            await self._send_frame(seq, text)
        return self.last < frames.newest

    async def _check_newest(self) -> None:
        """Catch up where the database has another newest frame than was sent."""
        there = await newest().get(self.run_id)
        if (there.value or 0) > self.last or ((there.value or 0) < self.last and self._last_at < there.asked_at):
            await self._catch_up_to(there.value or 0)

    def _passed_on(self, frame: LiveFrame) -> bool:
        """Write a frame at once if it is the next one and the client has read the earlier ones."""
        write: FrameWriter | None = self.scope.get("extensions", {}).get(WRITER)
        if write is None or frame.utf8 is None or frame.seq != self.last + 1 or not write(frame.wire):
            return False
        self.last, self._last_at = frame.seq, time.monotonic()
        return True

    async def _send_frame(self, seq: int, text: str) -> None:
        await self.send(text_data=text)
        self.last, self._last_at = seq, time.monotonic()

    async def _send_header(self) -> None:
        """Send the header, or that there is none, if it is not what the page has.

        The next one is due when all others' are: one read serves.
        """
        self._header_due = (time.monotonic() // HEADER_SECONDS + 1) * HEADER_SECONDS
        header = (await headers().get((self.run_id, self._language))).value
        text = GONE if header is None else header.text
        if text != self._header:
            self._header = text
            await self.send(text_data=text)

    async def _beat(self) -> None:
        await self._send({"type": "heartbeat", "seq": self.last})

    async def _send(self, message: dict[str, object]) -> None:
        await self.send(text_data=orjson.dumps(message).decode())


class UpdatesConsumer(_Follower):
    """`/ws/updates?project=<slug>`: the headers of a project's runs as they change."""

    @property
    def _followed(self) -> tuple[Followed, str]:
        return "project", self.project

    async def _admit(self) -> int:
        if not self._user.is_authenticated:
            return SIGN_IN
        self.project = self._argument("project")
        return 0 if await _in_database(_is_member)(self._user, self.project) else NOT_THERE

    async def _follow(self) -> None:
        await hub().subscribe(self.mailbox)
        await self.send(text_data='{"type":"heartbeat"}')
        beat_at = time.monotonic() + self.heartbeat_seconds
        while True:
            await self.mailbox.wait(beat_at - time.monotonic())
            for run_id in sorted(self.mailbox.take_changed()):
                if run_id == ALERTS_CHANGED:
                    await self.send(text_data='{"type":"alerts"}')  # pages ask for what they may see
                    continue
                header = (await headers().get((run_id, self._language))).value
                if header is not None and header.project == self.project:
                    await self.send(text_data=header.text)
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + self.heartbeat_seconds
                await self.send(text_data='{"type":"heartbeat"}')
            else:
                await asyncio.sleep(HEADER_SECONDS)  # a training run's header changes ten times a second


class TraceConsumer(_Follower):
    """`/ws/traces/<trace>`: the trace with the state of each layer, at first and whenever it changes."""

    @property
    def _followed(self) -> tuple[Followed, str]:
        return "trace", self.trace_id

    async def _admit(self) -> int:
        self.trace_id = self.scope["url_route"]["kwargs"]["trace_id"]
        if not self._user.is_authenticated:
            return SIGN_IN
        return 0 if await _in_database(_may_see_trace)(self._user, self.trace_id) else NOT_THERE

    async def _follow(self) -> None:
        await hub().subscribe(self.mailbox, self.trace_id)
        sent = ""
        beat_at = 0.0
        while True:
            text = await _in_database(_trace_text)(self.trace_id, self._language)
            if text is None:
                await self.close(NOT_THERE)  # deleted
                return
            if text != sent:
                await self.send(text_data=text)
                sent = text
            if time.monotonic() >= beat_at:
                await self.send(text_data='{"type":"heartbeat"}')
                beat_at = time.monotonic() + self.heartbeat_seconds
            await self.mailbox.wait(beat_at - time.monotonic())
            self.mailbox.take_changed()
            self.mailbox.take_lost()
            await asyncio.sleep(TRACE_SECONDS)  # an import says how far it is more often than eyes follow


def _in_database(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Return the function to be awaited; it runs in a thread that keeps its database connection."""
    return database_sync_to_async(function, thread_sensitive=False)


def _read_missed(key: tuple[str, int, int]) -> MissedFrames:
    run_id, after, _newest = key
    return missed(run_id=run_id, after=after)


def _may_see_run(user: AbstractBaseUser | AnonymousUser, run_id: str) -> bool:
    project = Project.objects.filter(run__pk=run_id).first()
    return project is not None and role(user, project) is not None


def _may_see_trace(user: AbstractBaseUser | AnonymousUser, trace_id: str) -> bool:
    project = Project.objects.filter(trace__pk=trace_id).first()
    return project is not None and role(user, project) is not None


def _trace_text(trace_id: str, language: str) -> str | None:
    trace = whole(Trace.objects.filter(pk=trace_id)).first()
    if trace is None:
        return None
    with translation.override(language):
        return orjson.dumps({"type": "trace", "trace": trace_out(trace).model_dump(mode="json")}).decode()


def _is_member(user: AbstractBaseUser | AnonymousUser, slug: str) -> bool:
    project = Project.objects.filter(slug=slug).first() if "\0" not in slug else None
    return project is not None and role(user, project) is not None


def _language(scope: Mapping[str, Any]) -> str:
    """Return the language of the page that opened the socket, by the rules that chose the page's own."""
    request = HttpRequest()
    request.COOKIES = scope.get("cookies", {})
    sent = dict(scope.get("headers", ()))
    request.META["HTTP_ACCEPT_LANGUAGE"] = sent.get(b"accept-language", b"").decode("latin-1")
    return translation.get_language_from_request(request)


websocket_urlpatterns = [
    path("ws/runs/<slug:run_id>", RunConsumer.as_asgi()),
    path("ws/traces/<slug:trace_id>", TraceConsumer.as_asgi()),
    path("ws/updates", UpdatesConsumer.as_asgi()),
]
