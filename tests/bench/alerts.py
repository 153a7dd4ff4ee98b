"""What a pass over all alert rules takes: `python -m pytest tests/bench/alerts.py -s`, 50 live runs of 5,000 series.

Every run reports a step between two passes; a rule on a metric looks at each. The bound is a second a pass.
"""

import statistics
import time
from datetime import UTC, datetime, timedelta

import pytest

from jobs.alerts.evaluation import Evaluator
from jobs.alerts.rules import make_rule
from jobs.ingest.store import AttemptCache, store
from jobs.models import Attempt
from tests.batches import delivery, metric
from tests.rows import NOW, make_project, make_run, make_user

NUM_RUNS, NUM_SERIES, NUM_PASSES = 50, 5000, 4


@pytest.mark.django_db
def test_a_pass_stays_below_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.alerts.worker_beat.ask", lambda: None)
    project, user = make_project(), make_user()
    runs = [make_run(project, state="running") for _ in range(NUM_RUNS)]
    Attempt.objects.update(last_contact_at=NOW + timedelta(days=1))
    for n in range(5):
        params = {"metric": f"layer/{n}", "direction": "above", "value": 0.5, "steps": 3}
        make_rule(project=project, kind="threshold", fields={"params": params}, actor=user)
        absence = {"metric": f"layer/{n}", "minutes": 10}
        make_rule(project=project, kind="absence", fields={"params": absence}, actor=user)
    values = {f"layer/{n}": 0.1 + n for n in range(NUM_SERIES)}
    caches = {run.pk: AttemptCache() for run in runs}
    evaluator, took, used = Evaluator(), [], []
    for step in range(1, NUM_PASSES + 1):
        for run in runs:
            batch = delivery(run.pk, step, [metric(step, **values)])
            store([batch], memory=caches[run.pk], now=datetime.now(UTC))
        began, before = time.perf_counter(), time.process_time()
        evaluator.step(NOW + timedelta(seconds=2 * step))
        took.append(time.perf_counter() - began)
        used.append(time.process_time() - before)

    print(f"wall clock {[round(s, 3) for s in took]} s, CPU {[round(s, 3) for s in used]} s")
    assert statistics.median(used[1:]) < 1.0
