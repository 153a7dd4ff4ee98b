"""Storage, measured: durable ingest and reading for charts. `python -m tests.bench.storage [--postgres]`.

Ingest is the whole way from the Redis stream through the commit to the live stream, compaction into chunks included, on
real Valkey; reading is `read_series` and its JSON for ten runs, from chunks of random float64 (which nothing shortens).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.stage import ROOT, Result, environment, measure, print_table, seconds

COMMAND = "python -m tests.bench.storage"

BATCHES, EVENTS, VALUES = 100, 100, 20  # 200,000 points
RUNS, METRICS, POINTS, PIXELS = 10, 20, 100_000, 1000


def main() -> None:
    """Measure on SQLite, and with --postgres on a private PostgreSQL as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="also on PostgreSQL (needs its server programs)")
    parser.add_argument("--inside", metavar="DATABASE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        _inside(given.inside)
        return
    from tests.services import Valkey, durable_postgres

    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="pw-bench-vk-") as folder:
        valkey = Valkey(Path(folder))
        valkey.start()
        try:
            with environment(redis_url=valkey.url) as env:
                results += _child("SQLite", env)
            if given.postgres:
                with (
                    durable_postgres() as server,
                    environment(redis_url=valkey.url, database_url=server.url) as env,
                ):
                    results += _child("PostgreSQL", env)
        finally:
            valkey.kill()
    print_table(results)


def _child(database: str, env: dict[str, str]) -> list[Result]:
    argv = [sys.executable, "-m", "tests.bench.storage", "--inside", database]
    done = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, check=True)
    return [Result(**{**row, "spread": tuple(row["spread"])}) for row in json.loads(done.stdout)]


def _inside(database: str) -> None:
    """Measure in this process, whose settings name the database, and print JSON."""
    import django

    django.setup()
    command = COMMAND if database == "SQLite" else f"{COMMAND} --postgres"
    found = []
    for what, unit, function, times in (
        (f"durable ingest, {database}", "points/s", _ingest(), 5),
        (f"read {RUNS} runs x {METRICS} metrics x {POINTS:,} points for {PIXELS} px, {database}", "s", _read(""), 5),
        (f"the same, smoothed (0.6), {database}", "s", _read("0.6"), 3),
    ):
        median, spread = measure(function, times=times)
        found.append({"what": what, "median": median, "spread": spread, "unit": unit, "command": command})
    print(json.dumps(found))


def _project():  # type: ignore[no-untyped-def]  # models exist only after django.setup
    from jobs.models import Project

    return Project.objects.get_or_create(slug="bench", name="Bench")[0]


def _ingest():  # type: ignore[no-untyped-def]
    import redis
    from django.conf import settings

    from jobs.ingest.process import Ingest
    from jobs.models import Attempt, Run
    from jobs.telemetry.streams import INGEST
    from tests.batches import metric

    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5)
    bodies = []
    for batch in range(BATCHES):
        rows = [
            metric(batch * EVENTS + i, **{f"metric/{k}": i / 7 + k / 3 for k in range(VALUES)}) for i in range(EVENTS)
        ]
        bodies.append(json.dumps(rows).encode())
    count = iter(range(10**6))

    def once() -> float:
        run = Run.objects.create(project=_project(), name="ingest", spec={}, state="running")
        attempt = Attempt.objects.create(run=run, state="running", submission_id=f"ingest-{next(count)}")
        for batch, body in enumerate(bodies, start=1):
            client.xadd(INGEST, {"run": run.pk, "attempt": 1, "batch": batch, "events": body})
        ingest = Ingest(client)

        def work() -> None:
            while client.xlen(INGEST):
                ingest.work()

        took = seconds(work)
        attempt.refresh_from_db()
        assert attempt.durable_batch == BATCHES
        return BATCHES * EVENTS * VALUES / took

    return once


def long_runs(names: list[str]):  # type: ignore[no-untyped-def]
    """Return ten runs with 100,000 random points of each of these metrics, made the first time."""
    import numpy as np

    from jobs.ingest.compaction import append_points
    from jobs.models import Attempt, Metric, Run
    from jobs.telemetry.chunks import points

    runs = list(Run.objects.filter(name="read"))
    if not runs:
        rng = np.random.default_rng(0)
        x = np.arange(1, POINTS + 1)
        t = 1_790_000_000_000_000_000 + x * 10**8 + rng.integers(0, 10**6, POINTS)
        for color in range(RUNS):
            run = Run.objects.create(
                project=_project(), name="read", spec={}, state="finished", step=POINTS, num_steps=POINTS, color=color
            )
            Attempt.objects.create(run=run, state="finished", submission_id=f"read-{run.pk}")
            rows = [Metric.objects.create(run=run, name=name) for name in names]
            append_points({row.pk: points(x, t, 2 + rng.normal(size=POINTS)) for row in rows}, attempt=1, through=0)
            runs.append(run)
    return runs


def _read(smoothing: str):  # type: ignore[no-untyped-def]
    import orjson

    from console.api.runs.series import series_json
    from jobs.telemetry.series import read_series
    from jobs.telemetry.smoothing import parse_smoothing

    names = [f"metric/{k}" for k in range(METRICS)]
    runs = long_runs(names)

    def read() -> None:
        for run in runs:
            answer = read_series(run_id=run.pk, names=names, num_points=PIXELS, smoothing=parse_smoothing(smoothing))
            assert sum(s.of for s in answer.series) == METRICS * POINTS
            orjson.dumps(series_json(answer), option=orjson.OPT_SERIALIZE_NUMPY)

    return lambda: seconds(read)


if __name__ == "__main__":
    main()
