"""The page of a trace in a browser, on a real console: real traces of torch and nsys, from upload to details."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from jobs.models import Artifact, Capture, Layer, Trace
from jobs.traces.imports import add_file, import_layer, source_path, trace_of
from profiling.launch_nsys import problem_of_install
from tests.console.live_console import LiveConsole, Reporter
from tests.console.made_traces import REAL, imported
from tests.console.window import NAMELESS, until
from tests.profiling.nsys_report import profiled
from tests.rows import make_run
from tests.trace_rows import BEGIN, MS, make_layer, make_trace, torch_file

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

TORCH = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
    for _ in range(3):
        with record_function("pitwall_update"):
            model(torch.randn(32, 64)).sum().backward()
recorded.export_chrome_trace(sys.argv[1])
"""
NVTX = """
import time, nvtx
for step in range(3):
    with nvtx.annotate("step", domain="pitwall"):
        with nvtx.annotate("rollout_of_a_test", domain="pitwall"):
            time.sleep(0.02)
"""
WHOLE = "window.pitwallTrace?.isStarted && window.pitwallTrace.view.frames > 0 && window.pitwallTrace.view.isWhole"
LANES = '[data-canvas="lanes"]'


@pytest.fixture(scope="module")
def torch_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that torch.profiler has just recorded."""
    path = tmp_path_factory.mktemp("trace") / "policy-0.json.gz"
    subprocess.run([sys.executable, "-c", TORCH, str(path)], check=True, capture_output=True, timeout=120)
    assert b"aten::addmm" in gzip.decompress(path.read_bytes())
    return path


@pytest.fixture(scope="module")
def nsys_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that nsys has just written."""
    if problem := problem_of_install():
        pytest.skip(f"nsys cannot record here: {problem}")
    report = tmp_path_factory.mktemp("nsys") / "r.nsys-rep"
    profiled(report, "-c", NVTX)
    return report


def open_trace(page: Page, console: LiveConsole, trace: str, query: str = "") -> None:
    page.goto(f"{console.url}/traces/{trace}{query}")
    until(page, WHOLE)


def upload(page: Page, console: LiveConsole, *files: Path) -> Trace:
    """Choose files on the list's page, follow to the trace, and import them as the worker would."""
    page.goto(f"{console.url}/traces/")
    page.locator("[data-choose]").set_input_files([str(file) for file in files])
    page.wait_for_url("**/traces/t-*")
    page.evaluate("window.isSamePage = true")
    expect(page.locator("[data-layer-state=queued]")).to_have_count(len(files))
    trace = Trace.objects.get(pk=page.url.rpartition("/")[2].partition("?")[0])
    for pk in trace.layers.values_list("pk", flat=True):
        import_layer(layer_id=pk)
    expect(page.locator("[data-layer-state=ready]")).to_have_count(len(files))
    until(page, WHOLE)
    assert page.evaluate("window.isSamePage") is True
    return trace


def place_of(page: Page, name: str) -> tuple[float, float]:
    """Return the middle on the page of where the first event of a name that has some width is drawn."""
    found: Any = page.evaluate(
        """(name) => {
          const { view } = window.pitwallTrace;
          const box = view.canvas.getBoundingClientRect();
          const isThere = (x, y) => {
            const hit = view.painter.hit(x, y, view);
            return Boolean(hit?.row) && hit.row.text(hit.i) === name;
          };
          for (let y = 30; y < box.height; y += 4) {
            for (let x = view.painter.label + 2; x < box.width; x += 2) {
              if (!isThere(x, y)) continue;
              let [right, low] = [x, y];
              while (right < box.width && isThere(right + 1, y)) right += 1;
              while (low < box.height && isThere(x, low + 1)) low += 1;
              return [box.left + (x + right) / 2, box.top + (y + low) / 2];
            }
          }
          return null;
        }""",
        name,
    )
    assert found is not None, f"{name} is not drawn"
    return found[0], found[1]


def width_of(page: Page) -> float:
    return float(page.evaluate("(({ from, to }) => to - from)(window.pitwallTrace.view.view)"))


def test_a_trace_of_torch_is_uploaded_appears_and_is_looked_around_in(
    page: Page, live_console: LiveConsole, torch_trace: Path
) -> None:
    trace = upload(page, live_console, torch_trace)
    facts = page.locator("[data-facts]")
    expect(facts).to_contain_text("Events")
    expect(page.locator("[data-names]")).to_contain_text("aten::")
    expect(page.locator("[data-legend]")).to_contain_text("operator")
    assert page.evaluate(NAMELESS) == []
    whole = width_of(page)

    x, y = place_of(page, "pitwall_update")
    page.mouse.move(x, y)
    expect(page.locator("[data-tip]")).to_contain_text("pitwall_update")
    page.mouse.click(x, y)
    expect(page.locator('[data-field="details-title"]')).to_have_text("pitwall_update")
    expect(page.locator("[data-details-body]")).to_contain_text("Duration")
    page.keyboard.press("z")
    until(page, WHOLE)
    length = page.evaluate("window.pitwallTrace.view.chosen.end - window.pitwallTrace.view.chosen.begin")
    assert width_of(page) == pytest.approx(2 * length, rel=0.01)
    until(page, "location.search.includes('from=')")

    page.keyboard.press("0")
    until(page, "!window.pitwallTrace.view.window")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -600)
    until(page, f"(({{ from, to }}) => to - from)(window.pitwallTrace.view.view) < {whole * 0.9}")
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(x + 120, y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.locator('[data-field="selection-title"]')).to_have_text("Selection")
    until(page, "new URLSearchParams(location.search).has('sel')")
    address = page.evaluate("location.href")  # page.url may lag
    shown = page.locator('[data-field="selection-note"]').inner_text()

    page.goto(address)
    until(page, WHOLE)
    expect(page.locator('[data-field="selection-title"]')).to_have_text("Selection")
    expect(page.locator('[data-field="selection-note"]')).to_have_text(shown)
    assert trace.layers.get().kind == "torch"


@pytest.mark.proof
def test_a_tile_that_did_not_come_is_asked_for_again_by_itself(
    page: Page, live_console: LiveConsole, torch_trace: Path
) -> None:
    upload(page, live_console, torch_trace)
    asked: list[str] = []

    def stumble(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/tiles/**", stumble)
    page.reload()
    until(page, WHOLE)

    assert asked[0] in asked[1:]
    assert place_of(page, "pitwall_update")


def test_a_search_goes_from_hit_to_hit(page: Page, live_console: LiveConsole, torch_trace: Path) -> None:
    upload(page, live_console, torch_trace)
    page.keyboard.press("/")
    page.keyboard.type("addmm")
    expect(page.locator("[data-found]")).to_contain_text("aten::addmm")
    page.keyboard.press("Enter")
    title = page.locator('[data-field="details-title"]')
    expect(title).to_have_text("aten::addmm")
    first = page.evaluate("window.pitwallTrace.view.chosen.begin")
    page.locator('[data-hit="next"]').click()
    until(page, f"window.pitwallTrace.view.chosen.begin > {first}")
    expect(page.locator("[data-details-body]")).to_contain_text("operator")
    page.locator('[data-hit="back"]').click()
    until(page, f"window.pitwallTrace.view.chosen.begin === {first}")


def test_a_report_of_nsys_opens(page: Page, live_console: LiveConsole, nsys_report: Path) -> None:
    upload(page, live_console, nsys_report)

    expect(page.locator("[data-names]")).to_contain_text("rollout_of_a_test")
    x, y = place_of(page, "rollout_of_a_test")
    page.mouse.click(x, y)
    expect(page.locator('[data-field="details-title"]')).to_have_text("rollout_of_a_test")


def test_a_new_layer_appears_beside_the_phases_without_a_reload(
    page: Page, live_console: LiveConsole, torch_trace: Path
) -> None:
    spec = {"knobs": {"train.num_steps": 40, "eval.every_steps": 0}}
    run = make_run(live_console.project, state="running", spec=spec, user=live_console.user)
    reporter = Reporter(console=live_console, run=run)
    begun = datetime.fromtimestamp(reporter.clock / 1e9, UTC)
    reporter.steps(4)
    times = {"armed": begun.isoformat(), "recording": begun.isoformat()}
    capture = Capture.objects.create(
        run=run, attempt=1, tool="torch", state="recording", first_step=3, num_steps=2, state_times=times
    )
    trace = trace_of(capture)
    open_trace(page, live_console, trace.pk)
    page.evaluate("window.isSamePage = true")
    groups = "window.pitwallTrace.layout.groups.map(({ title }) => title)"
    until(page, f"{groups}.join() === 'Phases'")
    expect(page.locator("[data-legend]")).to_contain_text("Rollout")

    reporter.steps(1)
    until(page, "window.pitwallTrace.view.steps.some(({ number }) => number === 5)")
    data = torch_trace.read_bytes()
    meta = {"role": "policy", "rank": 0}
    row = Artifact.objects.create(
        run=run, attempt=1, name="policy-0.json.gz", type="trace", path="x", size=len(data), received=len(data),
        is_ready=True, capture=capture, meta=meta,
    )  # fmt: skip
    row.stored_path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(torch_trace, row.stored_path)
    add_file(row)
    assert Layer.objects.get(trace=trace).state == "ready"  # tasks run in place here

    until(page, f"{groups}.join() === 'Phases,policy 0'")
    assert page.evaluate("window.isSamePage") is True


@pytest.mark.proof
def test_the_list_of_files_follows_an_import_and_asks_for_one(page: Page, live_console: LiveConsole) -> None:
    trace = make_trace(live_console.project)
    layer = trace.layers.get()
    source_path(layer).write_bytes(torch_file())
    Layer.objects.filter(pk=layer.pk).update(state="importing")
    page.goto(f"{live_console.url}/traces/{trace.pk}/files")
    page.evaluate("window.isSamePage = true")
    row = page.locator(f'[data-layer-row="{layer.pk}"]')
    expect(row).to_contain_text("importing")
    again = row.get_by_role("button", name="Import again")
    expect(again).to_have_count(0)

    Layer.objects.filter(pk=layer.pk).update(state="ready")
    expect(row).to_contain_text("ready")
    expect(row.locator("td").nth(4)).to_have_text(str(layer.facts["events"]))
    again.click()
    expect(row).to_contain_text("queued")
    import_layer(layer_id=layer.pk)  # as the worker would

    expect(row.locator("td").nth(4)).to_have_text("3")  # those of the file
    expect(row).to_contain_text("ready")
    expect(page.locator("[data-files]")).not_to_have_attribute("hx-trigger", re.compile("every"))
    assert page.evaluate("window.isSamePage") is True


def test_a_file_that_cannot_be_read_is_refused_on_the_page(
    page: Page, live_console: LiveConsole, tmp_path: Path
) -> None:
    bad = tmp_path / "notes.json"
    bad.write_text(json.dumps({"no": "trace"}))
    page.goto(f"{live_console.url}/traces/")
    page.locator("[data-choose]").set_input_files(str(bad))

    expect(page.locator("[data-problem]")).to_contain_text("no format that can be read")
    assert not Trace.objects.filter(name="notes.json").exists()


@pytest.mark.proof
def test_lanes_fold_and_hide_and_the_address_keeps_it(page: Page, live_console: LiveConsole) -> None:
    trace = make_trace(live_console.project)
    open_trace(page, live_console, trace.pk)
    layout = "window.pitwallTrace.layout"
    high = page.evaluate(f"{layout}.height")

    name_of_group = {"x": 30, "y": 24 + 10}
    page.locator(LANES).click(position=name_of_group)
    until(page, f"{layout}.height < {high}")
    page.locator(LANES).click(position=name_of_group)
    until(page, f"{layout}.height === {high}")
    page.locator("[data-lane-menu] summary").click()
    page.get_by_role("checkbox", name="GPU 0, stream 7").uncheck()
    until(page, f"{layout}.hidden.size === 1 && location.search.includes('hide=')")
    page.reload()
    until(page, WHOLE)
    assert page.evaluate(f"{layout}.hidden.size") == 1


def test_steps_counters_and_the_window_of_an_address(page: Page, live_console: LiveConsole) -> None:
    trace = make_trace(live_console.project)
    make_layer(trace, role="policy", rank=1)
    begin, end = BEGIN + 102 * MS, BEGIN + 106 * MS
    open_trace(page, live_console, trace.pk, f"?from={begin}&to={end}&axis=step")

    assert page.evaluate("window.pitwallTrace.view.steps.map(({ number }) => number)") == [3, 4]
    assert round(width_of(page)) == 4 * MS
    facts = page.locator("[data-facts]")
    expect(facts).to_contain_text("4.000 ms")
    expect(facts).to_contain_text("Busy, policy 1, GPU 0")
    expect(page.locator('[data-axis="step"]')).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".trace-counter")).to_have_count(2)
    page.locator("[data-lane-menu] summary").click()
    chosen = page.get_by_role("group", name="Counters, 2").get_by_role("checkbox")
    expect(chosen).to_have_count(2)
    chosen.first.uncheck()
    expect(page.locator(".trace-counter")).to_have_count(1)
    until(page, "/counters=[0-9]+[.]0/.test(location.search)")
    page.reload()
    until(page, WHOLE)
    expect(page.locator(".trace-counter")).to_have_count(1)
    page.locator("[data-lane-menu] summary").click()
    for box in chosen.all():
        box.set_checked(False)
    until(page, "location.search.includes('counters=none')")
    chosen.last.check()
    expect(page.locator(".trace-counter")).to_have_count(1)


@pytest.mark.proof
def test_a_trace_of_counters_alone_shows_its_curves(page: Page, live_console: LiveConsole) -> None:
    trace = imported(live_console.project, file=REAL / "torch_memory_timeline.raw.gz")
    open_trace(page, live_console, trace.pk)

    expect(page.locator(".trace-counter")).to_have_count(8)  # of nine; one has a single sample
    expect(page.locator(".trace-counter").first).to_contain_text("most")
    assert page.locator(".trace-counter canvas").first.is_visible()
    assert page.locator('[data-field="empty"]').is_hidden()
    whole = width_of(page)
    page.keyboard.press("w")
    until(page, f"(({{ from, to }}) => to - from)(window.pitwallTrace.view.view) < {whole * 0.8}")
    page.keyboard.press("d")
    page.keyboard.press("s")
    until(page, "location.search.includes('from=')")


@pytest.mark.proof
def test_a_pinned_lane_stands_above_the_others_here_and_in_the_next_trace(
    page: Page, live_console: LiveConsole
) -> None:
    open_trace(page, live_console, make_trace(live_console.project).pk)
    order = "window.pitwallTrace.layout.items.map((item) => item.lane?.title ?? item.group.title).join()"
    page.locator("[data-lane-menu] summary").click()
    page.get_by_role("button", name="Pin main").click()
    until(page, f"{order}.startsWith('Pinned,main') && location.search.includes('pin=')")
    open_trace(page, live_console, make_trace(live_console.project).pk)
    assert page.evaluate(order).startswith("Pinned,main")


@pytest.mark.proof
def test_a_bookmark_leads_to_its_window_and_lanes_keep_their_order_in_the_address(
    page: Page, live_console: LiveConsole
) -> None:
    trace = make_trace(live_console.project)
    window = f"from={BEGIN}&to={BEGIN + 200 * MS}"
    open_trace(page, live_console, trace.pk, f"?sel={BEGIN + 20 * MS}-{BEGIN + 60 * MS}&{window}")
    order = "window.pitwallTrace.layout.items.flatMap(({ lane }) => lane?.key ?? [])"
    keys = page.evaluate(order)

    page.locator("[data-bookmarks] summary").click()
    page.get_by_label("A note on this window").fill("the slow step")
    page.get_by_role("button", name="Keep").click()
    page.get_by_role("button", name="the slow step").first.wait_for()
    page.locator("[data-lane-menu] summary").click()
    page.get_by_role("button", name=re.compile("^Move .* down")).first.click()
    assert page.evaluate(order) == [keys[1], keys[0], *keys[2:]]

    page.wait_for_url(re.compile("order="))
    page.goto(re.sub("&?(sel|from|to)=[^&]*", "", page.url))
    until(page, WHOLE)
    assert page.evaluate(order) == [keys[1], keys[0], *keys[2:]]
    page.locator("[data-bookmarks] summary").click()
    page.get_by_role("button", name="the slow step").first.click()
    page.wait_for_url(re.compile(f"sel={BEGIN + 20 * MS}-{BEGIN + 60 * MS}"))


def test_arrows_lead_from_a_launch_to_its_kernel_and_across_ranks(page: Page, live_console: LiveConsole) -> None:
    trace = make_trace(live_console.project)
    make_layer(trace, role="policy", rank=1)
    open_trace(page, live_console, trace.pk, f"?from={BEGIN}&to={BEGIN + 10 * MS}")
    arrows = "window.pitwallTrace.view.arrows.map(({ kind }) => kind).join()"

    page.mouse.click(*place_of(page, "gemm<128>"))
    expect(page.locator('[data-field="details-title"]')).to_have_text("gemm")
    expect(page.locator(".trace-full")).to_contain_text("gemm<128>")
    until(page, f"{arrows} === 'launch'")
    page.locator("[data-search]").fill("AllReduce")
    page.keyboard.press("Enter")
    until(page, f"{arrows} === 'collective'")
    page.locator(LANES).focus()
    page.keyboard.press("Escape")
    until(page, f"{arrows} === ''")


def test_the_dock_shows_where_the_time_of_the_window_goes(page: Page, live_console: LiveConsole) -> None:
    trace = make_trace(live_console.project)
    open_trace(page, live_console, trace.pk, f"?from={BEGIN}&to={BEGIN + 100 * MS}")
    body = page.locator("[data-dock-body]")

    page.get_by_role("button", name="Flame graph").click()
    expect(body.get_by_role("button", name="ProfilerStep#3")).to_be_visible()
    page.get_by_role("button", name="Bottom-up").click()
    expect(body.locator("tbody tr").first).to_contain_text("80.00 ms")
    page.get_by_role("button", name="Events", exact=True).click()
    page.get_by_role("searchbox", name="Conditions").fill("nam = gemm")
    page.keyboard.press("Enter")
    expect(body).to_contain_text("There is no field 'nam'")
    page.get_by_role("searchbox", name="Conditions").fill("category = kernel")
    page.keyboard.press("Enter")
    expect(page.locator('[data-field="dock-note"]')).to_have_text("10 of 10 events")
    body.get_by_role("button", name="gemm").first.click()
    expect(page.locator('[data-field="details-title"]')).to_have_text("gemm")
    page.get_by_role("button", name="Critical path").click()
    until(page, "window.pitwallTrace.layout.groups[0].key === 'critical' && location.search.includes('path=')")
    assert page.evaluate(NAMELESS) == []
    for width in (1440, 1500):
        page.set_viewport_size({"width": width, "height": 900})
        until(page, "document.querySelector('.trace-dock .card-head').offsetHeight < 50")  # one row
    page.reload()
    until(page, "window.pitwallTrace.layout.groups[0]?.key === 'critical'")
    expect(page.locator('[data-field="dock-note"]')).to_contain_text("of 10 events")

    page.locator("[data-lane-menu] summary").click()
    page.get_by_role("checkbox", name="queue depth").check()
    expect(page.locator(".trace-counter").last).to_contain_text("most 1")


def test_the_dock_is_there_once_a_file_is(page: Page, live_console: LiveConsole) -> None:
    trace = Trace.objects.create(project=live_console.project, name="trace")
    layer = make_layer(trace, state="failed", problem="The file is damaged.")
    page.goto(f"{live_console.url}/traces/{trace.pk}?dock=events")
    expect(page.locator('[data-field="empty"]')).to_contain_text("The file is damaged.")
    expect(page.locator("[data-dock]")).to_be_hidden()
    expect(page.get_by_role("heading", name="On the screen")).to_be_hidden()

    layer.delete()
    make_layer(trace)
    open_trace(page, live_console, trace.pk, "?dock=events")
    expect(page.locator("[data-dock]")).to_be_visible()
    expect(page.get_by_role("heading", name="On the screen")).to_be_visible()
    expect(page.locator('[data-field="dock-note"]')).to_contain_text("events")


@pytest.mark.parametrize("width", [390, *(pytest.param(width, marks=pytest.mark.proof) for width in (768, 1440))])
def test_the_page_never_scrolls_sideways(page: Page, live_console: LiveConsole, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    trace = make_trace(live_console.project)
    for address in (f"/traces/{trace.pk}", f"/traces/{trace.pk}/files", "/traces/"):
        page.goto(live_console.url + address)
        until(page, "document.documentElement.scrollWidth <= window.innerWidth")
