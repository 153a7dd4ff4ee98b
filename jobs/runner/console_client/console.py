"""The runner's side of the wire (docs/develop/protocol.md, section 3): a method a request, an exception a refusal.

ConsoleError
|- ConsoleUnreachable   no answer, 5xx: try again
|  `- ConsoleFull       507: its disk is full; try again for a while
|- Fenced               409: this attempt may not report any more
|- Refused              4xx: will not get better by trying again
|- OffsetMismatch       409 on a file: go on from `received`
`- ChecksumMismatch     422 on a file: start again
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast
from urllib.parse import quote, urlsplit

import httpx

from jobs.runner.console_client.runner_job import RunnerJob

TIMEOUT = httpx.Timeout(30.0, connect=5.0)


class ConsoleError(Exception):
    """A request to the console did not do what it should."""


class ConsoleUnreachable(ConsoleError):
    """The console does not answer, or says that it cannot at the moment."""


class ConsoleFull(ConsoleUnreachable):
    """The console's disk is full."""


class AttemptFenced(ConsoleError):
    """A newer attempt has taken over, or the run has ended; batches up to `durable_through` are in."""

    def __init__(self, text: str, durable_through: int = 0) -> None:
        super().__init__(text)
        self.durable_through = durable_through


class RequestRejected(ConsoleError):
    """The console says that the request is wrong; `status` is its HTTP status, `events` the places of what is wrong."""

    def __init__(self, text: str, *, status: int, events: tuple[int, ...] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.events = events


class OffsetMismatch(ConsoleError):
    """The console has another number of bytes of the file."""

    def __init__(self, received: int) -> None:
        super().__init__(f"The console has {received} bytes.")
        self.received = received


class ChecksumMismatch(ConsoleError):
    """What arrived is not what was announced."""


class CommandSent(TypedDict):
    """A command as the console sends it (docs/develop/protocol.md, 3)."""

    number: int
    verb: str
    payload: Mapping[str, object]


class CommandAnswer(TypedDict):
    """What became of a command, as the console is told it."""

    number: int
    answer: Mapping[str, object]


class InputFile(TypedDict):
    """An uploaded file that a spec needs; `size` in bytes."""

    sha256: str
    file_name: str
    size: int


class Resume(TypedDict):
    """Whose checkpoint an attempt starts from."""

    attempt: int
    step: int


class AnnouncedVariables(TypedDict):
    """What the trainer is given: variables with their values, secrets by their names."""

    variables: Mapping[str, str]
    secrets: list[str]


class LaunchAnswer(TypedDict):
    """What to run; `resume` is None from the start."""

    run: str
    attempt: int
    spec: Mapping[str, object]
    inputs: NotRequired[list[InputFile]]
    resume: NotRequired[Resume | None]
    commands: NotRequired[list[CommandSent]]
    environment: NotRequired[AnnouncedVariables]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The answer to a batch or a heartbeat."""

    durable_through: int
    expect: int
    commands: tuple[CommandSent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """How much of a file the console has."""

    received: int
    is_ready: bool


class Console:
    """Talks to one console about one attempt, over connections that are kept open. Usable from several threads."""

    def __init__(self, job: RunnerJob, *, is_cleanup: bool = False, merge: str = "") -> None:
        """Open no connection yet. With `is_cleanup` an ended attempt may report until its clean-up report is in.

        `merge` is `<number>:<key>` of the merge that this job makes: it may hand over that one file.
        """
        is_near = urlsplit(job.url).hostname in ("127.0.0.1", "localhost", "::1")
        self._client = httpx.Client(
            base_url=f"{job.url}/ingest/{quote(job.run)}/{job.attempt}/",
            headers={"Authorization": f"Bearer {job.token}"} | ({"X-Pitwall-Merge": merge} if merge else {}),
            params={"cleanup": "1"} if is_cleanup else {},
            timeout=TIMEOUT,
            trust_env=not is_near,  # a proxy of the node is not on the way to the node itself
        )

    def launch(self) -> LaunchAnswer:
        """Return what to run: run, attempt, spec and inputs."""
        return cast(LaunchAnswer, self._json(self._send("GET", "launch")))

    def secrets(self, key: str) -> Mapping[str, str]:
        """Return the attempt's secrets by name, which only who first asked for them gets: `key` says who asks."""
        answer = self._json(self._send("POST", "environment", json={"key": key}))
        if not isinstance(secrets := answer.get("secrets"), dict):
            raise ConsoleUnreachable("What answers at the console's address is not the console (no secrets).")
        return {str(name): str(value) for name, value in secrets.items()}

    def fetch_input(self, sha256: str, target: Path) -> None:
        """Download an uploaded file of the spec. Raises: ChecksumMismatch if it arrives changed."""
        self._download(f"inputs/{quote(sha256)}", target, sha256)

    def fetch_file(self, name: str, target: Path) -> None:
        """Download a ready artifact of this attempt."""
        self._download(f"files/{quote(name, safe='')}/content", target, "")

    def post_events(self, number: int, events: Sequence[bytes], answered: Sequence[CommandAnswer]) -> Acknowledgement:
        """Ship a batch, or with number 0 a heartbeat."""
        head = b'{"batch":%d,"events":[' % number
        body = head + b",".join(events) + b'],"answered":' + json.dumps(answered).encode() + b"}"
        raw = self._json(self._send("POST", "events", content=body, headers={"Content-Type": "application/json"}))
        try:
            commands = tuple(raw.get("commands", ()))
            return Acknowledgement(
                durable_through=int(raw["durable_through"]), expect=int(raw["expect"]), commands=commands
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConsoleUnreachable(
                f"What answers at the console's address is not the console ({error!r})."
            ) from error

    def file_state(self, name: str) -> FileState:
        """Return how much of an artifact has arrived."""
        return self._file_state(self._send("GET", f"files/{quote(name, safe='')}"))

    def put_file(self, name: str, data: bytes, *, offset: int, about: Mapping[str, str]) -> FileState:
        """Hand over one chunk of an artifact. `about` holds size, sha256, type, step, path and meta."""
        params = {"offset": str(offset), **about}
        answer = self._send("PUT", f"files/{quote(name, safe='')}", content=data, params=params, accept=(409, 422))
        if answer.status_code == 409:
            body = self._json(answer)
            if "received" not in body:
                _check(answer)
            raise OffsetMismatch(int(body["received"]))
        if answer.status_code == 422:
            if "received" not in self._json(answer):
                _check(answer)
            raise ChecksumMismatch("what arrived has another checksum.")
        return self._file_state(answer)

    def answer(self, answer_id: str, body: Mapping[str, object]) -> None:
        """Hand over what the model said, or the problem."""
        self._send("POST", f"answers/{quote(answer_id)}", json=dict(body))

    def end_merge(self, problem: str) -> None:
        """Say that the model of a checkpoint is handed over, or why there is none."""
        self._send("POST", "merge", json={"problem": problem})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _send(self, method: str, path: str, *, accept: tuple[int, ...] = (), **rest: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, path, **rest)
        except httpx.HTTPError as error:
            raise ConsoleUnreachable(f"The console does not answer ({type(error).__name__}: {error}).") from error
        if answer.status_code not in accept:
            _check(answer)
        return answer

    def _download(self, path: str, target: Path, sha256: str) -> None:
        part = target.with_name(f"{target.name}.part")
        digest = hashlib.sha256()
        try:
            with self._client.stream("GET", path) as answer, part.open("wb") as file:
                if answer.status_code != 200:
                    answer.read()
                    _check(answer)
                for chunk in answer.iter_bytes(1 << 20):
                    digest.update(chunk)
                    file.write(chunk)
        except httpx.HTTPError as error:
            raise ConsoleUnreachable(f"The console does not answer ({type(error).__name__}: {error}).") from error
        if sha256 and digest.hexdigest() != sha256:
            part.unlink()
            raise ChecksumMismatch(f"{target.name} arrived with another checksum.")
        os.replace(part, target)  # noqa: PTH105 (both names are in one folder; one call)

    def _file_state(self, answer: httpx.Response) -> FileState:
        body = self._json(answer)
        return FileState(received=int(body.get("received", 0)), is_ready=bool(body.get("is_ready", False)))

    def _json(self, answer: httpx.Response) -> dict[str, Any]:
        body = _object(answer)
        if body is None:
            raise ConsoleUnreachable("What answers at the console's address is not the console (no JSON object).")
        return body


def _object(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        body = answer.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _check(answer: httpx.Response) -> None:
    status = answer.status_code
    if status < 300:
        return
    body = _object(answer) or {}
    message = " ".join(map(str, body.get("problems", []))) or str(body.get("error") or answer.text)
    text = f"The console answered {status}: {message[:500]}"
    if status == 409:
        raise AttemptFenced(text, int(body.get("durable_through", 0)))
    if status == 507:
        raise ConsoleFull(text)
    if status >= 500 or status in (408, 425, 429):
        raise ConsoleUnreachable(text)
    raise RequestRejected(text, status=status, events=tuple(body.get("events", ())))
