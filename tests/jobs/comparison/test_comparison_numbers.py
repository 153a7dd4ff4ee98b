"""Summaries, phases, settings, groups and names of a comparison: each case worked out by hand."""

import math
from typing import Any

import numpy as np
import pytest

from jobs.catalog.spec.parse import parse_spec
from jobs.catalog.spec.runspec import to_json
from jobs.comparison.config import setting_rows
from jobs.comparison.groups import group_runs, swept_knobs
from jobs.comparison.names import line_dashes, short_names
from jobs.comparison.phases import phase_deltas, phase_times
from jobs.comparison.summary import SeriesSummary, Spot, delta, over_group, summary_of
from jobs.models import Run
from jobs.telemetry.chunks import points
from jobs.telemetry.clean_statistics import SeriesFacts
from jobs.telemetry.statistics import newest_at, statistics_of

STEPS = [1, 2, 4, 8]


def summarize(y: list[float], *, better: Any, at: int | None = None) -> SeriesSummary:
    data = points(STEPS, STEPS, y)
    whole = statistics_of(data)
    assert whole is not None
    return summary_of(SeriesFacts(statistics=whole, at=None if at is None else newest_at(data, at)), better=better)


def test_a_summary_holds_the_six_numbers_and_their_steps() -> None:
    found = summarize([0.5, 0.9, 0.2, 0.7], better="higher", at=5)

    assert found.last == Spot(step=8, value=0.7)
    assert found.best == found.high == Spot(step=2, value=0.9)
    assert found.low == Spot(step=4, value=0.2)
    assert found.mean == Spot(step=None, value=pytest.approx(0.575))
    assert found.at == Spot(step=4, value=0.2)  # the newest at or before step 5
    assert not found.has_odd


def test_the_best_loss_is_the_lowest_and_some_metrics_have_none() -> None:
    y = [3.0, 1.0, 1.0, 2.0]

    assert summarize(y, better="lower").best == Spot(step=2, value=1.0)  # the first of equals
    assert summarize(y, better="").best is None


def test_what_is_not_finite_is_last_but_never_best() -> None:
    found = summarize([1.0, math.inf, 2.0, math.nan], better="higher", at=0)

    assert found.last is not None
    assert math.isnan(found.last.value)
    assert found.best == Spot(step=4, value=2.0)
    assert found.at is None
    assert found.has_odd


@pytest.mark.parametrize(
    ("value", "base", "better", "difference", "share", "word"),
    [
        (12.0, 10.0, "lower", 2.0, 0.2, "worse"),
        (12.0, 10.0, "higher", 2.0, 0.2, "better"),
        (8.0, 10.0, "", -2.0, -0.2, "lower"),
        (-1.0, -2.0, "higher", 1.0, 0.5, "better"),
        (1.0, 0.0, "", 1.0, None, "higher"),
        (5.0, 5.0, "lower", 0.0, 0.0, "same"),
    ],
)
def test_a_difference_has_sign_share_and_word(
    value: float, base: float, better: str, difference: float, share: float | None, word: str
) -> None:
    found = delta(value, base, better=better)  # type: ignore[arg-type]  # a word of the three, as pytest gives it

    assert found is not None
    assert (found.difference, found.share, found.word) == (difference, share, word)


def test_nothing_is_said_of_what_is_not_finite() -> None:
    assert delta(math.nan, 1.0, better="higher") is None
    assert delta(1.0, math.inf, better="higher") is None


def test_a_group_is_its_mean_with_its_extremes() -> None:
    spots = [Spot(step=1, value=1.0), None, Spot(step=1, value=4.0), Spot(step=1, value=math.nan)]

    found = over_group(spots)

    assert found is not None
    assert (found.mean, found.low, found.high, found.n) == (2.5, 1.0, 4.0, 2)
    assert over_group([None]) is None


def test_a_step_is_the_medians_of_its_phases_and_a_rest() -> None:
    found = phase_times(
        {
            "time/rollout_seconds": np.array([4.0, 6.0, 5.0]),
            "time/update_seconds": np.array([2.0, math.nan, 3.0]),
            "time/step_seconds": np.array([8.0, 9.0, 8.0]),
        }
    )

    assert dict(found.seconds) == {"rollout": 5.0, "update": 2.5}
    assert (found.total, found.step, found.rest) == (7.5, 8.0, 0.5)
    assert found.spreads == {}  # three steps carry no interval


def test_phases_that_overlap_leave_no_rest() -> None:
    found = phase_times({"time/rollout_seconds": np.array([5.0]), "time/step_seconds": np.array([4.0])})

    assert found.rest == 0.0


def test_phases_differ_against_nothing_where_only_one_run_has_them() -> None:
    one = phase_times({"time/rollout_seconds": np.array([4.0]), "time/reference_seconds": np.array([0.6])})
    base = phase_times({"time/rollout_seconds": np.array([9.0]), "time/update_seconds": np.array([4.0])})

    assert phase_deltas(one, base) == {"rollout": -5.0, "reference": 0.6, "update": -4.0}


def test_only_settings_that_differ_are_different_and_tell_who_chose_them() -> None:
    plain = to_json(parse_spec({"name": "a"}))
    other = to_json(parse_spec({"name": "b", "knobs": {"optimizer.learning_rate": 1e-5}, "data": {"eval_share": 0.2}}))

    rows = {row.id: row for row in setting_rows([plain, other], base=0)}

    different = [name for name, row in rows.items() if row.is_different]
    assert sorted(different) == ["data.eval_share", "optimizer.learning_rate"]  # a name is no setting
    settings = rows["optimizer.learning_rate"].settings
    assert [setting.origin for setting in settings if setting] == ["default", "you"]
    assert rows["data.eval_share"].settings[1] is not None
    assert rows["data.eval_share"].settings[1].value == 0.2


def test_variables_of_the_chat_template_are_a_setting() -> None:
    thinks, plain = ({"data": {"chat_template_kwargs": {"enable_thinking": on}}} for on in (True, False))

    rows = {row.id: row for row in setting_rows([{}, thinks, plain, thinks], base=1)}
    row = rows["data.chat_template_kwargs"]

    assert row.is_different
    assert [setting.origin for setting in row.settings if setting] == ["default", "you", "you", "you"]
    assert not {r.id: r for r in setting_rows([thinks, thinks], base=0)}[row.id].is_different


def test_the_same_value_chosen_by_somebody_else_is_no_difference() -> None:
    default = parse_spec({}).knob("optimizer.learning_rate")
    rows = setting_rows([{}, {"knobs": {"optimizer.learning_rate": default}}], base=0)

    assert not any(row.is_different for row in rows)


def test_a_knob_that_does_not_apply_is_a_difference() -> None:
    rows = {row.id: row for row in setting_rows([{"algorithm": "grpo"}, {"algorithm": "sft"}], base=0)}

    assert rows["rollout.temperature"].settings[1] is None
    assert rows["rollout.temperature"].is_different
    assert rows["algorithm"].is_different


def test_a_spec_that_this_console_cannot_read_is_shown_as_it_was_stored() -> None:
    strange = {
        "version": 99,
        "name": "x",
        "knobs": {"old.knob": {"value": 3, "origin": "recipe"}},
        "model": {"id": "m"},
    }

    rows = {row.id: row for row in setting_rows([{}, strange], base=0)}

    setting = rows["old.knob"].settings[1]
    assert setting is not None
    assert (setting.value, setting.origin) == (3, "recipe")
    assert rows["model.id"].is_different


def test_short_names_leave_out_what_all_share() -> None:
    names = {"r-1": "qwen2.5-grpo-gsm8k-t05", "r-2": "qwen2.5-grpo-gsm8k-t06", "r-3": "qwen2.5-grpo-gsm8k-t02-long"}

    assert short_names(names) == {"r-1": "t05", "r-2": "t06", "r-3": "t02-long"}
    assert short_names({"r-1": "lr-1e-05-0.5", "r-2": "lr-1e-06-0.7"}) == {"r-1": "1e-05-0.5", "r-2": "1e-06-0.7"}
    assert short_names({"r-1": "demo", "r-2": "demo"}) == {"r-1": "r-1", "r-2": "r-2"}
    assert short_names({"r-1": "demo", "r-2": "demo-2"}) == {"r-1": "demo", "r-2": "demo-2"}
    assert short_names({"r-1": "grid · lr=1e-4", "r-2": "grid · lr=3e-4"}) == {"r-1": "lr=1e-4", "r-2": "lr=3e-4"}
    assert short_names({"r-1": "GRPO on words", "r-2": "GRPO on words, lr 1e-4"}) == {
        "r-1": "GRPO on words",
        "r-2": "GRPO on words, lr 1e-4",
    }
    some = {"r-1": "qwen2.5-1.5b-grpo-gsm8k-t05", "r-2": "qwen2.5-1.5b-grpo-gsm8k-t06", "r-3": "demo"}
    assert short_names(some) == {"r-1": "qwen2.5…t05", "r-2": "qwen2.5…t06", "r-3": "demo"}
    assert short_names(some | {"r-4": "llama-3.1-8b-grpo-t05", "r-5": "llama-3.1-8b-grpo-t06 with a long name"}) == {
        "r-1": "qwen2.5…t05",
        "r-2": "qwen2.5…t06",
        "r-3": "demo",
        "r-4": "llama-3.1-8b-grpo-t05",
        "r-5": "llama…t06 with a long name",
    }
    clones = {"r-1": some["r-1"], "r-2": some["r-1"] + "-2", "r-3": "demo"}
    assert short_names(clones) == {"r-1": "qwen2.5…t05", "r-2": "qwen2.5…t05-2", "r-3": "demo"}
    one = {"r-": "Demo: GRPO on word problems", "r-3": "Demo: GRPO on word problems 3"}
    assert list(short_names(one).values()) == ["Demo…problems", "Demo…problems 3"]
    clones = {f"r-{i}": f"Demo: GRPO on word problems{i and f' {i}'}" for i in ("", "2", "3")}
    assert list(short_names(clones).values()) == ["Demo…problems", "Demo…2", "Demo…3"]
    sweep = {f"r-{lr}-{how}": f"sweep · lr={lr}, loss_aggregation={how}" for lr in ("1e-6", "3e-6") for how in "ab"}
    assert list(short_names(sweep).values()) == ["1e-6, a", "1e-6, b", "3e-6, a", "3e-6, b"]
    assert short_names({"r-1": "alone here"}) == {"r-1": "alone here"}
    assert short_names({"r-1": "", "r-2": "--"}) == {"r-1": "r-1", "r-2": "--"}


def test_the_eleventh_color_is_the_first_one_dashed_and_equal_ones_never_look_the_same() -> None:
    assert line_dashes({"a": 3, "b": 13, "c": 3, "d": 4}) == {"a": 0, "b": 1, "c": 2, "d": 0}


def test_runs_are_grouped_by_the_knob_numbers_rising() -> None:
    def run(name: str, rate: object) -> Run:
        return Run(pk=name, spec={"knobs": {"optimizer.learning_rate": {"value": rate, "origin": "you"}}})

    swept = Run(pk="r-4", spec={}, study_values={"optimizer.learning_rate": 3e-6})
    runs = [run("r-1", 1e-5), run("r-2", 3e-6), run("r-3", 1e-5), swept, Run(pk="r-5", spec={})]

    groups = group_runs(runs, knob_id="optimizer.learning_rate")

    assert [(group.value, group.run_ids) for group in groups] == [
        (3e-6, ("r-2", "r-4")),
        (1e-5, ("r-1", "r-3")),
        (None, ("r-5",)),
    ]
    assert swept_knobs(runs) == ("optimizer.learning_rate",)
    assert swept_knobs(runs[:1]) == ()
