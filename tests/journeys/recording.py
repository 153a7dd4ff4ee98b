"""A person records steps of a running run with torch and nsys, downloads both, and they hold the phases."""

import gzip
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

CAPTURE_MS = 300_000  # steps of half a second, and nsys's importer on two busy cores
CAPTURE_STATES = ["armed", "recording", "stopping", "writing", "importing", "ready"]
NAMES = "select coalesce(text, value, '') from NVTX_EVENTS left join StringIds on textId = StringIds.id"
UPDATE = "update"  # a phase that every step of every policy rank has


def record_with_nsys(page: Page) -> bool:
    """Ask for the timing of one step of policy 0 in the dialog, for which nsys is picked, and wait for its report.

    Where nsys is not installed, the dialog must say so and how to install it; returns False then.
    """
    page.get_by_role("button", name="Choose what to record, of which steps and workers").click()
    dialog = page.locator('[data-dialog="profile"]')
    expect(dialog).to_be_visible()
    dialog.get_by_role("radio", name="Timing").check()
    if not shutil.which("nsys"):
        expect(dialog.get_by_text("nsys is not installed")).to_be_visible()
        dialog.get_by_text("How to install nsys").click()
        expect(dialog.get_by_text("sudo apt-get install -y nsight-systems").first).to_be_visible()
        dialog.get_by_role("button", name="Cancel").click()
        return False
    expect(dialog.locator('[data-field="ask-why"]')).to_contain_text("nsys, because it is ready on all")
    dialog.get_by_label("How many steps").fill("1")
    for role in dialog.locator('[name="roles"]').all():
        role.set_checked(role.get_attribute("value") == "policy")
    for rank in dialog.locator('[name="ranks"]').all():
        rank.set_checked(rank.get_attribute("value") == "0")
    dialog.get_by_role("button", name="Profile next step").click()
    expect(dialog).to_be_hidden()
    _wait_until_ready(page, "nsys")
    return True


def record_by_time(page: Page, meanwhile: Callable[[], None]) -> None:
    """Press *Record* in the middle of whatever runs, end it after `meanwhile`, and wait until its files are here."""
    page.get_by_role("link", name=re.compile("^Profile")).click()
    page.get_by_role("button", name="Record", exact=True).click()
    chosen = page.locator("[data-captures] [aria-selected='true']")
    expect(chosen).to_contain_text("torch")
    expect(chosen.locator("[data-capture-state]")).to_have_text("recording", timeout=CAPTURE_MS)
    tab = open_timeline(page)
    expect(tab.locator("[data-layers] li")).to_have_count(0)  # nothing but phases is there while it records
    meanwhile()
    page.get_by_role("button", name="End recording").click()
    _wait_until_ready(page, "torch")
    expect(page.get_by_role("button", name="Record", exact=True)).to_be_visible()
    look_at_the_timeline(tab, kind="torch")


def open_timeline(page: Page) -> Page:
    """Open the chosen capture's timeline in a tab of its own and return the tab."""
    button = page.locator('[data-action="capture-trace"]')
    expect(button).to_be_visible(timeout=CAPTURE_MS)
    with page.context.expect_page() as opening:
        page.evaluate("address => window.open(address)", button.get_attribute("href"))
    tab = opening.value
    tab.wait_for_url(re.compile("/traces/"))
    tab.evaluate("window.isSamePage = true")
    return tab


def look_at_the_timeline(tab: Page, *, kind: str) -> None:
    """See the layers there without a reload, and the other tabs answer; close it."""
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    layers = tab.locator("[data-layers] [data-layer-state]")
    expect(layers.first).to_be_visible(timeout=CAPTURE_MS)
    expect(tab.locator('[data-layers] [data-layer-state]:not([data-layer-state="ready"])')).to_have_count(
        0, timeout=CAPTURE_MS
    )
    expect(tab.locator("[data-canvas='lanes']")).to_be_visible()
    expect(tab.locator("[data-names]")).to_contain_text(re.compile(r"\S"), timeout=CAPTURE_MS)
    assert tab.evaluate("window.isSamePage"), "layers must come without a reload"
    tab.get_by_role("link", name="Summary").click()
    expect(tab.get_by_role("link", name="Summary")).to_have_attribute("aria-current", "page")
    expect(tab.locator("main")).to_contain_text(re.compile("Update", re.IGNORECASE), timeout=CAPTURE_MS)
    tab.get_by_role("link", name="Diagnosis").click()
    expect(tab.get_by_role("link", name="Diagnosis")).to_have_attribute("aria-current", "page")
    expect(tab.locator("main")).to_contain_text("Incomplete capture", timeout=CAPTURE_MS)
    tab.get_by_role("link", name=re.compile("^Files")).click()
    rows = tab.locator("[data-layer-row]")
    expect(rows.first).to_contain_text(kind)
    expect(rows.locator('.state:not([data-state="ready"])')).to_have_count(0)
    assert problems == []
    tab.close()


def withdraw_a_capture(page: Page) -> None:
    """Ask for steps far ahead, take them back, and see the trainer drop them, without a reload."""
    page.get_by_role("button", name="Choose what to record, of which steps and workers").click()
    dialog = page.locator('[data-dialog="profile"]')
    dialog.get_by_label("From step").fill("4000")
    dialog.get_by_role("button", name="Profile steps 4000").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Withdraw").click()
    chosen = page.locator("[data-captures] [aria-selected='true']")
    expect(chosen.locator("[data-capture-state]")).to_have_text("withdrawn", timeout=CAPTURE_MS)
    expect(page.locator('[data-field="capture-state-text"]')).to_contain_text("Nothing was recorded.")


def _wait_until_ready(page: Page, tool: str) -> None:
    chosen = page.locator("[data-captures] [aria-selected='true']")
    expect(chosen).to_contain_text(tool)
    expect(chosen.locator("[data-capture-state]")).to_have_text(re.compile("ready|failed"), timeout=CAPTURE_MS)
    expect(page.locator('[data-field="capture-state-text"]')).to_contain_text("All files are here, checksums right.")
    expect(page.locator("[data-capture-states] [data-step='done']")).to_have_text(
        [re.compile(word) for word in CAPTURE_STATES]
    )
    expect(page.locator("[data-capture-table]")).to_contain_text("Update")


def check_torch_zip(page: Page, folder: Path) -> None:
    """Download the chosen capture as a zip; its checksums hold, and each policy rank's trace names the phase."""
    archive = _download(page, page.get_by_role("link", name="All as zip"), folder)
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    (inside,) = [path for path in folder.iterdir() if path.is_dir()]
    for line in (inside / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((inside / name).read_bytes()).hexdigest() == digest
    made = {file["tool_version"] for file in json.loads((inside / "manifest.json").read_text())["files"]}
    assert made == {f"torch {version('torch')} (kineto)"}
    traces = sorted(inside.glob("*policy-*.json.gz"))
    assert len(traces) == 2
    for trace in traces:
        names = {event.get("name") for event in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]}
        assert any(str(name).startswith(UPDATE) for name in names), f"{trace.name} lacks the phase {UPDATE}"


def check_nsys_report(page: Page, folder: Path) -> None:
    """Download the report and let nsys itself read the step and its phases out of it."""
    (row,) = page.locator("[data-capture-files] li").all()
    report = _download(page, row.get_by_role("link", name=re.compile("^Download")), folder)
    assert report.name.endswith(".nsys-rep")
    database = folder / "report.sqlite"
    command = ["nsys", "export", "-q", "true", "-t", "sqlite", "-f", "true", "-o", str(database), str(report)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as opened:
        names = {row[0] for row in opened.execute(NAMES)}
    title = page.locator('[data-field="capture-title"]').inner_text()
    (step,) = re.findall(r"Step (\d+)", title)
    assert f"step {step}" in names, f"{title}: {sorted(names)}"
    assert any(name.startswith(UPDATE) for name in names), sorted(names)


def _download(page: Page, link: Locator, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with page.expect_download() as waiting:
        link.click()
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path
