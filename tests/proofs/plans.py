"""`make proof-plans`: what ended runs say of their plans, on a real console: written to docs/proofs/plans.md.

A run finishes and joins the calibration; the form is read before and after. Then the same run is started with a policy
that may take six tenths of what it took before (RLIMIT_DATA, set from outside once it trains). It dies; the card on its
page is read in a browser, its clone launched by two clicks, and the clone has to finish under the same limit, and to
join as a setting that nothing had seen. Two minutes on two quiet cores; the exit code is 1 if something is not so.
"""

import os
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import django
import psutil
from playwright.sync_api import Page, sync_playwright

from console.command_line.api_client import ENDED, ApiClient
from console.command_line.api_json import RunJson
from jobs.planner.calibration import miss_text
from tests.journeys.conftest import ROOT, Stack, start_stack, stop_stack, wait_for_line
from tests.journeys.other_trainers import token_of
from tests.proofs.faults import trainer
from tests.proofs.faults.stack import until

PAGE = ROOT / "docs" / "proofs" / "plans.md"
ALLOWED = 0.6  # of what the same run took in its update without a limit
RUN_SECONDS = 1200.0  # a minute alone; other work stands beside it
JOIN_SECONDS = 120.0
LARGE: Mapping[str, Any] = {"train.micro_batch_size": 128}
ALWAYS: Mapping[str, Any] = {"train.num_steps": 6, "eval.num_prompts": 0, "memory.zero_stage": "0"}
"""Without ZeRO: its bucket of 2 GB is hardly touched, but RLIMIT_DATA counts all of it."""
HEAD = """# Plans and what became of them

Written by `make proof-plans`: a console started as `make up` does, the bundled model on this machine's CPU, pages read
in Chromium. How it works: [planner](../use/planner.md), *Calibration* and *After an out-of-memory*.
"""


@dataclass(slots=True)
class Report:
    """The lines of the page, and what is not as it has to be."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def expect(self, is_true: object, sentence: str) -> None:
        """Keep the sentence if it is not so."""
        if not is_true:
            self.problems.append(sentence)

    def text(self) -> str:
        """Return the whole page."""
        verdict = "All of it holds." if not self.problems else "\n".join(f"- **{each}**" for each in self.problems)
        return "\n".join([HEAD, verdict, "", *self.lines, ""])


@dataclass(slots=True, kw_only=True)
class Site:
    """A console, by its API and in a browser."""

    stack: Stack
    client: ApiClient
    page: Page

    def launch(self, name: str, knobs: Mapping[str, Any]) -> str:
        """Queue a run of one policy rank and return its id."""
        hardware = {"layout": "split", "device": "cpu", "policy_ranks": 1}
        spec = {
            "name": name,
            "algorithm": "grpo",
            "hardware": hardware,
            "profile": {"nsys_ready": "off"},
            "knobs": {**ALWAYS, **knobs},
        }
        return self.client.launch(spec, key=name).id

    def until_state(self, run: str, states: tuple[str, ...]) -> RunJson:
        """Wait until the run is in one of these states, and return it."""
        is_there = lambda: self.client.run(run)["state"] in states  # noqa: E731
        until(is_there, seconds=RUN_SECONDS, what=f"{run} was {' or '.join(states)}")
        return self.client.run(run)

    def planned_step(self, run: str = "") -> str:
        """Return the step time that New run shows, as a clone of that run."""
        self.page.goto(f"{self.stack.url}/runs/new{f'?from={run}' if run else ''}")
        numbers = self.page.locator(".plan-numbers").first
        numbers.wait_for()
        found = re.search(r"Step time\n(.+)", numbers.inner_text())
        return found[1].strip() if found else ""


def main() -> int:
    """Run all and write the page; return 1 if something is not as it has to be."""
    report = Report()
    with running_site() as site:
        before = site.planned_step()
        report.expect(before == "—", f"New run showed {before!r} as the time of a step before any run had finished")
        first = site.launch("as it is", LARGE)
        rows = [joined(site, report, first, "as it is")]
        clone = out_of_memory(site, report, first)
        rows.append(joined(site, report, clone, "the clone below, a setting that no run had had"))
    report.lines[:0] = [
        "## Finished runs join",
        "",
        f"On a fresh console New run shows “{before}” for the time of a step. *Off before* is how far the step was",
        "from the plan that had not seen the run, *off after* with what it measured. The load of the machine, mean of",
        f"the last minute at the end: {os.getloadavg()[0]:.1f}.",
        "",
        "| run | a step took | off before | off after | New run then shows |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]
    PAGE.write_text(report.text(), encoding="utf-8")
    print(report.text())
    return 1 if report.problems else 0


@contextmanager
def running_site() -> Iterator[Site]:
    """Start a console and a browser that is signed in; end both."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()  # before tests.conftest, which imports parts of it
    from tests.conftest import CHROMIUM_ARGUMENTS, find_chromium

    stack = start_stack()
    try:
        wait_for_line(stack, "Ray is ready", seconds=120)
        client = ApiClient(stack.url, token_of(stack))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
            page = browser.new_page(viewport={"width": 1440, "height": 1000})
            page.goto(stack.signin_link())
            page.keyboard.press("Enter")
            page.wait_for_url(f"{stack.url}/")
            yield Site(stack=stack, client=client, page=page)
            browser.close()
        client.close()
    finally:
        stop_stack(stack)


def joined(site: Site, report: Report, run: str, words: str) -> str:
    """Wait until a run has finished and joined; return its line of the table."""
    ended = site.until_state(run, ENDED)
    report.expect(ended["state"] == "finished", f"{words}: {ended['state']}: {ended['cause']}")
    until(lambda: site.client.run_plan(run)["joining"], seconds=JOIN_SECONDS, what=f"{run} joined")
    plan = site.client.run_plan(run)
    joining = plan["joining"]
    assert joining is not None
    step = next(row["measured"] for row in plan["rows"] if (row["quantity"], row["phase"]) == ("seconds", "step"))
    asked = site.planned_step(run)
    seconds = [float(number) for number in re.findall(r"[\d.]+", asked)]
    is_inside = len(seconds) == 2 and seconds[0] <= step <= seconds[1]
    report.expect(is_inside, f"New run shows {asked!r} as the time of a step after {words}, which took {step:.2f} s")
    return f"| {words} | {step:.2f} s | {_miss(joining['before'])} | {_miss(joining['after'])} | {asked} |"


def out_of_memory(site: Site, report: Report, first: str) -> str:
    """Let the first setting die of memory, read its card, launch the clone, let it finish, and return it."""
    took = next(
        row["measured"]
        for row in site.client.run_plan(first)["rows"]
        if (row["quantity"], row["role"], row["phase"]) == ("bytes", "policy", "update")
    )
    assert took is not None
    room = round(took * ALLOWED)
    run = site.launch("too large", LARGE)
    limited(site, run, room)
    ended = site.until_state(run, ENDED)
    report.expect(ended["state"] == "failed", f"the run under a limit is {ended['state']}")
    answer = site.client.post_mortem(run)
    place = (answer["role"], answer["phase"], answer["term"]) if answer else None
    report.expect(place == ("policy", "update", "activations"), f"named were {place}")
    card = site.page.locator("[data-post-mortem]")
    site.page.goto(f"{site.stack.url}/runs/{run}")
    card.wait_for()
    said = [line.strip() for line in card.locator("p").all_inner_texts()]
    card.get_by_role("link", name="Clone with it").click()
    launch = site.page.locator("[data-launch]")
    launch.wait_for()
    launch.click()
    site.page.wait_for_url(re.compile(r"/runs/r-[0-9a-f]+$"))
    clone = site.page.url.rpartition("/")[2]
    limited(site, clone, room)
    again = site.until_state(clone, ENDED)
    report.expect(again["state"] == "finished", f"the clone: {again['state']}: {again['cause']}")
    report.lines += [
        "## A run that dies of memory",
        "",
        f"Without a limit the policy of the first run took up to {took / 1e6:.0f} MB in its update beyond what its",
        f"process held before. The same run again, its process allowed to grow by {room / 1e6:.0f} MB, ended as",
        f"*{ended['state']}*: {ended['cause'].get('text', '')}",
        "",
        "Its card says:",
        "",
        *(f"> {line}" + ("" if line is said[-1] else "  ") for line in _shown(said)),
        "",
        f"Its clone, launched from there, under the same limit: *{again['state']}*, {again['step']} of "
        f"{again['num_steps']} steps.",
    ]
    return clone


def limited(site: Site, run: str, room: int) -> None:
    """Let the policy's process take `room` bytes more than when it began to train."""
    site.until_state(run, ("running", *ENDED))
    run_dir = site.stack.data_dir / "runs" / run / "a1"
    process: psutil.Process = until(
        lambda: trainer.worker(run, run_dir, "policy"), seconds=30, what="the policy has a process"
    )
    most = data_bytes(process.pid) + room
    resource.prlimit(process.pid, resource.RLIMIT_DATA, (most, most))


def data_bytes(pid: int) -> int:
    """Return the bytes of a process that count for RLIMIT_DATA. Raises: OSError."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/{pid}/status says nothing of VmData")


def _miss(error: float | None) -> str:
    return "—" if error is None else str(miss_text(error))


def _shown(said: list[str]) -> list[str]:
    return [" ".join(line.removesuffix("Clone with it").split()) for line in said]


if __name__ == "__main__":
    sys.exit(main())
