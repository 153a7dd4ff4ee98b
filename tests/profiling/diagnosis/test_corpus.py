"""Healthy recordings of every kind, on which no rule may cry wolf, and a planted fault for each rule of files.

More seeds and the faults of runs: `python -m tests.proofs.diagnosis corpus`, docs/proofs/diagnosis.md.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiling.diagnosis.finding import rules
from tests.profiling.corpus.corpus import HEALTHY, PLANTED
from tests.profiling.corpus.evidence import Bench, fires, found
from tests.profiling.corpus.public_recordings import HEALTHY_FILES, public

SEED = 21
OF_FILES = [key for key in PLANTED if rules()[key].reads_files]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("kind", HEALTHY)
def test_what_is_healthy_is_not_bad(kind: str, bench: Bench) -> None:
    firing = fires(found(HEALTHY[kind](random.Random(f"{kind} {SEED}"), bench)))
    assert "bad" not in firing.values(), firing
    assert len(firing) <= 1, firing


@pytest.mark.parametrize("name", HEALTHY_FILES)
def test_a_real_recording_that_is_healthy_is_not_bad(name: str, bench: Bench) -> None:
    firing = fires(found(public(name, bench)))
    assert "bad" not in firing.values(), firing
    assert len(firing) <= 1, firing


@pytest.mark.parametrize("key", OF_FILES)
def test_a_planted_fault_is_named(key: str, bench: Bench) -> None:
    make = PLANTED[key][-1]
    assert key in fires(found(make(random.Random(f"{key} {SEED}"), bench)))


def test_every_rule_has_a_fault() -> None:
    assert set(PLANTED) == set(rules())
