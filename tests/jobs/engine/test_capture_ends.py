"""Captures of runs that end, with their runner, as Ray jobs: two ways; `make proof-captures` goes through all ten."""

from pathlib import Path

import pytest

from tests.proofs.captures import SPEC, one_end, tools_of
from tests.ray_head import RayHead

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.django_db]

WARM = SPEC | {"profile": {"nsys_ready": "off"}}


@pytest.mark.slow("a run with its runner, a capture, and its import by a console")
@pytest.mark.parametrize("way", ["normal end", "ray_kill"])
def test_a_capture_survives_the_end(ray_head: RayHead, tmp_path: Path, way: str) -> None:
    torch_tool = tools_of(way)[0]  # in pieces where a process is ended at once

    state, wrong, problem = one_end(ray_head, tmp_path, way, 0, torch_tool, spec=WARM)

    assert (state, wrong, problem) == ("ready", "", "")
