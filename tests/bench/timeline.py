"""The timeline of ten million events in a browser, measured: `python -m tests.bench.timeline [--events 10000000]`.

First view: from the click on a link to the first frame in which all that belongs on the screen is there. Then frames a
second while the view pans and zooms with every frame, near and far, on a real console in Chromium (which draws without
a GPU where there is none). The store is made here: 16 threads of nested operators, 16 streams of kernels.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from profiling.trace.schema import StoreFacts
from tests.bench.stage import ROOT, Result, environment, print_table
from tests.bench.web.console import wait_for

COMMAND = "python -m tests.bench.timeline"
PORT = 18462
GATES = {"fps": 55.0, "first": 1000.0}
BEGIN = 1_790_857_026_000_000_000
THREADS, STREAMS = 16, 16
SECONDS = 3

WHOLE = """() => new Promise((done) => {
  const look = () => {
    const trace = window.pitwallTrace;
    if (trace?.isStarted && trace.view.frames > 0 && trace.view.isWhole) done(performance.now());
    else requestAnimationFrame(look);
  };
  look();
})"""
MOVE = """([kind, seconds]) => new Promise((done) => {
  const { view } = window.pitwallTrace;
  const { from, to } = view.extent;
  const whole = to - from;
  const share = { "pan far": 0.5, "pan middle": 0.01, "pan near": 0.00002, zoom: 1 }[kind];
  const center = from + whole * 0.4;
  const began = performance.now();
  let frames = 0;
  let slowest = 0;
  let last = began;
  const frame = (now) => {
    const past = now - began;
    if (frames > 0) slowest = Math.max(slowest, now - last);
    last = now;
    if (past > seconds * 1000) {
      done({ fps: (frames * 1000) / past, slowest });
      return;
    }
    frames += 1;
    const turn = (past / 1000) % 2;
    if (kind === "zoom") {
      const width = whole * 10 ** (-5 * (turn < 1 ? turn : 2 - turn));
      view.setWindow({ from: center - width / 2, to: center + width / 2 });
    } else {
      const width = whole * share;
      const at = center + width * Math.sin(past / 700);
      view.setWindow({ from: at - width / 2, to: at + width / 2 });
    }
    view.drawNow();
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})"""


def main() -> None:
    """Make the store, start a console of its own, and look."""
    from tests.services import Valkey

    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=10_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pw-bench-vk-") as folder:
        valkey = Valkey(Path(folder))
        valkey.start()
        try:
            with environment(redis_url=valkey.url) as env:
                url = f"http://127.0.0.1:{PORT}"
                env |= {"PITWALL_PORT": str(PORT), "PITWALL_PUBLIC_URL": url}
                argv = [sys.executable, "-m", "tests.bench.timeline", "--inside", str(given.events)]
                made = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
                session, trace = made.stdout.split()
                subprocess.run(
                    [sys.executable, "manage.py", "collectstatic", "--noinput", "-v0"], cwd=ROOT, env=env, check=True
                )
                web = subprocess.Popen([sys.executable, "manage.py", "web"], cwd=ROOT, env=env)
                try:
                    wait_for(f"{url}/signin")
                    results = _looked_at(url, session, trace, given.events)
                finally:
                    web.terminate()
                    web.wait(timeout=20)
        finally:
            valkey.kill()
    print_table(results)
    slow = [r.what for r in results if r.unit == "fps" and r.median < GATES["fps"]]
    slow += [r.what for r in results if r.what.startswith("first view") and r.median > GATES["first"]]
    if slow:
        sys.exit(f"Slower than it has to be: {'; '.join(slow)}")


def _looked_at(url: str, session: str, trace: str, events: int) -> list[Result]:
    import django.db.models  # noqa: F401  (whole, before conftest imports a part that needs the rest)
    from playwright.sync_api import sync_playwright

    from tests.conftest import CHROMIUM_ARGUMENTS, find_chromium

    name = f"{events / 1e6:g} M events"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        firsts = []
        for _ in range(3):  # each time in a browser that has seen nothing yet
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            context.add_cookies([{"name": "pitwall_session", "value": session, "url": url}])
            page = context.new_page()
            page.goto(f"{url}/traces/")
            page.goto(f"{url}/traces/{trace}", wait_until="commit")
            page.wait_for_load_state("domcontentloaded")
            firsts.append(float(page.evaluate(WHOLE)))
        results = [_result(f"first view, {name}", firsts, "ms")]
        for kind in ("pan far", "pan middle", "pan near", "zoom"):
            page.evaluate(MOVE, [kind, 1])
            page.evaluate(WHOLE)
            found = [page.evaluate(MOVE, [kind, SECONDS]) for _ in range(3)]
            results.append(_result(f"{kind}, {name}", [one["fps"] for one in found], "fps"))
            results.append(_result(f"{kind}, slowest frame", [one["slowest"] for one in found], "ms"))
        browser.close()
    return results


def _result(what: str, values: list[float], unit: str) -> Result:
    return Result(
        what=what, median=float(np.median(values)), spread=(min(values), max(values)), unit=unit, command=COMMAND
    )


def _inside(events: int) -> None:
    import django

    django.setup()
    from dataclasses import asdict

    from django.contrib.auth import get_user_model
    from django.test import Client

    from jobs.models import Layer, Membership, Project, Trace
    from jobs.traces.imports import store_path

    project = Project.objects.create(name="Bench", slug="bench")
    user = get_user_model().objects.create_user("bench")
    Membership.objects.create(project=project, user=user, role="editor")
    trace = Trace.objects.create(project=project, name="ten million events")
    layer = Layer.objects.create(trace=trace, file_name="made.json", kind="torch", size=1, received=1, state="ready")
    store_path(layer).parent.mkdir(parents=True)
    layer.facts = asdict(_store(store_path(layer), events))
    layer.save()
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    print(client.cookies["pitwall_session"].value, trace.pk)


def _store(path: Path, events: int) -> StoreFacts:
    from profiling.trace.category import Category
    from profiling.trace.writer import StoreWriter

    rng = np.random.default_rng(7)
    with StoreWriter(path, source="torch") as writer:
        operators = [writer.name(f"aten::operator_{i}") for i in range(180)]
        kernels = [writer.name(f"void cutlass::kernel_{i}<128>(Params)") for i in range(60)]
        each = events // (THREADS * 3 + STREAMS)
        for lane in [
            writer.lane("thread", process="python", pid=7, thread=f"worker {i}", tid=i) for i in range(THREADS)
        ]:
            lasts = rng.integers(8_000, 60_000, each)
            start = BEGIN + np.cumsum(lasts + rng.integers(500, 9_000, each))
            for depth in range(3):
                name = rng.choice(operators, each)
                category = np.full(each, Category.OPERATOR)
                columns = {"ts": start + depth * 1000, "dur": lasts - depth * 2000, "name": name, "cat": category}
                writer.add_many({**columns, "lane": np.full(each, lane)})
        for lane in [writer.lane("stream", process="python", pid=7, device=0, stream=i) for i in range(STREAMS)]:
            lasts = rng.integers(2_000, 40_000, each)
            start = BEGIN + np.cumsum(lasts + rng.integers(0, 30_000, each))
            columns = {
                "ts": start,
                "dur": lasts,
                "name": rng.choice(kernels, each),
                "cat": np.full(each, Category.KERNEL),
            }
            writer.add_many({**columns, "lane": np.full(each, lane)})
        return writer.finish()


if __name__ == "__main__":
    if "--inside" in sys.argv:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        _inside(int(sys.argv[-1]))
    else:
        main()
