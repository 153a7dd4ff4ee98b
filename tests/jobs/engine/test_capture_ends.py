"""Captures of runs that end in every way, with their runner, as Ray jobs: one case of each of `make proof-captures`."""

from pathlib import Path

import pytest

from profiling.launch_nsys import problem_of_install
from tests.proofs.captures import one_end, tools_of
from tests.ray_head import RayHead

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.django_db]

TORCH_RECORDS, NSYS_IS_WRITTEN, TORCH_IS_WRITTEN, NSYS_RECORDS = range(4)
"""torch in pieces where a process is ended at once."""


@pytest.mark.parametrize(
    ("way", "when"),
    [
        ("normal end", NSYS_RECORDS),
        ("cancel", TORCH_IS_WRITTEN),
        ("exit_actor", TORCH_RECORDS),
        ("ray_kill", TORCH_RECORDS),
        ("worker killed", TORCH_IS_WRITTEN),
        ("driver_exit", NSYS_IS_WRITTEN),
        ("driver_error", TORCH_RECORDS),
        ("driver killed", TORCH_RECORDS),
        ("runner killed", NSYS_RECORDS),
    ],
)
def test_a_capture_survives_the_end(ray_head: RayHead, tmp_path: Path, way: str, when: int) -> None:
    if when in (NSYS_IS_WRITTEN, NSYS_RECORDS) and (missing := problem_of_install()):
        pytest.skip(f"needs nsys: {missing}")
    state, wrong, problem = one_end(ray_head, tmp_path, way, when, tools_of(way)[when % 2])

    assert (state, wrong, problem) == ("ready", "", "")


def test_what_no_way_brings_back_is_said(ray_head: RayHead, tmp_path: Path) -> None:
    state, wrong, problem = one_end(ray_head, tmp_path, "ray_kill", TORCH_RECORDS, "torch")

    assert (state, wrong) == ("failed", "")
    assert "it was killed by `ray.kill`" in problem
