"""Real processes of a worker group are killed at moments when nobody waits for them: who is blamed."""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

SIGNALLED = "it was killed, or crashed in native code (Ray saw its connection end)"


@pytest.fixture(scope="module")
def blamed(start_engine: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Who is blamed, by case."""
    run_dir = tmp_path_factory.mktemp("killed") / "a1"
    ended = start_engine(run_dir, {"algorithm": "sft"}, program=("tests.jobs.engine.killed",)).wait()
    assert ended.code == 0, ended.output
    found: dict[str, dict[str, Any]] = json.loads(Path(run_dir / "found.json").read_text())
    return found


def test_who_is_killed_in_its_constructor_is_named(blamed: dict[str, dict[str, Any]]) -> None:
    found = blamed["in_its_constructor"]

    assert (found["role"], found["rank"], found["how"]) == ("policy", 0, "died")
    assert found["text"] == SIGNALLED


def test_who_is_killed_between_two_calls_is_named_when_only_its_peer_is_asked(
    blamed: dict[str, dict[str, Any]],
) -> None:
    found = blamed["between_two_calls"]

    assert (found["role"], found["rank"], found["how"], found["step"]) == ("policy", 1, "died", 5)
    assert found["text"] == SIGNALLED


def test_a_rank_killed_while_it_draws_is_named_with_the_phase(blamed: dict[str, dict[str, Any]]) -> None:
    found = blamed["in_a_rollout"]

    assert found["cause"] == f"The process of policy rank 1 died at step 3 (rollout): {SIGNALLED}"


def test_of_two_who_are_killed_the_first_is_named(blamed: dict[str, dict[str, Any]]) -> None:
    found = blamed["one_after_the_other"]

    assert (found["rank"], found["how"]) == (1, "died")
