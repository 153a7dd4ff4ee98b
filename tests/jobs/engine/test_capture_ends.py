"""Captures of runs that end, with their runner, as Ray jobs: two ways; `make proof-captures` goes through all ten."""

from pathlib import Path

import pytest

from profiling.launch_nsys import problem_of_install
from tests.proofs.captures import one_end, tools_of
from tests.ray_head import RayHead

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.django_db]

TORCH_RECORDS, NSYS_RECORDS = 0, 3
"""torch in pieces where a process is ended at once."""


@pytest.mark.parametrize(("way", "when"), [("normal end", NSYS_RECORDS), ("ray_kill", TORCH_RECORDS)])
def test_a_capture_survives_the_end(ray_head: RayHead, tmp_path: Path, way: str, when: int) -> None:
    if when == NSYS_RECORDS and (missing := problem_of_install()):
        pytest.skip(f"needs nsys: {missing}")
    state, wrong, problem = one_end(ray_head, tmp_path, way, when, tools_of(way)[when % 2])

    assert (state, wrong, problem) == ("ready", "", "")
