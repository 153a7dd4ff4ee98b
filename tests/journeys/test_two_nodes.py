"""The demo on a cluster of two nodes that share nothing, with each other or with the console: all of it in the browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.journeys.test_person import END_MS, START_MS, STEPS, fill_small_run, launch, state, until
from tests.journeys.two_nodes import Cluster, two_nodes

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.engine, pytest.mark.ray]

NUM_STEPS = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_nodes(tmp_path_factory.mktemp("two-nodes")) as running:
        yield running


@pytest.fixture
def page(browser: Browser, cluster: Cluster) -> Iterator[Page]:
    """A browser that signed in through the one-time link; a test fails if one of its scripts did."""
    window = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", accept_downloads=True)
    tab = window.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(cluster.manage("signin-link"))
    yield tab
    assert problems == []
    window.close()


def test_the_demo_on_two_nodes_that_share_nothing(page: Page, cluster: Cluster) -> None:
    shares_nothing(cluster)
    page.goto(f"{cluster.url}/cluster")
    for node in (cluster.head, cluster.other):
        expect(page.locator('[data-part="nodes"]')).to_contain_text(node.address)

    fill_small_run(page, cluster, name="on two nodes", steps=NUM_STEPS)
    run_id = launch(page)
    expect(state(page)).to_contain_text("finished", timeout=START_MS + END_MS)

    until(page, f"({STEPS}).length == {NUM_STEPS}")
    found = page.request.get(f"{cluster.url}/api/runs/{run_id}").json()
    print(json.dumps(found, indent=1))


def shares_nothing(cluster: Cluster) -> None:
    """Check that what one machine writes no other sees, and that the nodes do not have the code."""
    everyone = (cluster.head, cluster.other, cluster.console)
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        for machine in everyone:
            machine.run("touch", f"{folder}/mark-of-{machine.name}")
            seen = [other.name for other in everyone if other.has(f"{folder}/mark-of-{machine.name}")]
            assert seen == [machine.name]
    for node in (cluster.head, cluster.other):
        assert not node.has(str(Path(__file__)))
        names = node.run("ps", "-A", "-o", "args")
        assert "manage.py" not in names
