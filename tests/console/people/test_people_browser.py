"""People in a browser: what cannot be undone asks first, and a sign-in link is pressed."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from console.sign_in.link import make_link
from tests.console.live_console import LiveConsole
from tests.console.window import NAMELESS
from tests.links import open_link
from tests.rows import make_user

pytestmark = pytest.mark.browser


def test_an_account_is_shut_after_a_question_and_a_link_needs_its_button(page: Page, live_console: LiveConsole) -> None:
    User.objects.filter(pk=live_console.user.pk).update(is_superuser=True)
    mara = make_user("mara", project=live_console.project)

    page.goto(f"{live_console.url}/people/mara")
    assert page.evaluate(NAMELESS) == []
    page.get_by_role("button", name="Deactivate the account").click()
    dialog = page.locator("dialog#confirm")
    expect(dialog).to_contain_text("Deactivate mara?")
    dialog.get_by_role("button", name="Deactivate").click()
    expect(page.get_by_text("mara is inactive. Ended:")).to_be_visible()
    page.get_by_role("button", name="Activate the account").click()
    expect(page.get_by_text("mara is active again.")).to_be_visible()

    open_link(page, make_link(user=mara, base_url=live_console.url, now=timezone.now()))
    expect(page.get_by_label("Account of mara")).to_be_visible()
