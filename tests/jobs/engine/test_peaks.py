"""The engine's own peak memory on CPU against the plan of the same spec; `make bench-planner` has 64 more."""

from pathlib import Path
from typing import Any

import pytest

from profiling.process_memory import ProcessFiles
from tests.jobs.engine.peak_cases import GOAL, SHORT, compare, write_cases
from tests.ray_head import RayHead
from tests.warm_workers.workers import cold_workers

pytestmark = pytest.mark.engine


@pytest.mark.proof
@pytest.mark.slow("workers that start cold, as memory is measured")
@pytest.mark.skipif(ProcessFiles().peak_bytes() < 0, reason="this kernel sets no high-water mark back")
def test_the_peak_of_each_phase_is_within_15_percent_of_the_plan(
    start_engine: Any, ray_head: RayHead, tmp_path: Path
) -> None:
    write_cases(SHORT, tmp_path)

    with cold_workers(ray_head.environ):
        ended = start_engine(tmp_path, {}, program=("tests.jobs.engine.peaks",)).wait()

    assert ended.code == 0, ended.output
    found = compare(tmp_path)
    assert {each.case for each in found} == {case.name for case in SHORT}
    assert all(abs(each.error) <= GOAL for each in found), found
