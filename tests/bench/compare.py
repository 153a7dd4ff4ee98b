"""Compare page with 10 runs, measured: `python -m tests.bench.compare`.

Each number is all that the console does until the tab is drawn: the page, and the series of its charts as the browser
asks for them, of 10 runs x 20 metrics x 100,000 points of random float64 (which nothing shortens), on SQLite.
"""

import json
import os
import subprocess
import sys

from tests.bench.stage import ROOT, Result, environment, measure, print_table, seconds

COMMAND = "python -m tests.bench.compare"

PIXELS, NAMES_PER_REQUEST = 500, 12  # what static/js/compare/store.js asks for
TABS = ("verdict", "charts", "table", "timing")


def main() -> None:
    """Measure in a process of its own, whose settings name a database that is thrown away."""
    with environment() as env:
        argv = [sys.executable, "-m", "tests.bench.compare", "--inside"]
        done = subprocess.run(argv, cwd=ROOT, env={**env, "PITWALL_DEBUG": "1"}, stdout=subprocess.PIPE, check=True)
    print_table([Result(**{**row, "spread": tuple(row["spread"])}) for row in json.loads(done.stdout)])


def _inside() -> None:
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.test import Client

    from console.views.compare.page import RL_CHARTS
    from jobs.catalog.metric import metrics
    from jobs.models import Membership
    from tests.bench.storage import METRICS, POINTS, RUNS, long_runs

    first = ("time/step_seconds", "reward/mean", "time/rollout_seconds", "time/update_seconds", *RL_CHARTS)
    names = list(dict.fromkeys([*first, *(name for name in metrics() if "/" in name)]))[:METRICS]
    runs = long_runs(names)
    user = get_user_model().objects.create_user("bench")
    Membership.objects.create(project=runs[0].project, user=user, role="viewer")
    client = Client(headers={"Host": "localhost"})
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    ids = ",".join(run.pk for run in runs)
    shown = {"verdict": list(RL_CHARTS), "charts": names, "timing": [n for n in names if n.startswith("time/")]}

    def get(url: str) -> None:
        answer = client.get(url)
        assert answer.status_code == 200, answer.content[:300]

    def opened(tab: str) -> float:
        def work() -> None:
            get(f"/compare?runs={ids}&tab={tab}")
            wanted = shown.get(tab, [])
            for start in range(0, len(wanted), NAMES_PER_REQUEST):
                part = ",".join(wanted[start : start + NAMES_PER_REQUEST])
                get(f"/api/compare/series?runs={ids}&metrics={part}&points={PIXELS}&smooth=0.6")

        return seconds(work)

    found = []
    for tab in TABS:
        median, spread = measure(lambda tab=tab: opened(tab), times=5)  # type: ignore[misc]  # bound now
        what = f"compare page with {RUNS} runs x {METRICS} metrics x {POINTS:,} points, tab {tab}"
        found.append({"what": what, "median": median, "spread": spread, "unit": "s", "command": COMMAND})
    print(json.dumps(found))


if __name__ == "__main__":
    os.chdir(ROOT)
    if sys.argv[1:] == ["--inside"]:
        _inside()
    else:
        main()
