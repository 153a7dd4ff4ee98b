"""The proof of verdicts in short: 40 pairs of each kind, made of the same recorded runs."""

import pytest

from tests.proofs.verdict.judge import judge
from tests.proofs.verdict.report import MOST_FALSE, Found


@pytest.fixture(scope="module")
def found() -> Found:
    return judge(num_pairs=40)


def test_few_identical_pairs_are_told_apart(found: Found) -> None:
    for label, pairs in found.identical.items():
        assert sum(told.is_claimed for told in pairs) <= MOST_FALSE * len(pairs), label


def test_large_differences_are_found_and_more_of_them_than_of_small_ones(found: Found) -> None:
    shares = [sum(told.is_speed_claimed for told in pairs) / len(pairs) for _planted, pairs in found.power.items()]

    assert shares == sorted(shares)
    assert shares[-1] >= 0.8


def test_no_busy_node_is_taken_for_a_slow_run(found: Found) -> None:
    assert found.beside
    assert any(before.is_speed_claimed for _one, _other, before, _told in found.beside)
    for one, other, _before, told in found.beside:
        assert not told.is_speed_claimed, (one.name, other.name)
