"""The charts of the overview as the catalogue has them: what they name exists, every run has some of each topic."""

import pytest

from jobs.catalog.algorithm import expand
from jobs.catalog.knob import knobs
from jobs.catalog.metric import metrics
from jobs.catalog.overview import KNOB, MOST, TOPICS, charts_of, overview_charts
from jobs.catalog.role import ROLES
from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.trainer import trainers

# A command of one's own reports what it likes: it is of no family.
RUNS = [(name, algorithm) for name, info in trainers().items() if info.families for algorithm in info.algorithms]


def test_what_a_chart_names_exists() -> None:
    keys = {chart.key for chart in overview_charts()}
    for chart in overview_charts():
        assert expand(chart.of), chart.key
        assert {line.metric for line in chart.lines} <= set(metrics()), chart.key
        named = [chart.limit_knob, chart.with_knob, chart.without_knob, *KNOB.findall(chart.hint)]
        assert {knob for knob in named if knob} <= set(knobs()), chart.key
        assert chart.needs in {"", *ROLES}, chart.key
        assert chart.unless in {"", *keys}, chart.key
        assert chart.trainer in ("", "native", "other"), chart.key


@pytest.mark.parametrize(("trainer", "algorithm"), RUNS)
def test_every_run_has_charts_in_the_order_of_topics(trainer: str, algorithm: str) -> None:
    spec = parse_spec({"trainer": {"name": trainer}, "algorithm": algorithm})

    charts = charts_of(spec)

    topics = [chart.topic for chart in charts]
    assert topics == sorted(topics, key=list(TOPICS).index)
    assert set(topics) >= {"learn", "stability", "speed"} | ({"rollout"} if algorithm in expand(["rl"]) else set())
    assert 5 <= len(charts) <= MOST
    shown = [line.metric for chart in charts for line in chart.lines]
    # TRL counts no labels that are right, so of its KTO the loss has to do.
    learnt = {"pairs/accuracy", "labels/accuracy", "loss/labels", "loss/sft", "reward/mean", "teacher/gap"}
    assert learnt & set(shown), "what the algorithm is judged by"


def test_other_trainers_have_the_lines_that_they_report_alone() -> None:
    charts = {chart.key: chart for chart in charts_of(parse_spec({"trainer": {"name": "verl"}, "algorithm": "grpo"}))}

    assert [line.metric for line in charts["reward"].lines] == ["reward/mean", "eval/reward"]
    assert [line.metric for line in charts["length"].lines] == ["response/length_mean"]
    assert "time/rollout_seconds" in [line.metric for line in charts["reported_phases"].lines]
    assert "time/export_seconds" not in [line.metric for line in charts["reported_phases"].lines]
