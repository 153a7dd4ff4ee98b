"""Every shipped recipe fits the hardware that it names, whatever the lengths turn out to be."""

import pytest

from jobs.catalog.recipe import Recipe, recipes
from jobs.planner.estimate import estimate
from jobs.planner.fleet import fleet_of
from jobs.planner.read.spec import read_job
from jobs.planner.result import Estimate
from tests.jobs.planner.hardware import models_for

CASES = [(one, accelerator) for one in recipes().values() for accelerator in one.accelerators]


def _estimate(one: Recipe, accelerator: str) -> Estimate:
    devices = one.spec.num_workers
    per_node = min(devices, 8)
    fleet = fleet_of(accelerator, nodes=devices // per_node, devices_per_node=per_node, host_bytes=one.host_gb * 10**9)
    return estimate(read_job(one.spec, models_for(one.spec), fleet))


@pytest.mark.parametrize(("one", "accelerator"), CASES, ids=lambda each: getattr(each, "id", each))
def test_a_recipe_fits_its_own_hardware(one: Recipe, accelerator: str) -> None:
    found = _estimate(one, accelerator)

    assert found.verdict != "no", (found.pools, found.host_bytes, found.notes)


def test_a_recipe_that_names_devices_says_which_of_the_catalog_they_are() -> None:
    assert [one.id for one in recipes().values() if not one.accelerators and not one.spec.is_native] == []
    on_cpu = [one for one in recipes().values() if one.spec.is_native and one.spec.hardware.device != "cuda"]
    assert [one.id for one in on_cpu if one.accelerators] == []
