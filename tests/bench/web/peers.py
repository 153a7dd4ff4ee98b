"""MLflow's server and TensorBoard with as many series, where a Python that has them is named or at hand.

They get fewer points a series (POINTS), as their own writers take an hour for 50 million: that is in their favour.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page

from console.embedded.ports import free_block
from tests.bench.web.browser import SCROLL, process_bytes
from tests.bench.web.case import VIEWPORT, Reading
from tests.bench.web.console import wait_for

SERIES, POINTS = 5000, 20
SEED = Path(__file__).with_name("seed_peer.py")
PACE = 1000  # pixels a second, as `run_page` reads
WAIT_MS = 60_000

# Notes when the first picture of some size is there, also inside of components; `benchDrawn` counts all alike.
WATCH = """
const pictures = (root) => [
  ...[...root.querySelectorAll("canvas, svg")].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 150 && box.height > 80 && box.top < innerHeight;
  }),
  ...[...root.querySelectorAll("*")].filter((one) => one.shadowRoot).flatMap((one) => pictures(one.shadowRoot)),
];
window.benchDrawn = () => [1, 1];
window.bench = { first: 0 };
const look = () => {
  if (pictures(document).length) window.bench.first = performance.now();
  else setTimeout(look, 20);
};
addEventListener("DOMContentLoaded", look);
"""
# Scrolls whatever of the page is higher than the screen the most.
OF_THE_LARGEST = """() => {
  const all = [document.scrollingElement, ...document.querySelectorAll("*")].filter((one) => one?.clientHeight > 300);
  const inner = all.reduce((a, b) => (b.scrollHeight - b.clientHeight > a.scrollHeight - a.clientHeight ? b : a));
  Object.defineProperty(document, "scrollingElement", { value: inner, configurable: true });
}"""


def look_at_peers(browser: Browser, given: argparse.Namespace, folder: Path) -> list[tuple[str, Reading]]:
    """Return what was read of each peer, and say which are left out."""
    named = {
        "mlflow": given.mlflow or os.environ.get("PITWALL_BENCH_MLFLOW"),
        "tensorboard": given.tensorboard or sys.executable,
    }
    found: list[tuple[str, Reading]] = []
    for peer, python in named.items():
        if not python or subprocess.run([python, "-c", f"import {peer}"], capture_output=True, check=False).returncode:
            print(f"{peer} is left out: name a Python that has it with --{peer}", flush=True)
            continue
        found += [(peer, one) for one in _looked_at(browser, peer, python, folder, given.rounds)]
    return found


def _looked_at(browser: Browser, peer: str, python: str, folder: Path, rounds: int) -> list[Reading]:
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_block(1, seed=f"{peer} of {folder}")
    url = f"http://127.0.0.1:{port}"
    first, fps, memory = [], [], []
    with ExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=peer)))
        seed = [python, str(SEED), peer, str(store), str(SERIES), str(POINTS)]
        address = subprocess.run(seed, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
        log = stack.enter_context((store / "server.log").open("wb"))
        server = subprocess.Popen(_server(peer, python, store, port), stdout=log, stderr=log, cwd=store)
        stack.callback(server.wait, 30)
        stack.callback(server.terminate)
        wait_for(url)
        for _ in range(rounds):
            context = browser.new_context(viewport=VIEWPORT, locale="en-US")  # type: ignore[arg-type]  # a plain dict
            page = context.new_page()
            page.add_init_script(WATCH)
            first.append(_first(page, url + address))
            page.evaluate(OF_THE_LARGEST)
            fps.append(page.evaluate(SCROLL, [PACE, 3])["fps"])
            memory.append(process_bytes(browser, page) / 2**20)
            context.close()
    points = f"{SERIES:,} series x {POINTS} points"
    return [
        Reading(what="run page, first chart, first visit", unit=f"ms ({points})", values=tuple(first)),
        Reading(what=f"run page, scrolling (reading, {PACE} px/s)", unit="fps", values=tuple(fps), is_floor=True),
        Reading(what="run page, memory of its process", unit="MiB", values=tuple(memory)),
    ]


def _server(peer: str, python: str, store: Path, port: int) -> Sequence[str]:
    if peer == "tensorboard":
        return [python, "-m", "tensorboard.main", "--logdir", str(store), "--host", "127.0.0.1", "--port", str(port)]
    backend = ["--backend-store-uri", f"sqlite:///{store}/mlflow.db", "--workers", "1"]
    return [python, "-m", "mlflow", "server", *backend, "--host", "127.0.0.1", "--port", str(port)]


def _first(page: Page, address: str) -> float:
    page.goto(address, wait_until="commit")
    for _ in range(WAIT_MS // 50):
        if first := page.evaluate("window.bench?.first"):
            return float(first)
        page.wait_for_timeout(50)
    return float("nan")
