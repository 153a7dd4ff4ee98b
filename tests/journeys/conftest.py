"""The real embedded console, started once for all journeys: Valkey, Ray, web, ingest, worker and reconcile."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from console.embedded.ports import free_block
from console.embedded.process_tree import descendants
from tests.journeys.environments import make_environment
from tests.links import open_link
from tests.migrated_database import put_database
from tests.services import own_environment
from tests.waiting import ACTION_MS

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 400.0
RAY_SECONDS = 300.0
STOP_SECONDS = 200.0


class Site(Protocol):
    """A console that a browser can open, wherever it runs."""

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A running console. `env`: what `manage.py` needs to work on it by hand; `output`: what it has printed so far."""

    url: str
    port: int
    data_dir: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]
    output: Path
    printed: list[str] = field(default_factory=list)  # its own sign-in link, until somebody takes it

    def manage(self, *arguments: str) -> str:
        """Run a `manage.py` command in this console's data directory and return what it prints."""
        command = [sys.executable, str(ROOT / "manage.py"), *arguments]
        done = subprocess.run(command, env=self.env, check=False, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{arguments} ended with exit code {done.returncode}: {done.stderr[-3000:]}"
        return done.stdout

    def ray(self) -> tuple[str, str]:
        """Return the address of its Ray's Job API, and the token for it."""
        wait_for_line(self, "Ray is ready", seconds=RAY_SECONDS)
        own = next(pid for pid in descendants(self.process.pid) if "manage.py\0web" in command_line(pid))
        variables = dict(pair.split("=", 1) for pair in Path(f"/proc/{own}/environ").read_text().split("\0") if pair)
        return variables["RAY_ADDRESS"], variables["RAY_AUTH_TOKEN"]

    def signin_link(self) -> str:
        """Return a fresh one-time link for the first admin: the one that it printed, or else another."""
        return self.printed.pop() if self.printed else self.manage("signin-link").strip()


def launch_stack(*arguments: str, extra_env: dict[str, str] | None = None) -> Stack:
    """Start a console in a fresh data directory on a free port; wait for nothing."""
    data_dir = Path(tempfile.mkdtemp(prefix="pw-", dir="/tmp"))  # short, for the unix sockets in it
    (port,) = free_block(1, seed=f"web of {data_dir}")
    env = own_environment()
    env |= {"PITWALL_DATA_DIR": str(data_dir), "PITWALL_PORT": str(port), **(extra_env or {})}
    put_database(data_dir)
    output = data_dir / "terminal.log"
    with output.open("wb") as file:
        command = [sys.executable, str(ROOT / "manage.py"), "up", "--port", str(port), *arguments]
        process = subprocess.Popen(command, env=env, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    return Stack(url=url, port=port, data_dir=data_dir, env=env, process=process, output=output)


def start_stack(*arguments: str, extra_env: dict[str, str] | None = None) -> Stack:
    """Start a console in a fresh data directory on a free port; wait until it has printed its sign-in link."""
    stack = launch_stack(*arguments, extra_env=extra_env)
    try:
        stack.printed.append(wait_for_line(stack, r"Sign in once with (\S+)", seconds=START_SECONDS)[1])
        assert answers(stack, "/signin", seconds=90)  # there as soon as the link is, whatever Ray is doing
    except BaseException:
        stop_stack(stack)  # nobody else has it to stop
        raise
    return stack


def answers(stack: Stack, path: str, *, seconds: float = 2) -> bool:
    """Return whether a page answers."""
    try:
        with urllib.request.urlopen(f"{stack.url}{path}", timeout=seconds) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def wait_for_line(stack: Stack, pattern: str, *, seconds: float) -> re.Match[str]:
    """Return the first match in what the console prints; fails with its last lines if none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        text = stack.output.read_text(errors="replace")
        if found := re.search(pattern, text):
            return found
        if stack.process.poll() is not None or time.monotonic() > deadline:
            tail = "\n".join(text.splitlines()[-60:])
            pytest.fail(f"the console did not print {pattern!r} within {seconds:.0f} s:\n{tail}")
        time.sleep(0.1)


def command_line(pid: int) -> str:
    """Return the words of a process, each with a NUL behind it; "" of one that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


def stop_stack(stack: Stack) -> int:
    """Stop the console as Ctrl-C does and remove its data; return its exit code."""
    if stack.process.poll() is None:
        stack.process.send_signal(signal.SIGINT)
    try:
        return stack.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        stack.process.kill()
        pytest.fail(f"the console did not stop within {STOP_SECONDS:.0f} s after Ctrl-C")
    finally:
        if kept := os.environ.get("KEEP_STACK_LOGS"):
            shutil.copytree(stack.data_dir / "log", Path(kept) / stack.data_dir.name, dirs_exist_ok=True)
        shutil.rmtree(stack.data_dir, ignore_errors=True)


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, warm_environment: dict[str, str]) -> Iterator[Stack]:
    """Run one console for the whole session, after making the environments of other trainers that its tests need: it
    looks for them when it starts.
    """
    for trainer in sorted({mark.args[0] for item in request.session.items for mark in item.iter_markers("trainer")}):
        make_environment(trainer)
    running = start_stack(extra_env=warm_environment)
    yield running
    code = stop_stack(running)
    assert code in (0, -signal.SIGKILL), "the console must stop cleanly and leave nothing, or was killed by a test"


@pytest.fixture(scope="session")
def context(browser: Browser, stack: Stack) -> Iterator[BrowserContext]:
    """A browser that signed in through the one-time link, once for the session."""
    wait_for_line(stack, "Ray is ready", seconds=RAY_SECONDS)
    window = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", accept_downloads=True)
    window.set_default_timeout(ACTION_MS)
    page = window.new_page()
    open_link(page, stack.signin_link())
    expect(page).to_have_url(f"{stack.url}/")
    yield window
    window.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A fresh tab; a test fails if one of its scripts did."""
    tab = context.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    yield tab
    assert problems == []
    tab.close()
