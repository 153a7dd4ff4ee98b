"""What each condition sees: metrics as they are reported, findings, and the console and its cluster."""

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.alerts import words
from jobs.alerts.conditions import findings, system
from jobs.alerts.conditions.metrics import SeriesPoint, judge
from jobs.alerts.conditions.system import hours_left
from jobs.alerts.kinds import KINDS, PRESETS, AlertRefused
from jobs.alerts.rules import change_rule, delete_rule, make_rule
from jobs.cluster.ray_api import ClusterState, Node
from jobs.ingest.store import AttemptCache, store
from jobs.models import AlertIncident, AlertRule, Attempt, AuditEvent, Run
from jobs.telemetry.streams import IngestStatus
from tests.batches import delivery, metric
from tests.jobs.alerts.watchman import Watchman
from tests.rows import NOW, make_project, make_run, make_user

pytestmark = pytest.mark.django_db


class Reporting:
    """A run that reports, and the rules that look at it."""

    def __init__(self, watchman: Watchman) -> None:
        self.watchman = watchman
        self.run = make_run(state="running", spec={})
        Attempt.objects.update(last_contact_at=NOW + timedelta(days=1))
        self.batch = 0

    def rule(self, kind: str, **params: Any) -> AlertRule:
        return make_rule(project=self.run.project, kind=kind, fields={"params": params}, actor=make_user())

    def report(self, *steps: int, **values: Any) -> None:
        self.batch += 1
        events = [metric(step, **{name.replace("__", "/"): v for name, v in values.items()}) for step in steps]
        now = datetime.now(UTC)
        store([delivery(self.run.pk, self.batch, events)], memory=AttemptCache(), now=self.watchman.now or now)
        Attempt.objects.update(last_contact_at=NOW + timedelta(days=1))

    def look(self, seconds: float = 2) -> list[str]:
        """Return the states of all incidents after a pass."""
        return [incident.state for incident in self.watchman.step(seconds)]


@pytest.fixture
def reporting(watchman: Watchman) -> Reporting:
    return Reporting(watchman)


def test_a_threshold_opens_after_so_many_steps_and_closes_after_as_many(reporting: Reporting) -> None:
    reporting.rule("threshold", metric="kl/mean", direction="above", value=0.5, steps=3)
    reporting.report(1, kl__mean=0.1)
    assert reporting.look() == []
    reporting.report(2, 3, kl__mean=0.9)
    assert reporting.look() == [], "two of three"
    reporting.report(4, kl__mean=0.75)
    assert reporting.look() == ["open"]
    incident = AlertIncident.objects.get(rule__kind="threshold")
    assert words.sentence(incident) == "It is 0.75, above 0.5, for 3 reports (step 4)."

    reporting.report(5, 6, kl__mean=0.1)
    assert reporting.look() == ["open"], "it dances around"
    reporting.report(7, kl__mean=0.1)
    assert reporting.look() == ["resolved"]


def test_a_restart_neither_closes_nor_doubles_a_threshold(reporting: Reporting) -> None:
    reporting.rule("threshold", metric="kl/mean", direction="above", value=0.5, steps=3)
    reporting.report(1, 2, 3, kl__mean=0.9)
    assert reporting.look() == ["open"]

    reporting.watchman.restart()
    assert reporting.look() == ["open"]
    reporting.report(4, kl__mean=0.9)
    assert reporting.look() == ["open"]


@pytest.mark.parametrize(
    ("direction", "values", "is_on"),
    [
        ("above", [2, 2, 2], True),
        ("above", [2, 2, 0], None),
        ("above", [0, 0, 0], False),
        ("above", [2, 2], None),
        ("above", [0, 0], False),
        ("above", [], None),
        ("below", [0, 0, 0], True),
        ("not_finite", [float("nan")] * 3, True),
        ("above", [float("nan")] * 3, False),
    ],
)
def test_a_threshold_is_judged_by_its_newest_points(direction: str, values: list[float], is_on: bool | None) -> None:
    points = [SeriesPoint(i, i, y, y) if y == y else SeriesPoint(i, i, 9e9, -9e9, False) for i, y in enumerate(values)]

    assert judge(points, {"direction": direction, "value": 1, "steps": 3, "minutes": 0})[0] is is_on


def test_a_threshold_by_minutes_wants_all_of_them() -> None:
    params = {"direction": "above", "value": 1, "steps": 1, "minutes": 5}
    points = [SeriesPoint(i, int((1 + i) * 60e9), 2, 2) for i in range(6)]

    assert judge(points[:5], params)[0] is None, "four minutes"
    assert judge(points, params)[0] is True
    points[3].high = 0
    assert judge(points, params)[0] is None


def test_a_metric_that_is_no_longer_reported_is_missed_and_found_again(reporting: Reporting) -> None:
    reporting.rule("absence", metric="reward/mean", minutes=10)
    reporting.look()
    reporting.report(1, reward__mean=1.0, kl__mean=0.1)
    assert reporting.look() == []
    reporting.report(2, kl__mean=0.1)
    assert reporting.look(590) == []
    assert reporting.look(20) == ["open"]

    reporting.watchman.restart()
    assert reporting.look(2) == ["open"], "not known by now"
    reporting.report(3, reward__mean=1.0)
    assert reporting.look(2) == ["resolved"]


def test_what_was_never_reported_is_missed_too_but_not_of_a_run_that_lost_contact(reporting: Reporting) -> None:
    reporting.rule("absence", metric="never/reported", minutes=10)
    reporting.look()
    Attempt.objects.update(last_contact_at=NOW)
    AlertRule.objects.filter(kind="lost_contact").update(is_enabled=False)
    assert reporting.look(700) == []

    Attempt.objects.update(last_contact_at=NOW + timedelta(days=1))
    assert reporting.look(2) == ["open"]
    Run.objects.update(state="finished")
    Attempt.objects.update(state="finished", ended_at=reporting.watchman.now)
    assert reporting.look(2) == ["resolved"], "the run is over"


def test_frames_are_read_once_and_in_order(reporting: Reporting, monkeypatch: pytest.MonkeyPatch) -> None:
    reporting.rule("threshold", metric="kl/mean", direction="above", value=0.5, steps=2)
    decoded: list[int] = []
    from jobs.alerts.conditions import metrics as module

    real = module.decode_frame
    monkeypatch.setattr(module, "decode_frame", lambda text: decoded.append(1) or real(text))
    reporting.look()
    for step in range(1, 6):
        reporting.report(step, kl__mean=0.9, other=1.0)
        reporting.report(step, other=2.0)
    reporting.look()
    reporting.look()

    assert len(decoded) == 5, "those that hold the metric"
    assert reporting.look() == ["open"]


def test_a_symptom_of_a_log_opens_an_incident_of_its_own(reporting: Reporting, monkeypatch: pytest.MonkeyPatch) -> None:
    reporting.rule("symptom")
    shown = [{"learning.truncated": ("Responses are cut", "98 % of them")}]
    monkeypatch.setitem(findings._LOOKS, "symptom", lambda _run, _now: shown[0])

    assert reporting.look() == ["open"]
    incident = AlertIncident.objects.get(rule__kind="symptom")
    assert incident.object_id == f"{reporting.run.pk}/learning.truncated"
    assert words.title(incident) == f"{reporting.run.name}: Responses are cut"

    shown[0] = {}
    reporting.report(1, kl__mean=0.1)
    assert reporting.look(61) == ["open"]
    assert reporting.look(151) == ["resolved"]


def test_real_symptoms_and_rules_are_looked_for_one_run_a_pass(
    reporting: Reporting, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(reporting.run.project, state="running")
    for kind in ("symptom", "diagnosis"):
        reporting.rule(kind)
    AlertRule.objects.filter(kind="lost_contact").update(is_enabled=False)

    assert reporting.look() == []
    assert reporting.look() == []
    assert caplog.text == ""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return the nodes that Ray has: address -> GPUs; `problem` says that it does not answer."""
    told = SimpleNamespace(nodes={"10.0.0.1": 8.0, "10.0.0.2": 8.0}, problem="")

    def state() -> ClusterState:
        nodes = tuple(
            Node(id=a, address=a, is_head=False, cpus=8, gpus=g, memory_bytes=1, accelerator="H100")
            for a, g in told.nodes.items()
        )
        return ClusterState(
            is_reachable=not told.problem,
            problem=told.problem,
            away_since=None,
            nodes=() if told.problem else nodes,
            cpus_total=8,
            gpus_total=8,
        )

    monkeypatch.setattr(system, "cluster_state", state)
    return told


def of_console(*, kind: str) -> list[tuple[str, str, str]]:
    rows = AlertIncident.objects.filter(rule__kind=kind).order_by("pk")
    return [(row.object_id, row.state, words.title(row)) for row in rows]


def test_a_node_that_goes_or_loses_a_gpu_is_told_also_after_a_restart(
    watchman: Watchman, cluster: SimpleNamespace
) -> None:
    watchman.step()
    cluster.nodes = {"10.0.0.1": 7.0}
    watchman.step()
    assert of_console(kind="nodes") == []
    watchman.step(61)
    gone = [
        ("10.0.0.1", "open", "Node 10.0.0.1 has lost GPUs"),
        ("10.0.0.2", "open", "Node 10.0.0.2 is gone"),
    ]
    assert of_console(kind="nodes") == gone

    watchman.restart()
    for seconds in (2, 61, 61):
        watchman.step(seconds)
    assert of_console(kind="nodes") == gone
    cluster.nodes = {"10.0.0.1": 8.0, "10.0.0.2": 8.0}
    for seconds in (2, 61):
        watchman.step(seconds)
    assert [state for _id, state, _title in of_console(kind="nodes")] == ["resolved", "resolved"]


def test_ray_that_is_away_is_one_alert_and_says_nothing_of_nodes(watchman: Watchman, cluster: SimpleNamespace) -> None:
    watchman.step()
    cluster.problem = "connection refused"
    for seconds in (2, 100, 100):
        watchman.step(seconds)

    assert of_console(kind="ray") == [("ray", "open", "Ray does not answer")]
    assert of_console(kind="nodes") == []


def test_a_disk_with_little_room_is_told_with_what_is_left(
    watchman: Watchman, cluster: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=100 << 30, free=4 << 30, used=96 << 30)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    watchman.step()
    incident = AlertIncident.objects.get(rule__kind="disk")
    assert words.sentence(incident) == "4.0 GiB of 100.0 GiB are free."

    usage.free = 50 << 30
    watchman.step(5)
    watchman.step(61)
    incident.refresh_from_db()
    assert incident.state == "resolved"


def test_the_pace_of_a_disk_says_when_it_is_full() -> None:
    falling = [(NOW + timedelta(minutes=m), (100 - m) << 30) for m in range(0, 61, 5)]

    assert hours_left(falling) == pytest.approx(40 / 60)
    assert hours_left(falling[:3]) is None, "ten minutes say nothing"
    assert hours_left([(at, 7) for at, _free in falling]) is None


def test_a_long_queue_is_told_once(watchman: Watchman, cluster: SimpleNamespace) -> None:
    project = make_project()
    for _ in range(3):
        make_run(project)
    watchman.step()
    rule = AlertRule.objects.get(preset="queue_long")
    change_rule(rule, fields={"params": {"length": 3}, "is_enabled": True}, actor=make_user())
    watchman.step()

    assert of_console(kind="queue") == [("queue", "open", "The queue is long")]


@pytest.mark.parametrize(
    ("trouble", "late", "worker", "objects"),
    [("", 0, 0, []), ("disk full", 0, 0, ["ingest"]), ("", 60, 0, ["ingest"]), ("", 0, 100, ["worker"])],
)
def test_processes_of_the_console_that_are_away_are_told(
    watchman: Watchman,
    cluster: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    late: float,
    worker: float,
    objects: list[str],
) -> None:
    class Redis:
        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

    def status(_redis: object) -> IngestStatus:
        return IngestStatus(seen_at=time.time() - late, trouble=trouble, num_waiting=0)

    monkeypatch.setattr(system, "client", Redis)
    monkeypatch.setattr(system, "ingest_status", status)
    monkeypatch.setattr("jobs.alerts.worker_beat.seen_at", lambda _redis: time.time() - worker)

    for seconds in (2, 61, 61):
        watchman.step(seconds)

    assert [object_id for object_id, _state, _title in of_console(kind="console")] == objects


def test_a_group_of_conditions_that_fails_stops_no_other(watchman: Watchman, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> ClusterState:
        raise RuntimeError("broken")

    monkeypatch.setattr(system, "cluster_state", broken)
    make_run(state="running")
    watchman.step()

    assert [i.state for i in watchman.step(90)] == ["open"]


def test_every_preset_is_a_rule_that_its_kind_takes(watchman: Watchman) -> None:
    make_project()
    watchman.step()
    watchman.step()

    assert sorted(AlertRule.objects.values_list("preset", flat=True)) == sorted(PRESETS)
    on = AlertRule.objects.filter(is_enabled=True, project__isnull=False).values_list("preset", flat=True)
    assert sorted(on) == ["lost_contact", "run_failed"]
    for preset in PRESETS.values():
        assert KINDS[preset.kind].check(preset.params)


@pytest.mark.parametrize(
    ("kind", "fields", "field", "says"),
    [
        ("nonsense", {}, "kind", "Use one of run_state"),
        ("disk", {}, "kind", "no kind of rule here"),
        ("threshold", {"params": {"metric": "a\nb"}}, "params.metric", "such as reward/mean"),
        ("threshold", {"params": {"steps": 1.5}}, "params.steps", "a whole number from 1 to 500"),
        ("threshold", {"params": {"value": "high"}}, "params.value", "a number from"),
        ("threshold", {"params": {"direction": "sideways"}}, "params.direction", "above, below, not_finite"),
        ("threshold", {"params": {"speed": 1}}, "params.speed", "has no parameter speed"),
        ("absence", {"params": {"minutes": 0}}, "params.minutes", "from 1 to 10080"),
        ("run_state", {"params": {"states": ["odd"]}}, "params.states", "some of failed, stopped"),
        ("symptom", {"params": {"symptoms": ["odd"]}}, "params.symptoms", "the Guide lists"),
        ("waiting", {"name": ""}, "name", "1 to 80 characters"),
        ("waiting", {"severity": "loud"}, "severity", "info, warning or critical"),
        ("waiting", {"algorithms": ["magic"]}, "algorithms", "no algorithm"),
        ("waiting", {"channels": [999]}, "channels", "its own project"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_by_field(
    kind: str, fields: dict[str, Any], field: str, says: str
) -> None:
    project = make_project()
    with pytest.raises(AlertRefused, match=says) as refused:
        make_rule(project=project, kind=kind, fields=fields, actor=make_user())

    assert refused.value.field == field


def test_changes_of_rules_are_kept_and_presets_stay(watchman: Watchman) -> None:
    project = make_project()
    watchman.step()
    rule = AlertRule.objects.get(project=project, preset="run_failed")
    user = make_user("ada")

    change_rule(rule, fields={"severity": "info"}, actor=user)
    with pytest.raises(AlertRefused, match="Switch it off"):
        delete_rule(rule, actor=user)

    event = AuditEvent.objects.get(verb="alert_rule.change")
    assert (event.before["severity"], event.after["severity"]) == ("critical", "info")
