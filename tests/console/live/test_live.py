"""Websockets: every frame once and in order, whatever breaks; and only for members of the project."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import translation
from django.utils.translation import gettext

from console.asgi import application
from console.live import access_watch, consumers
from console.live import hub as live
from console.live.hub import LiveFrame, Mailbox, hub
from console.websocket_protocol import WRITER
from jobs.accounts.people import deactivate
from jobs.alerts.incidents import CHANGED as ALERTS_CHANGED
from jobs.ingest.compaction import compact, forget_frames
from jobs.ingest.process import Ingest
from jobs.ingest.store import AttemptCache, store
from jobs.models import Membership
from jobs.runs.lifecycle import finish
from jobs.telemetry.notify import run_changed
from tests.batches import delivery, metric
from tests.rows import NOW, make_project, make_run, make_user
from tests.services import Valkey

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]

PATIENCE = 200.0  # seconds
ORIGIN = (b"origin", b"http://localhost")


class Page:
    """A browser's page on one websocket: keeps what it got and checks that frames come once and in order.

    `takes` says whether a frame that is written at once is taken just now, as by a browser that has read the others.
    """

    def __init__(
        self,
        path: str,
        cookie: str,
        *,
        origin: tuple[bytes, bytes] = ORIGIN,
        takes: Callable[[], bool] = lambda: True,
        language: str = "en",
    ) -> None:
        cookies = f"pitwall_session={cookie}; {settings.LANGUAGE_COOKIE_NAME}={language}"
        headers = [origin, (b"host", b"localhost"), (b"cookie", cookies.encode())]
        path, _, query = path.partition("?")
        scope = {"type": "websocket", "path": path, "query_string": query.encode(), "headers": headers}
        more = {"subprotocols": [], "extensions": {WRITER: self._write}}
        self.socket = ApplicationCommunicator(application, {**scope, **more})
        self.takes = takes
        self.at_once = 0  # frames that came so
        self.last: int | None = None
        self.messages: list[dict[str, Any]] = []

    async def connect(self) -> bool:
        """Ask to come in; return whether the server accepts."""
        await self.socket.send_input({"type": "websocket.connect"})
        return (await self.socket.receive_output(PATIENCE))["type"] == "websocket.accept"

    async def open(self) -> "Page":
        assert await self.connect()
        return self

    async def leave(self) -> None:
        """Go away, as a closed tab does."""
        await self.socket.send_input({"type": "websocket.disconnect", "code": 1001})
        begin = time.monotonic()
        await self.socket.wait(PATIENCE)  # says nothing when it is over
        assert time.monotonic() - begin < PATIENCE, "the page has gone, and is waited for"

    def _write(self, frame: bytes) -> bool:
        if not self.takes():
            return False
        text = frame[{126: 4, 127: 10}.get(frame[1], 2) :].decode()
        self.socket.output_queue.put_nowait({"type": "websocket.send", "text": text})
        self.at_once += 1
        return True

    async def read(self, seconds: float = PATIENCE) -> dict[str, Any]:
        output = await self.socket.receive_output(seconds)
        assert output["type"] == "websocket.send", output
        message = orjson.loads(output["text"])
        if message["type"] == "frame":
            assert self.last is None or message["seq"] == self.last + 1, (self.last, message["seq"])
            self.last = message["seq"]
        self.messages.append(message)
        return message

    async def until(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """Read until a message of that type with these fields comes."""
        async with asyncio.timeout(PATIENCE):
            while True:
                message = await self.read()
                if message["type"] == kind and all(message.get(k) == v for k, v in wanted.items()):
                    return message

    async def close_code(self) -> int:
        """Read until the server closes and return its code."""
        async with asyncio.timeout(PATIENCE):  # heartbeats come all the while
            while True:
                message = await self.socket.receive_output(PATIENCE)
                if message["type"] == "websocket.close":
                    return int(message["code"])

    def frames(self) -> list[int]:
        return [m["seq"] for m in self.messages if m["type"] == "frame"]


class Stage:
    """A run in the database, its ingest, and a signed-in member."""

    def __init__(self, valkey: Valkey) -> None:
        self.valkey = valkey
        self.project = make_project()
        self.user = make_user(project=self.project, role="viewer")
        self.run = make_run(self.project, state="running")
        self.cookie = sign_in(self.user)
        self.ingest = Ingest(valkey.client())
        self.batch = 0
        self.memory = AttemptCache()
        self.pages: list[Page] = []

    @sync_to_async
    def report(self, num: int = 1) -> None:
        """Store `num` frames and publish them, as the ingest process does."""
        deliveries = []
        for _ in range(num):
            self.batch += 1
            deliveries.append(delivery(self.run.pk, self.batch, [metric(self.batch, loss=float(self.batch))]))
        stored = store(deliveries, memory=self.memory, now=NOW)
        self.ingest._hand_on(self.run.pk, 1, deliveries, stored)

    @sync_to_async
    def report_silently(self, num: int) -> None:
        """Store frames that nobody publishes."""
        deliveries = []
        for _ in range(num):
            self.batch += 1
            deliveries.append(delivery(self.run.pk, self.batch, [metric(self.batch, loss=float(self.batch))]))
        store(deliveries, memory=self.memory, now=NOW)

    async def page(self, after: int | None = None, language: str = "en") -> Page:
        query = "" if after is None else f"?after={after}"
        page = await Page(f"/ws/runs/{self.run.pk}{query}", self.cookie, language=language).open()
        page.last = after
        self.pages.append(page)
        return page


def sign_in(user: Any) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies["pitwall_session"].value


@pytest.fixture
def prepared(valkey: Valkey) -> Stage:
    return Stage(valkey)


@pytest.fixture
async def stage(prepared: Stage) -> AsyncIterator[Stage]:
    yield prepared
    for page in prepared.pages:
        await page.leave()


async def test_it_catches_up_from_the_database_then_follows(stage: Stage) -> None:
    await stage.report(3)
    page = await stage.page(after=1)
    heartbeat = await page.until("heartbeat")
    assert (heartbeat["seq"], page.frames()) == (3, [2, 3])

    await stage.report(2)
    await page.until("frame", seq=5)

    assert page.frames() == [2, 3, 4, 5]
    frame = page.messages[-1]
    assert frame["metrics"][0]["values"] == {"loss": [5.0]}


async def test_a_frame_is_written_at_once_to_who_waits_for_it_and_to_nobody_twice(stage: Stage) -> None:
    quick, slow = await stage.page(after=0), await stage.page(after=0)
    slow.takes = lambda: False
    for page in (quick, slow):
        await page.until("heartbeat")

    for seq in (1, 2, 3):
        await stage.report(1)
        for page in (quick, slow):
            await page.until("frame", seq=seq)

    assert (quick.frames(), slow.frames()) == ([1, 2, 3], [1, 2, 3])
    assert quick.at_once >= 2  # the first may come while it is still told where the run stands
    assert [m for m in quick.messages if m["type"] == "frame"] == [m for m in slow.messages if m["type"] == "frame"]


async def test_who_is_shut_out_gets_nothing_at_once_either() -> None:
    box, passed = Mailbox(), []
    box.pass_on = lambda frame: passed.append(frame.seq) or True
    waits = asyncio.create_task(box.wait(PATIENCE))
    await asyncio.sleep(0)
    box.put_frame(LiveFrame(seq=1, utf8=b"x"))
    box.shut(4401)
    box.put_frame(LiveFrame(seq=2, utf8=b"x"))

    with pytest.raises(live.Shut):
        await waits

    assert passed == [1]


async def test_the_header_comes_first_and_at_each_change(stage: Stage) -> None:
    page = await stage.page(after=0)
    first = await page.until("run")
    assert (first["run"]["id"], first["run"]["state"]) == (stage.run.pk, "running")

    await sync_to_async(finish)(run_id=stage.run.pk, attempt=1, state="finished", cause={}, cleanup={}, now=NOW)

    async with asyncio.timeout(PATIENCE):
        while (await page.until("run"))["run"]["state"] != "finished":
            pass


async def test_a_cause_that_comes_while_the_page_is_open_is_in_its_language(stage: Stage) -> None:
    pages = {language: await stage.page(after=0, language=language) for language in ("en", "zh-hans")}
    cause = {"side": "user", "text": "canceled before it started"}

    await sync_to_async(finish)(run_id=stage.run.pk, attempt=1, state="failed", cause=cause, cleanup={}, now=NOW)

    said = {}
    for language, page in pages.items():
        async with asyncio.timeout(PATIENCE):
            while (header := (await page.until("run"))["run"])["state"] != "failed":
                pass
        said[language] = header["cause"]["text"]
    with translation.override("zh-hans"):
        assert said == {"en": cause["text"], "zh-hans": gettext(cause["text"])}
    assert said["zh-hans"] != cause["text"]


async def test_without_after_it_starts_with_the_next_frame(stage: Stage) -> None:
    await stage.report(3)
    page = await stage.page()
    await page.until("heartbeat", seq=3)

    await stage.report(1)
    await page.until("frame", seq=4)

    assert page.frames() == [4]


async def test_flapping_pages_get_every_frame_once_and_in_order(stage: Stage) -> None:
    total, dice = 150, random.Random(7)

    async def report() -> None:
        while stage.batch < total:
            await stage.report(dice.randint(1, 3) if stage.batch < total - 3 else 1)
            await asyncio.sleep(0.005)

    at_once = []

    async def watch(seed: int) -> list[int]:
        mine, last, seen = random.Random(seed), 0, []

        def takes() -> bool:
            return mine.random() < 0.5

        while last < total:
            page = await Page(f"/ws/runs/{stage.run.pk}?after={last}", stage.cookie, takes=takes).open()
            page.last = last
            stop = last + mine.randint(1, 40)
            async with asyncio.timeout(PATIENCE):
                while page.last is not None and page.last < min(stop, total):
                    await page.read()
            assert page.last is not None
            seen += page.frames()
            last = page.last
            at_once.append(page.at_once)
            await page.leave()
        return seen

    _, *all_seen = await asyncio.gather(report(), *[watch(seed) for seed in range(6)])

    assert all(seen == list(range(1, total + 1)) for seen in all_seen)
    assert 0 < sum(at_once) < 6 * total


async def test_frames_that_nobody_published_are_found_by_the_heartbeat(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers.RunConsumer, "heartbeat_seconds", 0.3)
    page = await stage.page(after=0)
    await page.until("heartbeat")

    await stage.report_silently(3)
    await page.until("heartbeat", seq=3)

    assert page.frames() == [1, 2, 3]


async def test_a_hole_in_the_live_stream_is_filled_from_the_database(stage: Stage) -> None:
    page = await stage.page(after=0)
    await page.until("heartbeat")
    await stage.report_silently(4)

    await stage.report(1)
    await page.until("frame", seq=5)

    assert page.frames() == [1, 2, 3, 4, 5]


async def test_what_many_pages_missed_is_read_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [await stage.page(after=0) for _ in range(4)]
    for page in pages:
        await page.until("heartbeat")
    reads, read = [], consumers.missed
    monkeypatch.setattr(consumers, "missed", lambda **asked: reads.append(asked) or read(**asked))
    await stage.report_silently(4)

    await stage.report(1)
    for page in pages:
        await page.until("frame", seq=5)

    assert reads == [{"run_id": stage.run.pk, "after": 0}]


async def test_a_page_that_does_not_read_loses_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_FRAMES", 5)
    page = await stage.page(after=0)
    page.takes = lambda: False
    await page.until("heartbeat")
    for box in next(iter(hub()._of_run.values())):
        for seq in range(1, 40):  # far more than fits: everything that waits is dropped
            box.put_frame(LiveFrame(seq=seq, utf8=b"{}"))
    await stage.report_silently(40)

    await stage.report(1)
    await page.until("frame", seq=41)

    assert page.frames() == list(range(1, 42))


async def test_a_frame_too_large_for_the_live_stream_is_read_from_the_database(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.ingest.process.MAX_INLINE_BYTES", 10)
    page = await stage.page(after=0)
    await page.until("heartbeat")

    await stage.report(2)
    await page.until("frame", seq=2)

    assert page.frames() == [1, 2]


async def test_a_restart_of_redis_leaves_no_hole(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers.RunConsumer, "heartbeat_seconds", 1.0)
    page = await stage.page(after=0)
    await stage.report(2)
    await page.until("frame", seq=2)
    stage.valkey.wipe()
    await stage.report_silently(3)
    await asyncio.to_thread(stage.valkey.start)
    await stage.report(2)

    await page.until("frame", seq=7)

    assert page.frames() == list(range(1, 8))


async def test_folded_frames_are_answered_with_reset(stage: Stage) -> None:
    await stage.report(5)
    await sync_to_async(compact)(run_id=stage.run.pk)
    await sync_to_async(forget_frames)(run_id=stage.run.pk, through_seq=5)
    await stage.report(2)

    page = await stage.page(after=2)

    assert await page.until("reset") == {"type": "reset", "seq": 7}
    page.last = 7
    await stage.report(1)
    await page.until("frame", seq=8)


async def test_a_page_far_behind_or_ahead_is_reset(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.telemetry.frame_log.MAX_MISSED", 3)
    await stage.report(5)

    behind, ahead = await stage.page(after=0), await stage.page(after=99)

    assert (await behind.until("reset"))["seq"] == 5
    assert (await ahead.until("reset"))["seq"] == 5


async def test_many_frames_are_sent_in_portions(stage: Stage) -> None:
    await stage.report(350)

    page = await stage.page(after=0)
    await page.until("heartbeat", seq=350)

    assert page.frames() == list(range(1, 351))


async def test_an_idle_socket_stays_open(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert consumers.RunConsumer.heartbeat_seconds <= 5  # a page gives a line up after 16 s of silence
    monkeypatch.setattr(consumers.RunConsumer, "heartbeat_seconds", 0.3)
    page = await stage.page(after=0)

    for _ in range(4):
        await page.until("heartbeat")

    await stage.report(1)
    await page.until("frame", seq=1)


async def test_the_tail_ends_with_the_last_page(stage: Stage) -> None:
    first, second = await stage.page(after=0), await stage.page(after=0)
    await first.until("heartbeat")
    await second.until("heartbeat")
    await first.leave()
    assert hub()._task is not None

    await second.leave()
    stage.pages.clear()

    assert hub()._task is None


async def test_updates_tell_of_every_run_of_the_project_only(stage: Stage) -> None:
    other = await sync_to_async(make_run)(stage.project)
    foreign = await sync_to_async(make_run)(state="running")
    page = await Page(f"/ws/updates?project={stage.project.slug}", stage.cookie).open()
    stage.pages.append(page)
    assert await page.read() == {"type": "heartbeat"}

    for run in (foreign, other):
        await sync_to_async(run_changed)(run.pk)

    message = await page.until("run")
    assert message["run"]["id"] == other.pk
    await sync_to_async(run_changed)(stage.run.pk)
    assert (await page.until("run"))["run"]["id"] == stage.run.pk
    assert all(m["type"] != "run" or m["run"]["id"] != foreign.pk for m in page.messages)


async def test_updates_tell_that_alerts_changed_and_nothing_of_them(stage: Stage) -> None:
    page = await Page(f"/ws/updates?project={stage.project.slug}", stage.cookie).open()
    stage.pages.append(page)
    assert await page.read() == {"type": "heartbeat"}

    await sync_to_async(run_changed)(ALERTS_CHANGED)

    assert await page.until("alerts") == {"type": "alerts"}


async def test_nobody_comes_in_without_a_session_or_membership(stage: Stage) -> None:
    stranger = await sync_to_async(sign_in)(await sync_to_async(make_user)())
    path = f"/ws/runs/{stage.run.pk}"
    updates = f"/ws/updates?project={stage.project.slug}"
    cases = [
        (path, "", 4401),
        (path, stranger, 4404),
        ("/ws/runs/r-none", stage.cookie, 4404),
        (updates, "", 4401),
        (updates, stranger, 4404),
        ("/ws/updates?project=none", stage.cookie, 4404),
    ]
    for target, cookie, code in cases:
        page = await Page(target, cookie).open()
        assert await page.close_code() == code, target


async def test_who_loses_the_membership_loses_the_page(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_watch, "PERIOD_SECONDS", 0.2)
    page = await stage.page(after=0)
    await page.until("heartbeat")

    await sync_to_async(Membership.objects.all().delete)()

    assert await page.close_code() == 4403


@pytest.mark.parametrize("deed", ["signed out", "deactivated", "password changed"])
async def test_who_is_no_longer_signed_in_loses_the_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    monkeypatch.setattr(access_watch, "PERIOD_SECONDS", 0.2)
    page = await stage.page(after=0)
    await page.until("heartbeat")

    if deed == "signed out":
        await sync_to_async(Session.objects.all().delete)()
    elif deed == "deactivated":
        await sync_to_async(deactivate)(username=stage.user.username, actor=None, now=NOW)
    else:
        await sync_to_async(User.objects.update)(password="another")

    assert await page.close_code() == 4401


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://localhost:9999", "http://localhost.evil.example", "null", "", "file://"]
)
async def test_a_page_of_another_origin_is_refused(stage: Stage, origin: str) -> None:
    page = Page(f"/ws/runs/{stage.run.pk}", stage.cookie, origin=(b"origin", origin.encode()))

    assert not await page.connect()


async def test_a_trusted_origin_behind_a_proxy_is_taken(stage: Stage, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://localhost:8443"]
    page = Page(f"/ws/runs/{stage.run.pk}", stage.cookie, origin=(b"origin", b"https://localhost:8443"))

    assert await page.connect()
    await page.leave()


@pytest.mark.parametrize("turns", range(5))
async def test_a_page_that_goes_in_the_moment_of_a_frame_is_not_waited_for(turns: int) -> None:
    box = Mailbox()

    async def follow() -> None:
        while True:
            await box.wait(PATIENCE)

    sender = asyncio.create_task(follow())
    await asyncio.sleep(0)
    box.put_frame(LiveFrame(seq=1, utf8=b"x"))
    for _ in range(turns):
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE / 2):
        await live.end(sender)

    assert sender.cancelled()


async def test_a_full_mailbox_drops_all_and_says_so() -> None:
    box = Mailbox()
    for seq in range(live.MAX_FRAMES):
        box.put_frame(LiveFrame(seq=seq, utf8=b"x"))
    assert not box.take_lost()

    box.put_frame(LiveFrame(seq=999, utf8=b"x"))

    assert (box.take_frames(), box.take_lost(), box.take_lost()) == ([], True, False)


@pytest.mark.parametrize("limit", ["SOCKETS_OF_PERSON", "SOCKETS_OF_RUN"])
async def test_one_socket_too_many_is_closed_with_a_code_of_its_own(stage: Stage, settings: Any, limit: str) -> None:
    setattr(settings, limit, 2)
    first, second = await stage.page(after=0), await stage.page(after=0)
    for page in (first, second):
        await page.until("heartbeat")  # counted
    path = f"/ws/runs/{stage.run.pk}?after=0"

    third = await Page(path, stage.cookie).open()
    assert await third.close_code() == 4429

    await third.leave()
    await first.leave()
    fourth = await stage.page(after=0)
    await fourth.until("heartbeat")


async def test_a_client_that_goes_on_talking_is_closed(stage: Stage) -> None:
    page = await stage.page(after=0)
    await page.until("heartbeat")

    for _ in range(consumers.MOST_SAID):
        await page.socket.send_input({"type": "websocket.receive", "text": "x"})

    assert await page.close_code() == 1008
