"""Home, run list, cluster and account in a browser, on a real console: live rows, keys, verbs, themes, strict CSP."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from jobs.models import Run
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import until
from tests.rows import make_run

pytestmark = pytest.mark.browser


@pytest.fixture(autouse=True)
def _empty(live_console: LiveConsole) -> None:
    Run.objects.filter(project=live_console.project).delete()


def add(console: LiveConsole, name: str, *, state: str = "running", steps: int = 0) -> Reporter:
    spec = {"name": name, "knobs": {"train.num_steps": 100}}
    reporter = Reporter(console=console, run=make_run(console.project, state=state, spec=spec, user=console.user))
    reporter.steps(steps)
    return reporter


def open_page(page: Page, console: LiveConsole, path: str) -> None:
    page.goto(console.url + path)
    until(page, "window.sockets.some((socket) => socket.readyState === 1)")


def test_rows_follow_their_run_without_moving(page: Page, live_console: LiveConsole) -> None:
    going = add(live_console, "going", steps=3)
    add(live_console, "other")
    open_page(page, live_console, "/runs")
    row = page.locator(f"#{going.run.pk}")
    row.locator("td.select input").check()
    before = place_in_table(row)

    going.steps(4)

    expect(row.locator("[data-cell=step]")).to_contain_text("7 / 100")
    expect(row.locator("[data-cell=value]")).to_contain_text("0.435")
    expect(row.locator("polyline")).to_be_attached()
    assert place_in_table(row) == before
    expect(row.locator("td.select input")).to_be_checked()


def place_in_table(row: Locator) -> tuple[float, ...]:
    """Return where the row is and how large: a banner above the table moves both."""
    mine, table = row.bounding_box(), row.locator("xpath=ancestor::table").bounding_box()
    assert mine is not None
    assert table is not None
    return mine["x"] - table["x"], mine["y"] - table["y"], mine["width"], mine["height"]


def test_home_follows_what_runs(page: Page, live_console: LiveConsole) -> None:
    going = add(live_console, "going", steps=1)
    open_page(page, live_console, "/")

    going.steps(5)

    expect(page.locator(".live-card")).to_contain_text("6 / 100")


def test_keys_move_select_and_clear(page: Page, live_console: LiveConsole) -> None:
    for name in ("one", "two", "three"):
        add(live_console, name, state="finished")
    open_page(page, live_console, "/runs")

    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("X")

    bar = page.get_by_role("toolbar", name="Selected runs")
    expect(bar).to_contain_text("3 runs selected")
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/runs/r-\w+$"))


def test_tags_are_given_and_taken_back(page: Page, live_console: LiveConsole) -> None:
    one = add(live_console, "one", state="finished").run
    open_page(page, live_console, "/runs")

    page.locator(f"#{one.pk} td.select input").check()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.locator("#tag-input").fill("baseline")
    page.keyboard.press("Enter")

    expect(page.locator(f"#{one.pk} .tag")).to_have_text("baseline")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(f"#{one.pk} .tag")).to_have_count(0)


def test_archiving_takes_the_row_away_and_undo_brings_it_back(page: Page, live_console: LiveConsole) -> None:
    one = add(live_console, "one", state="finished").run
    add(live_console, "two", state="finished")
    open_page(page, live_console, "/runs")

    page.locator(f"#{one.pk} td.select input").check()
    page.get_by_role("button", name="Archive").click()

    expect(page.locator("tr[data-run]")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("tr[data-run]")).to_have_count(2)


def test_stopping_asks_first_and_says_what_it_costs(page: Page, live_console: LiveConsole) -> None:
    one = add(live_console, "one", steps=1).run
    open_page(page, live_console, "/runs")

    page.locator(f"#{one.pk} td.select input").check()
    page.get_by_role("button", name="Stop 1 running").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Stop 1 run?")
    expect(dialog).to_contain_text("saves a checkpoint")
    dialog.get_by_role("button", name="Stop 1 running").click()

    expect(page.locator(f"#{one.pk} .state")).to_have_text("stopping")


def test_a_wrong_name_is_said_beside_the_field(page: Page, live_console: LiveConsole) -> None:
    one = add(live_console, "one", state="finished").run
    open_page(page, live_console, "/runs")

    page.locator(f"#{one.pk}").hover()
    page.get_by_role("button", name="Edit name, tags and note of one").click()
    page.locator("#edit-name").fill("")
    page.get_by_role("button", name="Save").click()

    expect(page.locator("#edit-name-error")).to_contain_text("is not a name")
    assert page.evaluate("document.activeElement.id") == "edit-name"
    page.locator("#edit-name").fill("better")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(f"#{one.pk}")).to_contain_text("better")


def test_narrow_windows_hold_all_of_the_navigation(page: Page, live_console: LiveConsole) -> None:
    page.goto(live_console.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for width in (800, 390):
        page.set_viewport_size({"width": width, "height": 900})

        places = page.locator(".topnav a, .avatar").evaluate_all(
            "(all) => all.map((node) => node.getBoundingClientRect()).map(({ left, right }) => [left, right])"
        )
        assert all(0 <= left < right <= width for left, right in places), f"at {width} px: {places}"
        cut = page.locator(".topnav").evaluate("(nav) => nav.scrollWidth - nav.clientWidth")
        assert cut <= 0, f"{width} px cut {cut} px of the navigation"


def test_a_reload_makes_no_second_token(page: Page, live_console: LiveConsole) -> None:
    page.route("**/js/account*.js", lambda route: route.abort())  # a page that needs no script for it
    page.goto(f"{live_console.url}/account")
    page.get_by_label("Name of a new token").fill("laptop")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("#new-token")).to_be_visible()
    expect(page).to_have_url(f"{live_console.url}/account")
    page.wait_for_load_state()  # the list is below what has just become visible
    made = page.locator("[data-token]").count()

    page.reload()

    expect(page).to_have_url(f"{live_console.url}/account")
    expect(page.locator("#new-token")).to_have_count(0)  # said once
    expect(page.locator("[data-token]")).to_have_count(made)


def test_the_filter_is_in_the_address_and_back_undoes_it(page: Page, live_console: LiveConsole) -> None:
    add(live_console, "alpha", state="finished")
    add(live_console, "beta", state="failed")
    open_page(page, live_console, "/runs")

    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.insert_text("state:failed")  # at once: every pause of 250 ms in it would be a search of its own

    expect(page.locator("tr[data-run]")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?q=state%3Afailed$"))
    page.go_back()
    expect(page.locator("tr[data-run]")).to_have_count(2)


def test_the_palette_finds_a_run_by_name(page: Page, live_console: LiveConsole) -> None:
    one = add(live_console, "needle in the list", state="finished").run
    open_page(page, live_console, "/")

    page.keyboard.press("Control+k")
    page.keyboard.type("needle")
    expect(page.get_by_role("option", name="needle in the list")).to_be_visible()
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile(f"/runs/{one.pk}$"))


def test_alt_m_switches_the_theme_for_good_and_question_mark_lists_the_keys(
    page: Page,
    live_console: LiveConsole,
) -> None:
    open_page(page, live_console, "/")
    before = page.locator("html").get_attribute("data-bs-theme")

    page.keyboard.press("Alt+m")
    page.reload()

    assert page.locator("html").get_attribute("data-bs-theme") != before
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_contain_text("Next and previous row")


def test_a_lost_connection_is_said_and_heals_by_itself(page: Page, live_console: LiveConsole) -> None:
    going = add(live_console, "going", steps=1)
    open_page(page, live_console, "/runs")

    page.evaluate("window.isCut = true; window.sockets.forEach((socket) => socket.close())")
    expect(page.get_by_text("The console does not answer")).to_be_visible()
    going.steps(2)
    page.evaluate("window.isCut = false")

    expect(page.get_by_text("The console does not answer")).to_be_hidden()
    expect(page.locator(f"#{going.run.pk} [data-cell=step]")).to_contain_text("3 / 100")
