"""What differs between runs beside their knobs, read from what is recorded; then step times are not comparable."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jobs.comparison.condition_rows import condition_rows
from jobs.comparison.conditions import (
    DifferingCondition,
    Load,
    RunConditions,
    differing,
    load_of,
    of_group,
    without_recorded,
)
from jobs.comparison.efficiency import efficiency_of, with_efficiency
from jobs.comparison.environment import conditions_of
from jobs.comparison.read import SeriesPoints
from jobs.comparison.verdict import DEMO_SPREAD, verdict
from jobs.ingest.compaction import append_points
from jobs.models import Capture, Metric, Run, RunEvent
from jobs.telemetry.chunks import points
from tests.rows import NOW, make_run

STEPS = np.arange(1, 61)
NOISE = np.random.default_rng(3).normal(size=60)


def load(*, taken: float, own: float = 0.9) -> Load:
    return Load(own=own, others=taken, taken=taken, cores=2.0, n=50)


def column(y: Any) -> SeriesPoints:
    return SeriesPoints(x=STEPS, y=np.asarray(y, float))


@pytest.mark.parametrize(
    ("percent", "own", "others", "taken"),
    [
        (96.0, 1.8, 0.06, 0.06),
        (100.0, 1.0, 0.5, 0.5),
        (60.0, 0.2, 0.5, 0.0),  # there is room for the run: nothing is taken from it
        (90.0, 1.9, 0.0, 0.0),  # two clocks: never below nothing
    ],
)
def test_what_a_node_uses_beyond_the_run_is_others(percent: float, own: float, others: float, taken: float) -> None:
    found = load_of(percent=np.full(20, percent), cores=np.full(20, 2.0), own=np.full(20, own))

    assert found is not None
    assert found.others == pytest.approx(others)
    assert found.taken == pytest.approx(taken)


def test_few_readings_say_nothing_of_a_load() -> None:
    odd = np.array([np.nan] * 30 + [90.0] * 4)

    assert load_of(percent=odd, cores=np.full(34, 2.0), own=np.full(34, 1.0)) is None


QUIET = RunConditions(
    load=load(taken=0.02),
    devices=("8 × H100",),
    cpu=("EPYC",),
    node=("n-1",),
    driver=("550.54",),
    python=("3.12.3",),
    packages={"torch": "2.8.0", "vllm": "0.11.0"},
    code=("ab12",),
)


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ({}, []),
        ({"load": load(taken=0.04)}, []),
        ({"load": load(taken=0.4)}, ["load"]),
        ({"load": load(taken=0.08)}, ["load"]),
        ({"load": None}, []),
        ({"devices": ("8 × H200",)}, ["devices"]),
        ({"devices": ()}, []),  # not recorded: nobody knows
        ({"cpu": ("Xeon",)}, ["cpu"]),
        ({"node": ("n-2",)}, ["node"]),
        ({"node": ("n-1", "n-2")}, ["node"]),  # resumed elsewhere
        ({"driver": ("560.1",)}, ["driver"]),
        ({"python": ("3.11.9",)}, ["python"]),
        ({"packages": {"torch": "2.8.0", "vllm": "0.12.0", "flask": "3"}}, ["packages", "packages"]),
        ({"packages": {}}, []),
        ({"sources": ("verl 1a2b",)}, []),  # the base tells none
        ({"code": ("cd34",)}, ["code"]),
        ({"code": ("cd34",), "uses_own_code": False}, []),  # of another trainer the package counts
        ({"captures": ((1, 20),)}, ["captures"]),
        ({"captures": ((61, 70),)}, []),  # after the steps that are compared
    ],
)
def test_what_befell_a_run_makes_its_step_times_another_thing(changed: dict[str, Any], kinds: list[str]) -> None:
    found = differing(replace(QUIET, **changed), QUIET, window=(1, 60))

    assert [one.kind for one in found] == kinds
    assert all(one.is_decisive for one in found)
    assert [one.kind for one in differing(QUIET, replace(QUIET, **changed), window=(1, 60))] == kinds


def test_where_little_is_left_a_little_more_load_is_much() -> None:
    busy, busier = (replace(QUIET, load=load(taken=taken)) for taken in (0.77, 0.79))

    assert [one.kind for one in differing(busy, busier)] == ["load"]  # 0.23 of the node was left, and 0.21


def test_a_package_that_a_step_hangs_on_is_named_first() -> None:
    other = replace(QUIET, packages={"torch": "2.8.0", "vllm": "0.12.0", "flask": "3"})

    found = differing(other, QUIET)

    assert found[0] == DifferingCondition(kind="packages", name="vllm", run="0.12.0", base="0.11.0")
    assert found[1] == DifferingCondition(kind="packages", name="flask", run="3", base="")


def test_a_few_recorded_steps_are_left_out_and_named() -> None:
    (found,) = differing(replace(QUIET, captures=((20, 21),)), QUIET, window=(1, 60))
    slow = np.where((STEPS >= 20) & (STEPS <= 22), 50.0, 1.0)  # and the step in which they are written

    kept = without_recorded({"time/step_seconds": column(slow), "reward/mean": column(slow)}, [(20, 21)])

    assert (found.kind, found.run, found.base, found.is_decisive) == ("captures", "20–21", "", False)
    assert kept["time/step_seconds"].y.max() == 1.0
    assert len(kept["reward/mean"].y) == 60


def test_groups_may_have_been_on_other_nodes_but_not_on_other_devices() -> None:
    here, there = of_group([QUIET, replace(QUIET, node=("n-2",))]), of_group([replace(QUIET, node=("n-3",))])
    faster = of_group([QUIET, replace(QUIET, devices=("8 × H200",))])

    assert differing(here, there) == []
    assert [one.kind for one in differing(faster, here)] == ["devices"]


def test_a_busy_node_is_not_called_a_slow_run_and_the_outcome_still_counts() -> None:
    fast, slow = 1.0 + 0.02 * NOISE, 1.7 + 0.02 * NOISE[::-1]
    base = {"time/step_seconds": column(slow), "reward/mean": column(0.5 + 0.01 * NOISE)}
    run = {"time/step_seconds": column(fast), "reward/mean": column(0.5 + 0.01 * NOISE[::-1])}
    busy = differing(QUIET, replace(QUIET, load=load(taken=0.45)))

    assert verdict(run_id="r-2", run=run, base=base).badge == "better"
    found = verdict(run_id="r-2", run=run, base=base, conditions=busy)
    learns = run | {"reward/mean": column(0.8 + 0.01 * NOISE[::-1])}

    assert (found.badge, found.is_speed_comparable, found.reason) == ("not_comparable", False, None)
    assert verdict(run_id="r-2", run=learns, base=base, conditions=busy).badge == "better"


def test_the_phase_that_most_of_a_difference_comes_from_is_the_reason() -> None:
    def side(update: float) -> dict[str, SeriesPoints]:
        rollout, learned = 0.6 + 0.01 * NOISE, update * (1 + 0.01 * NOISE[::-1])
        return {
            "time/rollout_seconds": column(rollout),
            "time/update_seconds": column(learned),
            "time/step_seconds": column(rollout + learned + 0.05),
        }

    found = verdict(run_id="r-2", run=side(0.69), base=side(1.0)).reason

    assert found is not None
    assert (found.phase, round(found.ratio.value, 2)) == ("update", 0.69)
    assert verdict(run_id="r-2", run=side(1.0), base=side(1.0)).reason is None


def test_tokens_per_cpu_second_stay_where_other_programs_take_half() -> None:
    def side(*, seconds: float, own: float) -> Any:
        steps = {
            "time/step_seconds": column(seconds * (1 + 0.02 * NOISE)),
            "time/update_seconds": column(np.full(60, 0.5)),
            "throughput/update_tokens_per_second": column(np.full(60, 4000.0)),
        }
        readings = own * (1 + 0.02 * NOISE)
        conditions = RunConditions(load=load_of(percent=np.full(60, 100.0), cores=np.full(60, 2.0), own=readings))
        return efficiency_of(steps, conditions), efficiency_of(steps, replace(conditions, has_gpus=True))

    (quiet, with_gpus), (busy, _gpus) = side(seconds=1.0, own=2.0), side(seconds=2.0, own=1.0)
    (row,) = with_efficiency((), [quiet, busy], base=0, spread=DEMO_SPREAD)

    assert quiet.value == pytest.approx(1000, rel=0.02)  # 2,000 tokens in a second of two cores
    assert with_gpus is None
    assert row.cells[1].value == pytest.approx(quiet.value, rel=0.02)
    assert row.cells[1].word == "not_shown"


def environment(**changes: Any) -> dict[str, Any]:
    told = {"node": "n-1", "cpu": "EPYC", "devices": ["H100", "H100"], "driver": "550", "python": "3.12"}
    return {"environment": {**told, "packages": {"torch": "2.8.0"}, "code": "ab", **changes}}


@pytest.mark.django_db
def test_conditions_are_read_from_what_is_recorded() -> None:
    run, bare = make_run(step=60, num_steps=60), make_run(step=60, num_steps=60)
    tell(run, environment())
    tell(run, {"data": {"num_examples": 2000, "sha256": "0123456789abcdef"}})
    tree = {"name": "verl", "commit": "1a2b3c4d5e6f", "changes": "ffff0000ffff0000", "diff": "+lr = 2"}
    tell(run, environment(node="n-2", packages={"torch": "2.9.0"}, sources=[tree], image="verl:0.9"), attempt=2)
    Capture.objects.create(run=run, attempt=1, state="ready", meta={"first_step": 7, "num_steps": 2})
    Capture.objects.create(run=run, attempt=1, state="withdrawn", first_step=9)
    readings(run, percent=100.0, own=0.8)

    found = conditions_of([run, bare])

    assert found[bare.pk] == RunConditions()
    own = found[run.pk]
    assert (own.node, own.devices, own.packages) == (("n-1", "n-2"), ("2 × H100",), {"torch": "2.9.0"})
    assert (own.sources, own.image) == (("verl 1a2b3c4d5e + ffff0000ff",), ("verl:0.9",))
    assert (own.data, own.captures) == (("2,000 examples 0123456789",), ((7, 8),))
    assert own.load is not None
    assert own.load.taken == pytest.approx(0.6)
    rows = {row.id: row.is_different for row in condition_rows([own, replace(own, driver=("560",))], base=0)}
    assert [name for name, is_different in rows.items() if is_different] == ["driver"]
    assert {"data", "package.torch"} < set(rows)


def tell(run: Run, data: dict[str, Any], *, attempt: int = 1) -> None:
    RunEvent.objects.create(run=run, attempt=attempt, at=NOW, verb="note", text="", data=data)


def readings(run: Run, *, percent: float, own: float) -> None:
    """Store thirty readings of a node with two cores."""
    times = np.arange(1, 31) * 2_000_000_000
    for name, value in (("cpu_percent", percent), ("cpu_cores", 2.0), ("run_cpu_cores", own)):
        row = Metric.objects.create(run=run, kind="system", name=name, role="runner")
        append_points({row.pk: points(times, times, np.full(30, value))}, attempt=1, through=0)
