"""A capture of a run whose worker is killed, with its runner, as a Ray job; other ends are in `make proof-captures`."""

from pathlib import Path

import pytest

from tests.proofs.captures import SPEC, one_end, tools_of
from tests.ray_head import RayHead

pytestmark = [pytest.mark.engine, pytest.mark.ray, pytest.mark.django_db]

WARM = SPEC | {"profile": {"nsys_ready": "off"}}


@pytest.mark.proof
@pytest.mark.slow("a run with its runner, a capture, and its import by a console")
def test_a_capture_survives_the_end_of_its_worker(ray_head: RayHead, tmp_path: Path) -> None:
    way = "ray_kill"
    in_pieces = tools_of(way)[0]  # as the process is ended at once

    state, wrong, problem = one_end(ray_head, tmp_path, way, 0, in_pieces, spec=WARM)

    assert (state, wrong, problem) == ("ready", "", "")
