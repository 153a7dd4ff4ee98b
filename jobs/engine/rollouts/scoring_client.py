"""Requests to a service that scores: several at once, tried again with back-off, behind a circuit breaker.

The address is the user's and is called from the cluster: no redirect is followed, a response is read up to a limit, and
the token is sent to that address alone and shown nowhere.
"""

import asyncio
import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from jobs.catalog.spec.reward_parts import address_problem
from jobs.engine.rollouts.circuit_breaker import CircuitBreaker
from jobs.engine.rollouts.reward import RewardFailed, ScoringLimits

MOST_BYTES = 8 << 20
"""Of a response; scores of a thousand completions take 20 KiB."""
LONGEST_WAIT = 30.0
_FIRST_WAIT = 0.5
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_CHECK_SECONDS = 0.5
_SHOWN_CHARS = 200
_FIELD = "reward.location"

T = TypeVar("T")


class _TryAgain(Exception):
    """An attempt failed in a way that may pass; `after` is what the server asks to wait, in seconds."""

    def __init__(self, why: str, *, after: float = 0.0) -> None:
        self.after = after
        super().__init__(why)


class ScoringClient:
    """One address of a run. Not to be shared by threads."""

    def __init__(self, location: str, *, called: str, token_env: str, limits: ScoringLimits) -> None:
        """Take the address and what people call it. Raises: RewardFailed if it may not be called, or has no token."""
        if (problem := address_problem(location)) is not None:
            raise RewardFailed(str(problem), kind="wrong_type", field=_FIELD)
        self._url, self._limits, self._service = location.strip(), limits, limits.service
        self._called = f"The {called} at {urlsplit(self._url).netloc}"
        self._token = _token(token_env, self._called)
        self._breaker = CircuitBreaker(failures=self._service.breaker_failures, seconds=self._service.breaker_seconds)

    def ask_all(
        self, payloads: Sequence[Mapping[str, object]], read: Callable[[object, int], T]
    ) -> list[T | RewardFailed]:
        """Return what `read` makes of each response, in order; it gets the JSON and the payload's number.

        What `read` refuses by ValueError, whose text goes on from "...: ", is a failure, too.
        Raises: RewardFailed of the first request that fails, unless failures are kept; what `limits.check` raises.
        """
        return asyncio.run(self._ask_all(payloads, read)) if payloads else []

    async def _ask_all(
        self, payloads: Sequence[Mapping[str, object]], read: Callable[[object, int], T]
    ) -> list[T | RewardFailed]:
        slots = asyncio.Semaphore(self._service.num_at_once)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        async with httpx.AsyncClient(headers=headers, follow_redirects=False, timeout=None) as client:  # noqa: S113

            async def one(number: int) -> T | RewardFailed:
                async with slots:
                    try:
                        return self._read(await self._ask(client, payloads[number]), read, number)
                    except RewardFailed as failed:
                        return failed

            tasks = [asyncio.create_task(one(number)) for number in range(len(payloads))]
            try:
                await self._wait(tasks)
                return [task.result() for task in tasks]
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, tasks: Sequence["asyncio.Task[T | RewardFailed]"]) -> None:
        """Wait for all, asking twice a second whether to go on; end with the first failure that is not kept."""
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if isinstance(failed := task.result(), RewardFailed) and not self._limits.keeps_failures:
                    raise failed
            self._limits.check()

    async def _ask(self, client: httpx.AsyncClient, payload: Mapping[str, object]) -> bytes:
        """Return the body of the response, after as many tries as are allowed. Raises: RewardFailed."""
        if not self._breaker.lets_through():
            raise RewardFailed(
                f"{self._called} was not asked: {self._service.breaker_failures} requests in a row failed "
                f"(reward.breaker_failures), so it is left alone for {self._service.breaker_seconds:g} s at a time.",
                kind="unreachable",
                field=_FIELD,
            )
        content = json.dumps(payload).encode()
        tries = self._service.retries + 1
        for number in range(1, tries + 1):
            try:
                body = await self._attempt(client, content)
            except _TryAgain as failed:
                if number == tries:
                    self._breaker.failed()
                    text = f"{self._called} did not score in {tries} tries (reward.retries); the last: {failed}."
                    raise RewardFailed(text, kind="unreachable", field=_FIELD) from None
                await asyncio.sleep(wait_seconds(number, server=failed.after))
            except RewardFailed:
                self._breaker.succeeded()  # it is there, and says no
                raise
            else:
                self._breaker.succeeded()
                return body
        raise AssertionError("a loop of tries ends by a return or a raise")

    async def _attempt(self, client: httpx.AsyncClient, content: bytes) -> bytes:
        seconds = self._limits.timeout_seconds
        try:
            async with asyncio.timeout(seconds), client.stream("POST", self._url, content=content) as response:
                body = await self._body(response)
                status, headers = response.status_code, response.headers
        except TimeoutError:
            raise _TryAgain(f"no answer within {seconds:g} s ({self._limits.timeout_name})") from None
        except httpx.HTTPError as error:
            raise _TryAgain(self._hidden(f"{type(error).__name__} {error}".strip())) from None
        if status == 200:
            return body
        said = self._hidden(body[:_SHOWN_CHARS].decode(errors="replace").strip())
        text = f"status {status}" + (f", {said!r}" if said else "")
        if status in _AGAIN:
            raise _TryAgain(text, after=_retry_after(headers.get("Retry-After", "")))
        if 300 <= status < 400:
            text = f"status {status}, a redirect, and none is followed. Name the address that it leads to"
        raise RewardFailed(f"{self._called} answered with {text}.", kind="wrong_type", field=_FIELD)

    async def _body(self, response: httpx.Response) -> bytes:
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise self._wrong("its response is compressed, which it was not asked for")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MOST_BYTES:
                raise self._wrong(f"its response is larger than {MOST_BYTES >> 20} MiB")
        return bytes(body)

    def _read(self, body: bytes, read: Callable[[object, int], T], number: int) -> T:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            shown = self._hidden(body[:60].decode(errors="replace"))
            raise self._wrong(f"its response is not JSON but {shown!r}") from None
        try:
            return read(answer, number)
        except ValueError as error:
            raise self._wrong(self._hidden(str(error))) from None

    def _wrong(self, why: str) -> RewardFailed:
        return RewardFailed(f"{self._called} gave no score: {why}.", kind="wrong_type", field=_FIELD)

    def _hidden(self, text: str) -> str:
        return text.replace(self._token, "(token)") if self._token else text


def wait_seconds(number: int, *, server: float = 0.0, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Return how long to wait after try `number`, from 1: drawn between half and all of 0.5 s, doubled each time.

    What the server wants counts if it is more; 30 s are the most.
    """
    longest = min(_FIRST_WAIT * 2 ** (number - 1), LONGEST_WAIT)
    return min(max(draw(longest / 2, longest), server), LONGEST_WAIT)


def _retry_after(text: str) -> float:
    """Return the seconds of a Retry-After header, 0 where it has none (a date counts as none)."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def _token(name: str, called: str) -> str:
    if not name:
        return ""
    token = os.environ.get(name, "").strip()
    if not token or not token.isascii() or not token.isprintable():
        text = (
            f"{called} needs a token, but the variable {name} holds none where the driver runs. Set it on the cluster."
        )
        raise RewardFailed(text, kind="not_started", field="reward.token_env")
    return token
