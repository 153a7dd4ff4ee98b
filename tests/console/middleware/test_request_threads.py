"""Requests share threads that live on, one after the other, and with them a connection to the database."""

import asyncio
import threading
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import path

from console.middleware.live_body import LiveBodyHandler
from console.middleware.request_threads import MOST_IDLE, RequestThreads

pytestmark = pytest.mark.django_db

SECONDS = 60
held: list[threading.Event] = []
seen: list[tuple[threading.Thread, Any]] = []  # who answered, over which connection


def note() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    seen.append((threading.current_thread(), connection.connection))


@login_not_required
def told(_request: HttpRequest) -> HttpResponse:
    """Answer at once."""
    note()
    return HttpResponse()


@login_not_required
def waits(_request: HttpRequest) -> HttpResponse:
    """Answer once the test lets it."""
    note()
    (let_go,) = held
    let_go.wait(10 * SECONDS)
    return HttpResponse()


urlpatterns = [path("told", told), path("waits", waits)]


@pytest.fixture(autouse=True)
def handler(settings: Any) -> LiveBodyHandler:
    settings.ROOT_URLCONF = __name__
    held[:] = [threading.Event()]
    seen.clear()
    return LiveBodyHandler()


async def request(handler: LiveBodyHandler, address: str) -> ApplicationCommunicator:
    scope = {"type": "http", "method": "GET", "path": address, "query_string": b""}
    sent = ApplicationCommunicator(handler, {**scope, "headers": [(b"host", b"localhost")]})
    await sent.send_input({"type": "http.request", "body": b"", "more_body": False})
    return sent


async def ended(sent: ApplicationCommunicator) -> None:
    assert (await sent.receive_output(SECONDS))["status"] == 200
    await sent.wait(SECONDS)


async def ask(handler: LiveBodyHandler) -> tuple[threading.Thread, Any]:
    """Return who answered, over which connection."""
    await ended(await request(handler, "/told"))
    return seen[-1]


async def begun() -> tuple[threading.Thread, Any]:
    """Return who has begun to answer."""
    while not seen:
        await asyncio.sleep(0.01)
    return seen[0]


@pytest.mark.asyncio
async def test_one_after_the_other_they_have_one_thread_and_one_connection(handler: LiveBodyHandler) -> None:
    (thread, connected), *others = [await ask(handler) for _ in range(3)]

    assert [each is thread and one is connected for each, one in others] == [True, True]


@pytest.mark.asyncio
async def test_at_a_time_each_has_a_thread_of_its_own(handler: LiveBodyHandler) -> None:
    slow = await request(handler, "/waits")
    thread, connected = await begun()
    first, second = await ask(handler), await ask(handler)
    held[0].set()
    await ended(slow)

    assert first[0] is second[0] is not thread
    assert first[1] is second[1] is not connected


@pytest.mark.asyncio
async def test_what_works_on_for_a_caller_who_has_gone_holds_up_nobody(handler: LiveBodyHandler) -> None:
    gone = await request(handler, "/waits")
    thread, _ = await begun()
    await gone.send_input({"type": "http.disconnect"})

    assert (await ask(handler))[0] is not thread
    held[0].set()
    await gone.wait(SECONDS)


def test_no_more_than_a_few_wait_and_the_others_end() -> None:
    threads = RequestThreads()
    with_all = [threads.lent() for _ in range(MOST_IDLE + 2)]
    lent = [each.__enter__() for each in with_all]
    running = [thread.submit(threading.current_thread).result(SECONDS) for thread in lent]

    for each in with_all:
        each.__exit__(None, None, None)

    for ended in running[MOST_IDLE:]:
        ended.join(SECONDS)
    assert [thread.is_alive() for thread in running] == [True] * MOST_IDLE + [False] * 2
    for thread in lent[:MOST_IDLE]:
        thread.shutdown()


def test_one_that_is_busy_when_its_request_ends_is_not_lent_again() -> None:
    threads, let_go = RequestThreads(), threading.Event()
    with threads.lent() as busy:
        running = busy.submit(threading.current_thread).result(SECONDS)
        busy.submit(let_go.wait, SECONDS)

    with threads.lent() as other:
        assert other is not busy
    let_go.set()
    running.join(SECONDS)

    assert not running.is_alive()
    other.shutdown()
