"""The list of runs, measured: `python -m tests.bench.web.run_list [--runs 1000000] [--postgres]`.

Each number is one request for the page's results as the browser asks for them, in a project of 100,000 runs with 50
knobs, 10 metrics and a tag each; medians and the slowest of twenty ("p95"). A limit that is missed fails the command.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tests.bench.stage import ROOT, environment, seconds

TIMES = 20
CASES = {
    "first page": {},
    "sort by a knob": {"sort": "-{knob}"},
    "sort by a metric": {"sort": "reward/mean"},
    "sort by a tag": {"sort": "-tag:baseline"},
    "sort by name": {"sort": "name"},
    "knob, half of the runs": {"q": "{knob}>0.5"},
    "metric, one run in 1,000": {"q": "reward/mean>0.999", "sort": "-{knob}"},
    "knob, metric, state and tag": {
        "q": "{knob}>0.2 reward/mean>=0.3 state:finished tag:baseline",
        "sort": "reward/mean",
    },
    "or, not, parentheses": {"q": "(state:failed or reward/mean<0.1) -tag:baseline", "sort": "-duration"},
    "a range that is empty": {"q": "{knob}>0.5 {knob}<0.5"},
    "a narrow range in which no run is": {"q": "{knob}>0.5 {knob}<0.500001 state:finished", "sort": "reward/mean"},
    "a part and one that excludes it": {"q": "state:failed -tag:baseline"},
    "a word that one run has": {"q": "needle"},
    "a word that all have": {"q": "run"},
    "page 100 of a filter": {"q": "{knob}>0.1", "page": "100"},
}
LIMITS = {100_000: 0.5, 1_000_000: 2.0}


def main() -> None:
    """Measure on SQLite, or with --postgres on a private PostgreSQL."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="how many the project has (%(default)s)")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL (needs its server programs)")
    parser.add_argument("--inside", metavar="DATABASE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        _inside(given.inside, given.runs)
    elif given.postgres:
        from tests.services import durable_postgres

        with durable_postgres() as server, environment(database_url=server.url) as env:
            code = _child("PostgreSQL", given.runs, env)
        sys.exit(code)
    else:
        with environment() as env:
            code = _child("SQLite", given.runs, env)
        sys.exit(code)


def _child(database: str, num_runs: int, env: dict[str, str]) -> int:
    argv = [sys.executable, "-m", "tests.bench.web.run_list", "--inside", database, "--runs", str(num_runs)]
    return subprocess.run(argv, cwd=ROOT, env={**env, "PITWALL_DEBUG": "1"}, check=False).returncode


def _inside(database: str, num_runs: int) -> None:
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.test import Client

    from jobs.models import Membership, Project

    project, is_new = Project.objects.get_or_create(slug="bench", name="Bench")
    user, _is_new = get_user_model().objects.get_or_create(username="bench")
    Membership.objects.get_or_create(project=project, user=user, role="viewer")
    took = seconds(lambda: fill(project, num_runs)) if is_new else 0
    print(f"{num_runs:,} runs on {database}, made in {took:.0f} s", flush=True)
    client = Client(headers={"Host": "localhost", "HX-Request": "true"})
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    knob, limit, is_late = knob_names()[0], LIMITS.get(num_runs), False
    for what, query in CASES.items():
        asked = {name: value.format(knob=knob) for name, value in query.items()}
        median, p95 = measured(partial(get, client, asked))
        is_late = is_late or (limit is not None and median > limit)
        print(f"{what:<42} {median:7.3f} s {p95:7.3f} s  {json.dumps(asked)}", flush=True)
    sys.exit(int(is_late))


def measured(function: Callable[[], Any]) -> tuple[float, float]:
    """Return median and 95th percentile of what the call takes, after one that does not count."""
    function()
    times = sorted(seconds(function) for _ in range(TIMES))
    return statistics.median(times), times[round(0.95 * TIMES) - 1]


def get(client: Any, query: dict[str, str]) -> None:
    """Ask for the results of the list."""
    answer = client.get("/runs", query)
    assert answer.status_code == 200, answer.content[:300]
    assert b"filter-problem" in answer.content


@cache
def knob_names() -> list[str]:
    """Return the ids of fifty knobs that hold numbers."""
    from jobs.catalog.knob import knobs

    return [name for name, knob in knobs().items() if isinstance(knob.default, (int, float))][:50]


@cache
def metric_names() -> list[str]:
    """Return the names of ten metrics, the main one first."""
    from jobs.catalog.metric import metrics

    return ["reward/mean", *(name for name in metrics() if "/" in name and name != "reward/mean")][:10]


def fill(project: Any, num_runs: int) -> None:
    """Make the runs, and what lists look for by statements that both databases have, as the product would write it.

    A run's value of a key is spread evenly over 0 to 1: the remainder of a multiple of the run's number.
    """
    from django.db import connection, reset_queries

    from jobs.models import Run, RunFact, RunKey, RunLine

    for start in range(1, num_runs + 1, 1000):
        rows = [_run(project, i) for i in range(start, min(start + 1000, num_runs + 1))]
        Run.objects.bulk_create(rows)
        reset_queries()  # which debugging keeps: gigabytes of a million runs
    kinds = {"field": FIELDS, "knob": knob_names(), "metric": metric_names(), "tag": ["baseline"]}
    keys = [RunKey(project=project, kind=kind, name=name) for kind, names in kinds.items() for name in names]
    RunKey.objects.bulk_create(keys)
    indexes = RunFact._meta.indexes
    with connection.schema_editor() as editor:
        for index in indexes:
            editor.remove_index(RunFact, index)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # its 62 checks of foreign keys a run take longer than all else
            cursor.execute("SET session_replication_role = replica")
        cursor.execute(_FACTS)
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("UPDATE jobs_runline SET stale = 0, text = (SELECT name FROM jobs_run WHERE id = run_id)")
        with connection.schema_editor() as editor:
            for index in indexes:
                editor.add_index(RunFact, index)
        if connection.vendor == "postgresql":  # which its autovacuum does by itself within minutes
            cursor.execute("VACUUM ANALYZE")
    assert RunLine.objects.filter(project=project).count() == num_runs


FIELDS = ("name", "state", "algorithm", "model", "data", "trainer", "author", "created", "started", "duration", "step")
_FACTS = """
    INSERT INTO jobs_runfact (line_id, key_id, number, text)
    SELECT l.id, k.id,
        CASE WHEN k.kind IN ('knob', 'metric') THEN ((l.id * (7919 + 2 * k.id)) % 100003) / 100003.0
             WHEN k.kind = 'tag' THEN 1
             WHEN k.name IN ('created', 'started', 'duration', 'step') THEN l.id END,
        CASE WHEN k.kind <> 'field' OR k.name IN ('created', 'started', 'duration', 'step') THEN NULL
             WHEN k.name = 'name' THEN 'run ' || l.id
             WHEN k.name = 'state' THEN l.state ELSE 'the same' END
    FROM jobs_runline l CROSS JOIN jobs_runkey k
    WHERE k.kind <> 'tag' OR l.id % 2 = 0
    ORDER BY l.id, k.id"""


def _run(project: Any, i: int) -> Any:
    """Return run number `i`, unsaved; its row holds what a page of it shows."""
    from datetime import UTC, datetime, timedelta

    from jobs.models import Run

    began = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=i)
    values = {name: (i * (7919 + k) % 100003) / 100003 for k, name in enumerate((*knob_names(), *metric_names()))}
    spec: dict[str, Any] = {"algorithm": "grpo", "model": {"id": "some/model"}, "data": {"id": "some/data"}}
    return Run(
        id=f"r-{i:08}",
        project=project,
        name=f"run {i}" + " needle" * (i == 777),
        spec=spec | {"knobs": {name: {"value": values[name], "origin": "you"} for name in knob_names()}},
        state="failed" if i % 10 == 0 else "finished",
        step=100,
        num_steps=100,
        latest_values={name: values[name] for name in metric_names()},
        tags=["baseline"] if i % 2 == 0 else [],
        created_at=began,
        started_at=began,
        ended_at=began + timedelta(seconds=i),
    )


if __name__ == "__main__":
    main()
