"""What diagnosis says of a run, by page and API, from what a run told; and the clone that turns a knob."""

import html
import re
import sqlite3
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from jobs.catalog.spec.parse import parse_spec
from jobs.diagnosis.rules import changed, evidence_of
from jobs.ingest.store import AttemptCache, store
from jobs.models import Layer, Project, Run, Trace
from jobs.telemetry.attempt_spec import latest_spec_json
from jobs.traces.imports import store_path
from profiling import events as make
from profiling.diagnosis.finding import KnobChange, rules
from profiling.trace.importing import import_trace
from tests.batches import delivery
from tests.profiling.diagnosis.diagnosis_runs import BEGIN, SECOND
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db
STEPS = 8
NSYS = Path(__file__).parents[2] / "data" / "traces" / "nsys_h100_2gpu_1s.sqlite"


@pytest.fixture
def project() -> Project:
    return make_project()


@pytest.fixture
def editor(project: Project, client: Client) -> Client:
    client.force_login(make_user(project=project))
    return client


def told(project: Project, *, sync: float, **spec: object) -> Run:
    """Return a running run whose steps took 1 s of rollout, 1 s of update and `sync` s of weight sync."""
    run = make_run(project, state="running", spec=dict(spec))
    events = []
    at = BEGIN
    for step in range(1, STEPS + 1):
        began = at
        for phase, seconds in (("rollout", 1.0), ("update", 1.0), ("weight_sync", sync)):
            duration = int(seconds * SECOND)
            events.append(make.span(phase, start=at, duration=duration, attempt=1, step=step, role="driver"))
            at += duration
        values = {"time/step_seconds": (at - began) / SECOND, "response/truncated_fraction": 0.01}
        events.append(make.metric(values, attempt=1, step=step, t=at))
        held = {"memory_used_bytes": 50.0, "memory_total_bytes": 100.0}
        events.append(make.system(held, attempt=1, role="runner", t=at))
    store([delivery(run.pk, 1, events)], memory=AttemptCache(), now=NOW)
    return run


def findings(client: Client, run: Run) -> dict[str, dict[str, object]]:
    answer = client.get(f"/api/runs/{run.pk}/diagnosis")
    assert answer.status_code == 200
    return {one["rule"]: one for one in answer.json()["findings"]}


def test_the_api_says_what_fires_what_is_clear_and_what_is_not_known(editor: Client, project: Project) -> None:
    run = told(project, sync=2.0)

    found = findings(editor, run)

    assert set(found) == set(rules(live=True))
    sync = found["weight_sync_slow"]
    assert (sync["state"], sync["level"], sync["value"]) == ("fires", "bad", 0.5)
    step = 4 * SECOND
    assert (sync["begin"], sync["end"]) == (BEGIN + step, BEGIN + STEPS * step)  # the first step is left out
    assert found["rollout_dominates"]["state"] == "clear"
    assert (found["node_memory"]["state"], found["node_memory"]["value"]) == ("clear", 0.5)
    assert found["answers_cut"]["state"] == "clear"
    assert found["kv_cache_full"]["state"] == "not_enough_data"
    assert found["kv_cache_full"]["value"] is None


def test_the_page_shows_the_window_and_what_to_turn(editor: Client, project: Project) -> None:
    run = told(project, sync=2.0)

    text = editor.get(reverse("run-diagnosis", args=[run.pk])).content.decode()

    (row,) = re.findall(
        r'<li class="finding" data-finding="weight_sync_slow".*?</li>\s*(?=<li class="finding"|</ul></sec)', text, re.S
    )
    assert "Weight sync takes 50 % of each step" in html.unescape(row)
    begin, end = BEGIN + 4 * SECOND, BEGIN + STEPS * 4 * SECOND
    assert f"{reverse('run', args=[run.pk, 'timeline'])}?from={begin}&amp;to={end}" in row
    assert "async.updates_per_sync" not in row  # which the built-in trainer does not have
    assert text.index('data-state="fires"') < text.index('data-state="clear"') < text.index('data-state="not_enough')


@pytest.mark.parametrize(
    ("spec", "named", "text"),
    [
        ({}, (), "No setting of the built-in trainer for this algorithm changes it."),
        (
            {"trainer": {"name": "verl"}},
            ("rollout.sync_bucket_mib", "async.updates_per_sync"),
            "It has no effect with the run's other settings.",
        ),
    ],
)
def test_a_finding_names_only_knobs_of_the_run_and_each_is_a_click_or_says_why_not(
    editor: Client, project: Project, spec: dict[str, object], named: tuple[str, ...], text: str
) -> None:
    run = told(project, sync=2.0, **spec)

    page = html.unescape(editor.get(reverse("run-diagnosis", args=[run.pk])).content.decode())
    turns = findings(editor, run)["weight_sync_slow"]["turns"]

    assert text in page
    assert set(named) <= {turn["knob"] for turn in turns}  # type: ignore[attr-defined]
    assert bool(turns) == bool(named)


def test_it_is_told_again_only_when_a_state_changes(editor: Client, project: Project) -> None:
    run = told(project, sync=0.01)
    address = reverse("run-diagnosis", args=[run.pk])
    first = editor.get(address).content.decode()
    (seen,) = re.findall(r"\?seen=([0-9a-f]+)", first)

    assert editor.get(address, {"seen": seen}).status_code == 204
    assert editor.get(address, {"seen": "other"}).status_code == 200


def test_a_run_that_told_nothing_is_not_called_healthy(editor: Client, project: Project) -> None:
    run = make_run(project)
    assert {one["state"] for one in findings(editor, run).values()} == {"not_enough_data"}


def test_readings_over_time_get_the_step_they_lie_in(project: Project) -> None:
    run = told(project, sync=1.0)
    (used,) = evidence_of(run).all_readings("memory_used_bytes")
    # each is written when a step is over, which is the moment at which the next begins
    assert used.step.tolist() == [2, 3, 4, 5, 6, 7, 8, 8]


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (KnobChange("train.micro_batch_size", "raise"), 8),
        (KnobChange("train.micro_batch_size", "lower"), 2),
        (KnobChange("rollout.enable_prefix_caching", "on"), None),  # it is on
        (KnobChange("rollout.enable_prefix_caching", "off"), False),
        (KnobChange("memory.zero_stage", "choose"), None),
        (KnobChange("async.mode", "choose"), None),  # the run has no such knob
    ],
)
def test_a_knob_is_turned_within_what_it_takes(project: Project, change: KnobChange, value: object) -> None:
    run = make_run(project, spec={"knobs": {"train.micro_batch_size": 4}})
    assert changed(change, parse_spec(latest_spec_json(run))) == value


@pytest.fixture
def uploaded(project: Project, tmp_path: Path) -> Trace:
    """A trace that somebody uploaded, imported from a real export of nsys: two H100s, no run."""
    trace = Trace.objects.create(project=project, name="elsewhere")
    layer = Layer.objects.create(trace=trace, file_name=NSYS.name, state="ready", kind="nsys")
    target = store_path(layer)
    target.parent.mkdir(parents=True, exist_ok=True)
    import_trace(NSYS, target)
    return trace


def busy_share_by_sql() -> float:
    """Return the least share of time in which a device is busy, from the tables of nsys by a plain sweep."""
    shares = []
    with sqlite3.connect(f"file:{NSYS}?mode=ro", uri=True) as source:
        for (device,) in source.execute("SELECT DISTINCT deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall():
            tables = ("KERNEL", "MEMCPY", "MEMSET")
            wanted = " UNION ALL ".join(
                f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{table} WHERE deviceId = {device}" for table in tables
            )
            rows = source.execute(f"SELECT * FROM ({wanted}) ORDER BY start").fetchall()
            busy, reached = 0, rows[0][0]
            for start, end in rows:
                busy += max(0, end - max(start, reached))
                reached = max(reached, end)
            shares.append(busy / (reached - rows[0][0]))
    return min(shares)


def test_an_upload_is_diagnosed_by_what_it_holds(editor: Client, uploaded: Trace) -> None:
    found = {one["rule"]: one for one in editor.get(f"/api/traces/{uploaded.pk}/diagnosis").json()["findings"]}

    assert set(found) == set(rules())
    assert found["rollout_dominates"]["state"] == "not_enough_data"
    assert found["device_idle"]["value"] == pytest.approx(busy_share_by_sql(), abs=0.01)  # of a slightly longer window
    # its products run as ffma kernels (float32), its time goes into copies from pinned memory, and no collective ran
    assert (found["tensor_cores_unused"]["state"], found["tensor_cores_unused"]["value"]) == ("fires", 0.0)
    assert found["copies"]["state"] == "fires"
    assert found["communication_exposed"]["state"] == "not_enough_data"

    page = editor.get(reverse("trace-diagnosis", args=[uploaded.pk])).content.decode()
    assert 'data-finding="device_idle"' in page
    assert "Try in a clone" not in page  # there is no run to clone
