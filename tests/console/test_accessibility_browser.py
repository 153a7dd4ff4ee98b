"""Every page in a browser: axe finds nothing serious in either theme, its security policy holds, it fits a phone,
and markup in what people and trainers have written stays text.

Axe takes most of the time, and pages share most of what it reads: `make proof-tests` has it read every page, and at
every width.
"""

import itertools
import re
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import Page, expect

from jobs.models import AlertIncident, AlertRule, Attempt, Capture, Run
from jobs.retention.deletion import delete_runs
from profiling import events
from tests.console.access_rules import PAGES
from tests.console.hostile.markup import CAUSE, MARKUP, TAKEN_FOR_MARKUP, hostile_run
from tests.console.live_console import LiveConsole, Reporter
from tests.jobs.sweeps.test_sweeps import make_study
from tests.rows import make_run
from tests.trace_rows import make_trace

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
SIZED_SECONDS = 10.0
WIDTHS = (390, 800, 1440)  # a phone is what a page outgrows first: `make proof-tests` looks at the others, too
AHEAD = 3  # pages that load while one is looked at
RUN_TABS = ("charts", "dashboard", "timeline", "profile", "samples", "logs", "system", "config", "files")
COMPARE_TABS = ("verdict", "charts", "table", "config", "timing", "traces", "samples")
# Files, parts that the script of a page fetches, ways in and out, and Perfetto, which is not ours.
NO_PAGE = re.compile(
    r"\.(csv|jsonl?|js|txt|zip|html)$|/perfetto|^/frame/|^/(healthz|readyz)$|^/runs/(rows|ids|complete|deletion)$"
    r"|^/runs/new/|^/runs/{run_id}/(alerts|symptoms|diagnosis|plan|post-mortem|log-findings)$|/files/|/oidc|^/signin|^/guide$|{item}"
    r"|/calibration$|^/runs/{run_id}/captures/{capture_id}/timeline$"
)
WIDE = re.compile(r"^/traces/t-|^/api/docs")  # timelines and schemas are for desks
# How wide the page is; where that is too wide, what reaches out of it and no box around it scrolls or cuts.
WIDEST = """() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth <= clientWidth) return [scrollWidth, ""];
  const cuts = (box) =>
    box !== document.body && (getComputedStyle(box).overflowX !== "visible" || cuts(box.parentElement));
  const far = [...document.querySelectorAll("body *")]
    .filter((node) => node.getBoundingClientRect().right > clientWidth + 1 && !cuts(node.parentElement));
  return [scrollWidth, far.slice(0, 2).map((node) => node.outerHTML.slice(0, 160)).join(" with ")];
}"""
PHONE_PAGE = "/guide/metrics"  # that axe reads on a phone, too; `make proof-tests` has it read every page there
# Of what repeats, the first eight; the others stay in the page, as fewer would not scroll. Contrast in both themes, all
# else once: no other rule asks for colors.
FINDINGS = """async ([theme, other]) => {
  const found = [];
  const root = document.documentElement;
  if (root.dataset.bsTheme !== theme) found.push(`the theme is ${root.dataset.bsTheme}`);
  const rows = ":is(tbody > tr, li, option, dl > *, details, article, .guide-list > a)";
  const some = { exclude: [`main ${rows}:nth-child(n + 9)`] };
  const options = { resultTypes: ["violations"], preload: false };
  const look = async (own) => {
    const { violations } = await axe.run(some, { ...options, ...own });
    for (const { id, impact, nodes } of violations)
      if (["serious", "critical"].includes(impact))
        for (const node of nodes)
          found.push(`${root.dataset.bsTheme}: ${id}: ${node.html.slice(0, 160)} ${node.failureSummary}`);
  };
  await look({});
  if (!other) return found;
  root.dataset.bsTheme = other;
  await look({ runOnly: { type: "rule", values: ["color-contrast"] } });
  root.dataset.bsTheme = theme;
  return found;
}"""


@pytest.fixture
def places(live_console: LiveConsole) -> dict[str, str]:
    """What stands for each name in an address: rows that have something to say, all seen by who runs the console."""
    project, user = live_console.project, live_console.user
    User.objects.filter(pk=user.pk).update(is_superuser=True)
    project.membership_set.update(role="admin")
    now = timezone.now() - timedelta(minutes=5)
    run = hostile_run(live_console)
    failed = make_run(project, state="failed", spec={"name": "one that failed"}, user=user)
    cause = CAUSE | {"text": f"there is no folder {MARKUP}" + "/a-long-name" * 40}
    Run.objects.filter(pk=failed.pk).update(cause=cause, ended_at=now)
    Attempt.objects.filter(run=failed).update(state="failed", cause=cause)
    gone = make_run(project, state="finished", spec={"name": "in the trash"}, user=user)
    delete_runs(runs=[gone], user=user, stop=False, now=now)
    rule = AlertRule.objects.create(project=project, kind="waiting", name="waits long", params={"minutes": 5})
    alert = AlertIncident.objects.create(
        project=project,
        rule=rule,
        run=run,
        kind="waiting",
        severity="warning",
        object_id=run.pk,
        opened_at=now,
        updated_at=now,
        data={"what": "waiting", "name": run.name},
    )
    return {
        "run_id": run.pk,
        "failed": failed.pk,
        "capture_id": Capture.objects.create(run=run, attempt=1, tool="torch", state="ready").pk,
        "study_id": make_study(project).pk,
        "trace_id": make_trace(project, name="a trace").pk,
        "project": project.slug,
        "username": user.get_username(),
        "alert_id": str(alert.pk),
        "rule_number": str(rule.pk),
    }


def addresses(places: dict[str, str]) -> list[str]:
    """Return the address of every page, of one with tabs that of each tab."""
    found = [entry.removeprefix("GET ") for entry in PAGES if entry.startswith("GET ")]
    found = [address for address in found if not NO_PAGE.search(address)]
    found += [address.replace("{tab}", tab) for address in found if "{tab}" in address for tab in RUN_TABS]
    found += [f"/compare?runs={{run_id}},{{failed}}&tab={tab}" for tab in COMPARE_TABS]
    found += ["/runs/{failed}", "/guide/knobs/optimizer.learning_rate", "/guide/recipes/native-grpo-demo"]
    found += ["/guide/symptoms/learning.truncated", "/guide/rules/batch.updates_do_not_divide_samples"]
    found += ["/runs/new?sweep=1", "/runs/new?from={run_id}"]
    return [re.sub(r"{(\w+)}", lambda name: places[name[1]], one) for one in found if "{tab}" not in one]


def widest(window: Page, width: int) -> tuple[int, str]:
    """Return how wide the page is, and what makes it so, once its charts have taken the new size of the window."""
    deadline = time.monotonic() + SIZED_SECONDS
    while True:
        needed, node = window.evaluate(WIDEST)
        if needed <= width or time.monotonic() > deadline:
            return needed, node
        window.wait_for_timeout(50)


@pytest.mark.slow("a visit of some sixty pages, and axe reads a twelfth of them in both themes")
@pytest.mark.parametrize("read", ["every twelfth", pytest.param("every one", marks=pytest.mark.proof)])
def test_every_page_is_for_everybody_fits_a_phone_and_shows_markup_as_text(
    page: Page, live_console: LiveConsole, places: dict[str, str], read: str
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is missing: make install-dev, with npm")
    axe = AXE.read_text()
    themes = ("light", "dark")
    page.context.add_cookies([{"name": "pitwall_theme", "value": themes[0], "url": live_console.url}])
    failures: list[str] = []
    page.context.on("weberror", lambda error: failures.append(f"{error.page and error.page.url}: {error.error}"))
    windows = [page, *(page.context.new_page() for _ in range(AHEAD))]
    for window in windows:
        window.emulate_media(reduced_motion="reduce")  # colors that are on their way have no contrast yet
        window.set_viewport_size({"width": WIDTHS[0], "height": 900})

    asked = addresses(places)
    assert len(asked) > 50
    ahead = itertools.cycle(windows)
    for address in asked[:AHEAD]:
        next(ahead).goto(live_console.url + address, wait_until="commit")
    later_ones = [*asked[AHEAD:], *[""] * AHEAD]
    for number, (window, address, later) in enumerate(zip(itertools.cycle(windows), asked, later_ones, strict=False)):
        if later:
            next(ahead).goto(live_console.url + later, wait_until="commit")
        window.wait_for_load_state("networkidle")
        is_read = read == "every one" or number % 12 == 0
        if is_read or address == PHONE_PAGE:
            window.evaluate(axe)
        for width in WIDTHS if is_read else WIDTHS[:1]:
            window.set_viewport_size({"width": width, "height": 900})
            needed, by = (0, "") if WIDE.search(address) else widest(window, width)
            failures += [f"{address}: {needed} px wide in {width} px: {by}"] if needed > width else []
            if width == WIDTHS[0] and (read == "every one" or address == PHONE_PAGE):
                failures += [f"{address} on a phone: {one}" for one in window.evaluate(FINDINGS, [themes[0], None])]
        failures += [f"{address}: takes text for markup"] if window.evaluate(TAKEN_FOR_MARKUP) else []
        headings = window.evaluate("document.querySelectorAll('main h1').length")
        failures += [f"{address}: {headings} headings"] if headings != 1 else []
        if is_read:
            failures += [f"{address}: {one}" for one in window.evaluate(FINDINGS, themes)]
            window.set_viewport_size({"width": WIDTHS[0], "height": 900})
        failures += [f"{address}: breaks its policy: {each}" for each in window.evaluate("window.violations")]

    assert not failures, "\n".join(failures)


def test_what_is_opened_on_a_page_is_for_everybody(page: Page, live_console: LiveConsole) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is missing: make install-dev, with npm")
    run = make_run(live_console.project, state="running", spec={}, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    reporter.steps(1)
    lines = events.log([f"line {n}" for n in range(60)], attempt=1, role="driver")
    lines["t"] = reporter.clock
    reporter.post([lines])
    reporter.steps(3, at_once=3)
    themes = ("light", "dark")
    page.context.add_cookies([{"name": "pitwall_theme", "value": themes[0], "url": live_console.url}])
    found: list[str] = []

    def read(what: str) -> None:
        page.evaluate(AXE.read_text())
        found.extend(f"{what}: {one}" for one in page.evaluate(FINDINGS, themes))

    page.goto(f"{live_console.url}/runs/{run.pk}/charts?point=1")
    panel = page.get_by_role("complementary", name="Step 1")
    expect(panel.locator('[data-step-part="logs"] pre')).to_be_visible()
    expect(panel.locator('[data-step-part="samples"]')).to_contain_text("Step 1")
    read("the panel of a step")
    page.keyboard.press("Escape")
    page.locator('[data-metric="reward/mean"] .chart').focus()
    page.keyboard.press("f")
    expect(page.get_by_role("dialog", name="Reward").get_by_role("button", name="PNG")).to_be_enabled()
    read("a large chart")
    page.goto(f"{live_console.url}/runs/")
    page.locator("tbody input[type=checkbox]").first.check()
    expect(page.get_by_role("button", name="Clear the selection")).to_be_visible()
    read("selected runs")

    assert not found, "\n".join(found)
