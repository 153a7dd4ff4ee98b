"""Signing in by a one-time link as people do: open it, press its button."""

import re
from typing import Any

import httpx
from playwright.sync_api import Page


def open_link(page: Page, link: str) -> None:
    """Sign the browser in by the link; it stands on the first page then."""
    page.goto(link)
    page.get_by_role("button", name="Sign in as").click()
    page.wait_for_url(lambda url: "/signin" not in url)


def press(html: str) -> dict[str, str]:
    """Return the fields that the button of a link's page sends."""
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', html)
    assert token, html[:2000]
    return {"csrfmiddlewaretoken": token[1]}


def use(client: httpx.Client, link: str, **more: Any) -> None:
    """Sign the client in by the link."""
    page = client.get(link, **more)
    answer = client.post(link, data=press(page.text), **more)
    assert answer.status_code == 302, answer.text[:2000]
