"""The Profile tab in a browser, on a real console: states change by frames, files arrive, Perfetto shows a trace."""

import gzip
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from jobs.captures.captures import request_capture, withdraw_capture
from jobs.models import Capture, Command, Layer
from jobs.runs.launch import ingest_token
from jobs.traces.imports import import_layer
from profiling import events
from tests.console.live_console import LiveConsole, Reporter
from tests.console.window import NAMELESS, until
from tests.loopback import HTTP
from tests.rows import make_run

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("announcing")]

RECORD = """
import sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
model = torch.nn.Linear(64, 64)
with profile(activities=[ProfilerActivity.CPU]) as recorded:
    for _ in range(3):
        with record_function("pitwall_update_phase"):
            model(torch.randn(32, 64)).sum().backward()
recorded.export_chrome_trace(sys.argv[1])
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A trace that torch.profiler has just recorded, gzipped."""
    path = tmp_path_factory.mktemp("trace") / "policy-0.json.gz"
    subprocess.run([sys.executable, "-c", RECORD, str(path)], check=True, capture_output=True, timeout=120)
    data = path.read_bytes()
    assert b"pitwall_update_phase" in gzip.decompress(data)
    return data


def start(console: LiveConsole, *, steps: int, state: str = "running") -> Reporter:
    spec = {"knobs": {"train.num_steps": 40, "eval.every_steps": 0}}
    reporter = Reporter(console=console, run=make_run(console.project, state=state, spec=spec, user=console.user))
    reporter.steps(steps)
    return reporter


def open_profile(page: Page, reporter: Reporter, query: str = "") -> None:
    page.goto(f"{reporter.console.url}/runs/{reporter.run.pk}/profile{query}")
    until(page, "window.pitwallRun?.feed.socket")


def say(reporter: Reporter, capture: str, state: str, **more: Any) -> None:
    reporter.post([events.capture(capture, state, attempt=1, **more)])


def announce(reporter: Reporter, capture: str, name: str, data: bytes, *, role: str = "policy", rank: int = 0) -> None:
    meta = {"capture": capture, "role": role, "rank": rank, "tool_version": "torch 2.99.1 (kineto)"}
    path = f"traces/{capture}/{name}"
    sha256 = hashlib.sha256(data).hexdigest()
    reporter.post(
        [events.artifact(name, artifact="trace", path=path, attempt=1, size=len(data), sha256=sha256, meta=meta)]
    )


def upload(reporter: Reporter, capture: str, name: str, data: bytes) -> None:
    about: dict[str, Any] = {
        "offset": 0,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "type": "trace",
        "step": 3,
        "path": f"traces/{capture}/{name}",
        "meta": json.dumps({"capture": capture, "role": "policy", "rank": 0, "tool_version": "torch 2.99.1 (kineto)"}),
    }
    url = f"{reporter.console.url}/ingest/{reporter.run.pk}/1/files/{name}"
    headers = {"Authorization": f"Bearer {ingest_token(reporter.run.pk, 1)}"}
    answer = HTTP.put(url, params=about, content=data, headers=headers, timeout=60)
    answer.raise_for_status()
    assert answer.json()["is_ready"]


def record_capture(reporter: Reporter, capture: str, name: str, data: bytes) -> None:
    for state in ("recording", "stopping", "writing"):
        say(reporter, capture, state, step=reporter.num_steps)
    announce(reporter, capture, name, data)
    say(reporter, capture, "importing")
    upload(reporter, capture, name, data)


def test_the_state_of_a_capture_moves_on_the_page_without_a_reload(
    page: Page, live_console: LiveConsole, trace: bytes
) -> None:
    reporter = start(live_console, steps=3)
    open_profile(page, reporter)
    page.evaluate("window.isSamePage = true")
    expect(page.locator('[data-field="profile-empty"]')).to_contain_text("No step recorded yet")
    current = page.locator('[data-capture-states] [aria-current="step"]')

    page.keyboard.press("p")
    expect(current).to_contain_text("armed")
    capture = Capture.objects.get(run=reporter.run).pk
    command = Command.objects.get(attempt__run=reporter.run)
    assert (command.verb, command.payload["capture"], command.payload["num_steps"]) == ("profile", capture, 2)
    for state in ("recording", "stopping", "writing"):
        say(reporter, capture, state, step=4)
        expect(current).to_contain_text(state)
    reporter.steps(2)
    expect(page.locator("[data-capture-table-head]")).to_contain_text("Step 4")
    expect(page.locator("[data-capture-table]")).to_contain_text("Rollout")
    announce(reporter, capture, "policy-0.json.gz", trace)
    say(reporter, capture, "importing")
    expect(current).to_contain_text("importing")
    expect(page.locator("[data-capture-files]")).to_contain_text("on the cluster")
    upload(reporter, capture, "policy-0.json.gz", trace)

    expect(current).to_contain_text("ready")
    expect(page.locator("[data-captures] .state")).to_have_text("ready")
    expect(page.locator('[data-action="capture-zip"]')).to_be_visible()
    expect(page.locator("[data-capture-files]")).to_contain_text("made by torch 2.99.1 (kineto)")
    shoot(page, "profile-ready")
    assert page.locator("[data-capture-key]:not([hidden])").count() > 0
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate("window.isSamePage") is True
    page.reload()
    expect(page.locator('[data-field="capture-title"]')).to_have_text("Steps 4–5, torch")
    expect(page).to_have_url(re.compile(f"capture={capture}"))


@pytest.mark.proof
def test_a_capture_that_failed_says_why_and_can_be_deleted(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    open_profile(page, reporter)
    page.locator('[data-action="profile"]').click()
    expect(page.locator("[data-captures] .state")).to_have_text("armed")
    capture = Capture.objects.get(run=reporter.run).pk

    say(reporter, capture, "recording", step=3)
    say(reporter, capture, "failed", text="Disk full on node a: 0.2 GiB left.")

    expect(page.locator('[data-field="capture-state-text"]')).to_have_text("Disk full on node a: 0.2 GiB left.")
    expect(page.locator('[data-capture-states] [data-step="failed"]')).to_have_count(1)
    page.get_by_role("button", name="Delete this capture").click()
    page.get_by_role("button", name="Delete capture", exact=True).click()
    expect(page.locator('[data-field="profile-empty"]')).to_be_visible()
    assert not Capture.objects.filter(pk=capture).exists()


def test_an_armed_capture_is_withdrawn_and_every_page_shows_it(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=2)
    first, late = (ask_for(reporter, first_step=step) for step in (10, 20))
    open_profile(page, reporter, f"?capture={first}")
    withdraw = page.get_by_role("button", name="Withdraw")
    text, chosen = (
        page.locator('[data-field="capture-state-text"]'),
        page.locator('[data-captures] [aria-selected="true"]'),
    )

    withdraw.click()
    expect(text).to_contain_text("the trainer drops it before its next step")
    expect(withdraw).to_be_hidden()
    command = Command.objects.get(attempt__run=reporter.run, verb="withdraw")
    assert command.payload == {"capture": first}
    say(reporter, first, "withdrawn", step=3)
    expect(chosen.locator(".state")).to_have_text("withdrawn")
    expect(text).to_contain_text("Nothing was recorded.")
    expect(page.locator('[data-capture-states] [aria-current="step"]')).to_contain_text("withdrawn")
    expect(page.locator('[data-action="capture-delete"]')).to_be_visible()
    assert page.evaluate(NAMELESS) == []

    page.locator(f'[data-capture="{late}"]').click()
    expect(withdraw).to_be_visible()
    withdraw_capture(run_id=reporter.run.pk, capture_id=late, user=live_console.user, now=timezone.now())  # elsewhere
    expect(withdraw).to_be_hidden()
    say(reporter, late, "recording", step=20)
    expect(text).to_contain_text("Recording had begun when it was withdrawn, so it goes on.")


def ask_for(reporter: Reporter, **more: Any) -> str:
    asked = {"tool": "torch", "first_step": 0, "num_steps": 2, "roles": [], "ranks": [], **more}
    return request_capture(run_id=reporter.run.pk, user=reporter.console.user, now=timezone.now(), **asked).pk


MORE = "Choose what to record, of which steps and workers"
WHY = "nsys is not installed on node a, or not in the PATH that Ray was started with."


def tell(reporter: Reporter, *, places: dict[str, str] | None = None, **nsys: str) -> None:
    """Let workers tell that they have torch and stacks, and nsys as given."""
    told = {
        name.replace("_", "-"): {"torch": "", "stacks": "", "memory": "It takes a GPU.", "nsys": problem}
        for name, problem in nsys.items()
    }
    meta = {"profilers": told, "places": places or {}}
    reporter.post([events.note("Profilers found", attempt=1, meta=meta)])


def shoot(page: Page, name: str) -> None:
    """Keep pictures of the page in both themes and two widths where PITWALL_SHOTS names a folder."""
    if not (shots := os.environ.get("PITWALL_SHOTS")):
        return
    for width, theme in itertools.product((1280, 390), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("theme => document.documentElement.setAttribute('data-bs-theme', theme)", theme)
        page.screenshot(path=str(Path(shots) / f"{name}-{width}-{theme}.png"), animations="disabled")
    page.set_viewport_size({"width": 1280, "height": 900})


@pytest.mark.proof
def test_the_dialog_asks_what_and_says_which_tool_it_takes(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=1)
    tell(reporter, policy_0="", policy_1="", vllm_0="")
    open_profile(page, reporter)
    page.get_by_role("button", name=MORE).click()
    dialog = page.locator('[data-dialog="profile"]')
    why, shows = dialog.locator('[data-field="ask-why"]'), dialog.locator('[data-field="ask-shows"]')

    expect(dialog.get_by_role("radio", name="Kernels")).to_be_checked()
    expect(why).to_contain_text("torch, because it is ready on all 3 workers")
    expect(why).to_contain_text("On CPU there are no kernels: operators are recorded instead.")
    expect(shows).to_have_text("It shows too: communication, timing. Not in it: memory, where it hangs.")
    shoot(page, "ask-kernels")
    page.keyboard.press("ArrowUp")  # the cards are one group of radios
    page.keyboard.press("ArrowUp")
    expect(dialog.get_by_role("radio", name="Timing")).to_be_checked()
    expect(why).to_have_text(
        "nsys, because it is ready on all 3 workers and adds ranges of phases and little else to the steps."
    )
    assert page.evaluate(NAMELESS) == []
    dialog.get_by_text("Choose the tool myself").click()
    dialog.get_by_role("radio", name="torch operators").check()
    expect(why).to_contain_text("torch, because you chose it: operators, kernels and phases")
    shoot(page, "ask-named")
    dialog.get_by_role("radio", name="Picked").check()
    expect(why).to_contain_text("nsys, because it is ready")
    dialog.get_by_role("radio", name="torch operators").check()
    dialog.get_by_role("radio", name="Where it hangs").check()
    expect(why).to_contain_text("stacks, because it is ready on all 3 workers")  # torch does not show it
    expect(dialog.get_by_role("radio", name="torch operators")).to_have_count(0)
    dialog.get_by_role("radio", name="Memory").check()
    expect(why).to_contain_text("torch, because")
    dialog.get_by_label("Or seconds, at once").fill("5")
    expect(dialog.get_by_role("button", name="Only whole steps")).to_be_disabled()
    dialog.get_by_label("Or seconds, at once").fill("")
    dialog.get_by_role("radio", name="Timing").check()
    dialog.get_by_role("button", name="Profile next 2 steps").press("Enter")

    expect(dialog).to_be_hidden()
    expect(page.locator('[data-field="capture-title"]')).to_have_text("Next 2 steps, nsys")
    asked = Capture.objects.get(run=reporter.run)
    assert (asked.what, asked.tool) == ("timing", "nsys")


@pytest.mark.proof
def test_the_dialog_says_what_is_missing_for_nsys_and_asks_for_what_was_chosen(
    page: Page, live_console: LiveConsole
) -> None:
    reporter = start(live_console, steps=1)
    tell(reporter, policy_0=WHY, policy_1=WHY, vllm_0=WHY)
    open_profile(page, reporter)
    page.get_by_role("button", name=MORE).click()
    dialog = page.locator('[data-dialog="profile"]')
    why = dialog.locator('[data-field="ask-why"]')

    dialog.get_by_role("radio", name="Timing").check()
    expect(why).to_contain_text("nsys is preferred, but is not ready on policy 0-1, vllm 0.")
    expect(dialog.get_by_text("policy 0–1, vLLM 0: nsys is not installed on node a")).to_be_visible()
    dialog.get_by_text("How to install nsys").click()
    expect(dialog.locator("pre")).to_contain_text("apt-get install -y nsight-systems")
    dialog.get_by_text("Choose the tool myself").click()
    expect(dialog.get_by_role("radio", name="nsys")).to_be_disabled()
    assert page.evaluate(NAMELESS) == []
    shoot(page, "ask-lacking-all")
    dialog.get_by_role("button", name="Cancel").click()

    tell(reporter, places={"policy-0": "a", "policy-1": "b"}, policy_0=WHY, policy_1="Its folder is split.", vllm_0="")
    until(page, f"window.pitwallRun.store.seq >= {reporter.batch}")
    page.get_by_role("button", name=MORE).click()
    dialog.get_by_role("radio", name="Timing").check()
    expect(why).to_contain_text("torch, because it is ready on all 3 workers")
    dialog.get_by_text("Choose the tool myself").click()
    expect(dialog.get_by_text("on 1 of 3 workers")).to_be_visible()
    expect(dialog.get_by_role("listitem")).to_have_text(
        [f"policy 0: {WHY}", "policy 1 (node b): Its folder is split."], use_inner_text=True
    )
    shoot(page, "ask-lacking-some")
    dialog.get_by_label("policy", exact=True).uncheck()
    expect(why).to_contain_text("nsys, because it is ready on the worker")
    expect(dialog.get_by_role("listitem")).to_have_count(0)
    dialog.get_by_label("1", exact=True).check()
    dialog.get_by_label("0", exact=True).uncheck()
    expect(dialog.get_by_role("button", name="Choose a role and a rank")).to_be_disabled()
    dialog.get_by_label("0", exact=True).check()
    dialog.get_by_label("From step").fill("99")
    dialog.get_by_role("button", name="Profile steps 99–100").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The run has 40 steps")
    dialog.get_by_label("From step").fill("7")
    dialog.get_by_role("button", name="Profile steps 7–8").click()

    expect(dialog).to_be_hidden()
    expect(page.locator('[data-field="capture-state-text"]')).to_have_text("It begins with step 7.")
    expect(page.locator("[data-capture-key]:not([hidden])")).to_have_count(0)  # the charts mark what was recorded
    asked = Capture.objects.get(run=reporter.run)
    assert (asked.tool, asked.first_step, asked.num_steps, asked.roles, asked.ranks) == ("nsys", 7, 2, ["vllm"], [])


@pytest.mark.proof
def test_the_dialog_says_what_it_will_cost_and_offers_nothing_that_has_no_room(
    page: Page, live_console: LiveConsole
) -> None:
    def on_small_disks(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), **room})

    room = {"free_bytes": 20 << 20, "cluster_free_bytes": 10 << 20}
    reporter = start(live_console, steps=1)
    tell(reporter, policy_0="not there", policy_1="not there")
    page.route("**/api/runs/*/captures", on_small_disks)
    open_profile(page, reporter)
    page.get_by_role("button", name=MORE).click()
    dialog = page.locator('[data-dialog="profile"]')
    cost = dialog.locator('[data-field="ask-cost"]')

    # 2 workers x 2 steps x 0.26 MB, by docs/use/profile.md
    expect(cost).to_contain_text("Files of about 1015.6 KiB, the run pauses for about 0.3 s")
    expect(cost).to_contain_text("Free: 20.0 MiB on the console's disk, 10.0 MiB on the run's on the cluster.")
    dialog.get_by_label("1", exact=True).uncheck()
    expect(cost).to_contain_text("Files of about 507.8 KiB")
    dialog.get_by_label("How many steps").fill("39")
    expect(cost).to_contain_text("Files of about 9.7 MiB")
    expect(dialog.get_by_role("button", name="Profile next 39 steps")).to_be_enabled()
    dialog.get_by_label("1", exact=True).check()
    expect(dialog.get_by_role("button", name="Not enough free space")).to_be_disabled()
    expect(cost).to_contain_text("That is too little: record fewer steps or workers, or free some space.")
    shoot(page, "ask-no-room")
    dialog.get_by_role("radio", name="Where it hangs").check()
    expect(cost).to_contain_text("Files of about 3.0 MiB (measured on the bundled model")
    expect(dialog.get_by_role("button", name="Profile next 39 steps")).to_be_enabled()


@pytest.mark.proof
def test_perfetto_shows_a_real_trace_and_asks_nobody_else(
    page: Page, live_console: LiveConsole, trace: bytes, tmp_path: Path
) -> None:
    reporter = start(live_console, steps=3)
    open_profile(page, reporter)
    page.locator('[data-action="profile"]').click()
    expect(page.locator("[data-captures] .state")).to_have_text("armed")
    capture = Capture.objects.get(run=reporter.run).pk
    record_capture(reporter, capture, "policy-0.json.gz", trace)
    asked: list[str] = []
    stopped: dict[str, str | None] = {}
    page.context.on("request", lambda request: asked.append(request.url))
    page.context.on("requestfailed", lambda request: stopped.update({request.url: request.failure}))

    page.locator('[data-action="capture-perfetto"]').click()

    frame = page.frame_locator("[data-perfetto]")
    expect(frame.get_by_text("python", exact=False).first).to_be_visible(timeout=300_000)
    expect(frame.get_by_text("main thread").first).to_be_visible(timeout=300_000)  # unfolded: its phases are in sight
    inner = next(one for one in page.frames if "/perfetto/" in one.url)
    found = inner.evaluate(
        """async () => {
          const engine = globalThis.app?.trace?.engine;
          const result = await engine.query("select count(*) as n from slice where name = 'pitwall_update_phase'");
          return Number(result.firstRow({n: 1n}).n);
        }"""
    )
    assert found >= 3
    outside = {url for url in asked if not url.startswith((live_console.url, "blob:", "data:"))}
    while not outside <= stopped.keys():  # told just after it was asked
        page.wait_for_event("requestfailed")
    assert {stopped[url] for url in outside} <= {"csp"}, stopped  # the browser let none of them out
    assert any(url.endswith("/frontend_bundle.js") for url in asked)
    assert page.evaluate("window.violations") == []


@pytest.mark.proof
def test_a_file_with_nothing_in_it_is_told_on_the_open_page(page: Page, live_console: LiveConsole) -> None:
    reporter = start(live_console, steps=3)
    open_profile(page, reporter)
    page.keyboard.press("p")
    expect(page.locator('[data-capture-states] [aria-current="step"]')).to_contain_text("armed")
    capture = Capture.objects.get(run=reporter.run)
    empty = gzip.compress(b'{"schemaVersion": 1, "traceEvents": []}')
    record_capture(reporter, capture.pk, "policy-0.json.gz", empty)
    files = page.locator("[data-capture-files]")
    expect(files).to_contain_text("policy-0.json.gz")

    import_layer(layer_id=Layer.objects.get(trace__capture=capture).pk)

    expect(files).to_contain_text("Not on the timeline: The file is a trace of the torch profiler")
