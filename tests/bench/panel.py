"""The planner's panel in a browser, measured: `python -m tests.bench.panel`.

From an input event of a knob to the first frame that shows the new bars, on a real console, with a full spec of verl:
the wait for further keys, the question, the estimate, the answer and the painting are all part of the number.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.stage import ROOT, Result, environment, measure, print_table
from tests.bench.web.console import wait_for

COMMAND = "python -m tests.bench.panel"
PORT = 18461
PAGE = "/runs/new?recipe=verl-grpo-qwen3-8b&accelerator=h200-sxm&nodes=1&devices_per_node=8"
REST_MS = 1500  # between keys, so that advice and previews of the last one are over
FOLLOWED = """(text) => new Promise((done) => {
  const input = document.querySelector('[name="knobs.rollout.gpu_memory_fraction"]');
  const watch = new MutationObserver(() => {
    watch.disconnect();
    requestAnimationFrame(() => done(performance.now() - began));
  });
  watch.observe(document.querySelector("[data-bars-place]"), { childList: true });
  const began = performance.now();
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
})"""


def main() -> None:
    """Start a console of its own and type into its form."""
    from tests.services import Valkey

    with tempfile.TemporaryDirectory(prefix="pw-bench-vk-") as folder:
        valkey = Valkey(Path(folder))
        valkey.start()
        try:
            with environment(redis_url=valkey.url) as env:
                url = f"http://127.0.0.1:{PORT}"
                env |= {"PITWALL_PORT": str(PORT), "PITWALL_PUBLIC_URL": url, "PITWALL_DEBUG": "1"}
                argv = [sys.executable, "-m", "tests.bench.panel", "--inside"]
                made = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
                web = subprocess.Popen([sys.executable, "manage.py", "web"], cwd=ROOT, env=env)
                try:
                    wait_for(f"{url}/signin")
                    print_table([_typed(url, made.stdout.strip())])
                finally:
                    web.terminate()
                    web.wait(timeout=20)
        finally:
            valkey.kill()


def _typed(url: str, session: str) -> Result:
    from playwright.sync_api import sync_playwright

    from tests.conftest import CHROMIUM_ARGUMENTS, find_chromium

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_cookies([{"name": "pitwall_session", "value": session, "url": url}])
        page = context.new_page()
        page.goto(f"{url}{PAGE}")
        page.locator(".memory-row").first.wait_for()
        typed = 0

        def followed() -> float:
            nonlocal typed
            page.wait_for_timeout(REST_MS)
            typed += 1
            return float(page.evaluate(FOLLOWED, f"0.{40 + typed}"))

        median, spread = measure(followed, times=15)
        browser.close()
    return Result(
        what="key to the planner's panel, full spec of verl", median=median, spread=spread, unit="ms", command=COMMAND
    )


def _inside() -> None:
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.test import Client

    from jobs.models import Membership, Project

    project = Project.objects.create(name="Bench", slug="bench")
    user = get_user_model().objects.create_user("bench")
    Membership.objects.create(project=project, user=user, role="editor")
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    print(client.cookies["pitwall_session"].value)


if __name__ == "__main__":
    if "--inside" in sys.argv:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
        _inside()
    else:
        main()
