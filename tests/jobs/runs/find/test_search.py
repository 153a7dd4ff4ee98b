"""Lists of runs in the database: what a plain loop over all runs finds is found, and rows follow their runs."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.models import Project, Run, RunFact, RunKey, RunLine
from jobs.runs.filter import RunFilter
from jobs.runs.find import index, search, triggers
from jobs.runs.find.index import catch_up, catch_up_all
from jobs.runs.find.terms import AllOf, AnyOf, HasTag, HasText, HasWord, IsCompared, NotSo, Term, all_of
from tests.rows import make_project

pytestmark = pytest.mark.django_db

RATE, SCHEDULE, REWARD = "optimizer.learning_rate", "optimizer.schedule", "reward/mean"
RATES: list[Any] = [1e-5, 1e-4, 1e-4 * (1 + 1e-12), 0.5, None]
SCHEDULES: list[Any] = ["cosine", "Linear", True, 3, None]
REWARDS: list[Any] = [0.25, -1.0, "NaN", 7, None]
TAGS = ["a", "A", "long-tag"]
STATES = ["running", "failed", "finished"]


def make_runs(project: Project, n: int = 30) -> list[Run]:
    """Return runs whose values repeat in cycles of different lengths, so that any two of them meet."""
    began = timezone.now()
    rows = []
    for i in range(n):
        knobs = {RATE: RATES[i % 5], SCHEDULE: SCHEDULES[i % 3 + i % 2]}
        rewards = {REWARD: REWARDS[(i * 3 + i // 5) % 5]}
        rows.append(
            Run(
                id=f"r-{project.pk}-{i:03}",
                project=project,
                name=f"Run {'xyz'[i % 3]}{i % 7}",
                note="what a 100% note_" if i % 4 == 0 else "",
                tags=[tag for k, tag in enumerate(TAGS) if (i >> k) & 1],
                spec={"algorithm": ["grpo", "sft"][i % 2], "knobs": {k: {"value": v} for k, v in knobs.items()}},
                latest_values={k: v for k, v in rewards.items() if v is not None},
                step=i % 6,
                state=STATES[i % 3],
                created_at=began + timedelta(seconds=i),
                archived_at=began if i % 11 == 0 else None,
                trashed_at=began if i % 13 == 5 else None,
            )
        )
    Run.objects.bulk_create(rows)
    catch_up_all()
    return rows


def value_of(run: Run, kind: str, name: str) -> Any:
    """Return what the run has under a key, as people see it: a number, a text in lower case, or None."""
    if kind == "tag":
        value: Any = 1 if name in run.tags else None
    elif kind == "field":
        value = {"name": run.name, "step": run.step, "state": run.state, "algorithm": run.spec["algorithm"]}[name]
    elif kind == "knob":
        value = run.spec["knobs"].get(name, {}).get("value")
    else:
        value = run.latest_values.get(name)
        return None if isinstance(value, str) else value
    if isinstance(value, (bool, str)):
        return str(value).lower()
    return value


def holds(term: Term, run: Run) -> bool:
    """Ask one run by itself."""
    match term:
        case AllOf(parts):
            return all(holds(part, run) for part in parts)
        case AnyOf(parts):
            return any(holds(part, run) for part in parts)
        case NotSo(part):
            return not holds(part, run)
        case HasWord(text):
            return text in "\n".join([run.pk, run.name, *run.tags, run.note]).lower()
        case HasTag(tag):
            return tag in run.tags
        case HasText(field, values, is_part):
            held = value_of(run, "field", field)
            return any(value in held if is_part else value == held for value in values)
        case IsCompared(kind, name, symbol, value):
            held = value_of(run, kind, name)
            if held is None or isinstance(held, str) is not isinstance(value, str):
                return False
            if symbol in ("=", "!="):
                same = held == value if isinstance(value, str) else math.isclose(held, value, rel_tol=1e-9)
                return same is (symbol == "=")
            return bool({">": held > value, ">=": held >= value, "<": held < value, "<=": held <= value}[symbol])


def in_order(runs: Sequence[Run], kind: str, name: str, is_down: bool) -> list[str]:
    """Return ids by value: numbers before texts (after them downwards); without a value last, the newest first."""
    places = {run.pk: place for place, run in enumerate(runs)}
    values = {run.pk: value_of(run, kind, name) for run in runs}
    having = [run.pk for run in runs if values[run.pk] is not None]

    def key(pk: str) -> tuple[bool, Any, int]:
        return isinstance(values[pk], str), values[pk], places[pk]

    without = [run.pk for run in reversed(runs) if values[run.pk] is None]
    return sorted(having, key=key, reverse=is_down) + without


numbers = st.sampled_from([1e-5, 1e-4, 0.25, 0.3, 3.0, 7.0, -1.0, 0.0])
compared = st.builds(
    IsCompared,
    st.just("knob"),
    st.sampled_from([RATE, SCHEDULE, "nobody.has"]),
    st.sampled_from([">", "<", ">=", "<=", "=", "!="]),
    numbers,
) | st.one_of(
    st.builds(IsCompared, st.just("metric"), st.just(REWARD), st.sampled_from([">", "<=", "=", "!="]), numbers),
    st.builds(IsCompared, st.just("field"), st.just("step"), st.sampled_from([">", "<=", "="]), st.integers(0, 6)),
    st.builds(
        IsCompared,
        st.just("knob"),
        st.just(SCHEDULE),
        st.sampled_from(["=", "!="]),
        st.sampled_from(["linear", "true"]),
    ),
)
simple = st.one_of(
    compared,
    st.builds(HasWord, st.sampled_from(["run", "x", "y3", "%", "note_", "_", "long-tag", "zz"])),
    st.builds(HasTag, st.sampled_from([*TAGS, "none"])),
    st.builds(HasText, st.just("state"), st.sets(st.sampled_from(STATES), min_size=1).map(lambda s: tuple(sorted(s)))),
    st.builds(HasText, st.just("algorithm"), st.sampled_from([("grpo",), ("sft", "ppo"), ("gr",)])),
    st.builds(HasText, st.just("name"), st.sampled_from([("run x",), ("3", "z")]), st.just(True)),
)
terms = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(NotSo, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: all_of(*parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: AnyOf(tuple(parts))),
    ),
    max_leaves=5,
)
SORTS = {
    "name": ("field", "name"),
    "step": ("field", "step"),
    RATE: ("knob", RATE),
    SCHEDULE: ("knob", SCHEDULE),
    REWARD: ("metric", REWARD),
    "tag:a": ("tag", "a"),
    "nobody/has": ("metric", "nobody/has"),
}


@pytest.mark.parametrize("few", [search.FEW, -1], ids=["fetched", "walked"])
def test_the_database_finds_what_a_loop_over_all_runs_finds(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEW", few)
    project = make_project()
    runs = make_runs(project)
    make_runs(make_project(), 6)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(term=terms, sort=st.sampled_from(sorted(SORTS)), is_down=st.booleans(), is_archived=st.booleans())
    def check(term: Term, sort: str, is_down: bool, is_archived: bool) -> None:
        shelf = [run for run in runs if run.trashed_at is None and (run.archived_at is not None) is is_archived]
        expected = in_order([run for run in shelf if holds(term, run)], *SORTS[sort], is_down)
        asked = search.search(project, RunFilter(term=term, is_archived=is_archived), f"{'-' * is_down}{sort}")

        assert search.run_ids(asked.lines(most=None)) == expected
        assert search.run_ids(asked.lines(most=3)) == expected[:3]

    check()


def test_a_question_takes_a_few_statements_however_many_runs_there_are(django_assert_max_num_queries: Any) -> None:
    project = make_project()
    make_runs(project, 60)
    parts = (IsCompared("knob", RATE, ">", 0.0), HasTag("a"), HasWord("run"), NotSo(HasText("state", ("failed",))))

    with django_assert_max_num_queries(6):  # keys, a look at each part, the runs, their values
        search.search(project, RunFilter(term=all_of(*parts)), REWARD).lines(most=50)


def test_rows_follow_whoever_writes_a_run() -> None:
    project = make_project()
    run = make_runs(project, 2)[1]

    def line() -> RunLine:
        return RunLine.objects.get(run=run)

    Run.objects.filter(pk=run.pk).update(state="stopped", tags=["fresh"], name="Other")
    assert (line().state, line().stale) == ("stopped", 2)
    catch_up(project=project)
    assert "fresh" in line().text
    assert RunFact.objects.filter(line=line(), key__kind="tag").get().key.name == "fresh"
    Run.objects.filter(pk=run.pk).update(archived_at=timezone.now())
    assert line().shelf == 1
    Run.objects.filter(pk=run.pk).update(trashed_at=timezone.now())
    assert line().shelf == 2
    run.delete()
    assert not RunFact.objects.filter(line__run_id=run.pk).exists()


def test_what_goes_on_is_written_again_after_a_while_and_touches_only_what_changed() -> None:
    project = make_project()
    run = make_runs(project, 1)[0]
    at = timezone.now()
    Run.objects.filter(pk=run.pk).update(latest_values={REWARD: 5.0, "loss/policy": 1.0}, step=9)

    assert catch_up(project=project, now=at) == 0
    assert catch_up(project=project, now=at + index.SETTLE + timedelta(seconds=1)) == 1
    facts = RunFact.objects.filter(line__run=run, key__kind="metric").values_list("key__name", "number")
    assert dict(facts) == {REWARD: 5.0, "loss/policy": 1.0}
    assert catch_up(project=project, now=at + 3 * index.SETTLE) == 0


def test_a_migrate_puts_back_triggers_and_rows_that_are_missing() -> None:
    project = make_project()
    run = make_runs(project, 1)[0]
    RunLine.objects.all().delete()
    on = " ON jobs_run" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER run_line_went_on{on}")

    assert triggers.keep(connection) == 1
    assert triggers.keep(connection) == 0
    catch_up_all()
    Run.objects.filter(pk=run.pk).update(step=50)
    assert RunLine.objects.get(run=run).stale == 1
    assert RunKey.objects.filter(project=project, kind="knob", name=RATE).count() == 1
