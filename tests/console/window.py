"""The browser window of the console's tests: signed in, watched for broken scripts and broken security policy."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

from jobs.models import Run
from tests.console.live_console import LiveConsole
from tests.waiting import ACTION_MS

# Counts violations of the page's security policy, and lets a test cut its websockets and keep them away (`isCut`), as a
# lost network would.
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
const Real = window.WebSocket;
window.sockets = [];
window.WebSocket = class extends Real {
  constructor(url, protocols) {
    super(window.isCut ? new URL("/ws/nowhere", url) : url, protocols);
    window.sockets.push(this);
  }
};
"""
# What a screen reader would have no name for.
NAMELESS = """() => [...document.querySelectorAll("button, a, input:not([type=hidden]), select, textarea, summary")]
  .filter((node) => node.checkVisibility() && !node.ariaHidden)
  .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.title || node.labels?.length
    || node.querySelector("img[alt], [aria-label]")))
  .map((node) => node.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="session")
def profile(browser: Browser) -> Iterator[BrowserContext]:
    """What all windows share: the scripts and styles that a browser has fetched and compiled."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900},
        locale="en-US",
        timezone_id="UTC",
        reduced_motion="reduce",  # what moves is drawn again and again, and waited for
    )
    context.add_init_script(WATCH)
    context.set_default_timeout(ACTION_MS)
    yield context
    context.close()


@pytest.fixture
def page(profile: BrowserContext, live_console: LiveConsole) -> Iterator[Page]:
    """A signed-in window; a test fails if a script did, or the page broke its own security policy."""
    profile.add_cookies([live_console.session_cookie()])  # type: ignore[list-item]  # a plain dict of the same keys
    window = profile.new_page()
    problems: list[str] = []
    window.on("pageerror", lambda error: problems.append(str(error)))
    try:
        yield window
        assert problems == []
        assert window.evaluate("window.violations") == []
    finally:
        profile.set_offline(False)
        _forget(profile, live_console.url)


def _forget(profile: BrowserContext, origin: str) -> None:
    """Close all windows; the next test finds nothing that they stored, signed in or out."""
    profile.clear_cookies()
    *others, last = profile.pages
    for window in others:
        window.close()
    last.goto("about:blank")  # nothing stores while it is cleared
    everything = {"origin": origin, "storageTypes": "all"}
    profile.new_cdp_session(last).send("Storage.clearDataForOrigin", everything)
    last.close()


def until(page: Page, expression: str, value: Any = None, *, seconds: float = 120) -> None:
    """Wait until a JavaScript expression is true; Playwright's own wait runs into the page's ban on eval."""
    end = time.monotonic() + seconds
    while not _is_true(page, expression, value):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(30)


def _is_true(page: Page, expression: str, value: Any) -> bool:
    try:
        return bool(page.evaluate(expression, value))
    except Error as error:
        if "TypeError" not in str(error):
            raise
        return False  # what it looks at is not in the page yet


def open_run(page: Page, console: LiveConsole, run: Run, tab: str = "") -> None:
    """Show a run's page, and wait until it follows the run."""
    page.goto(f"{console.url}/runs/{run.pk}{f'/{tab}' if tab else ''}")
    until(page, "window.pitwallRun?.feed.socket")
