"""Training data from several sources: shares, the same order by seed, and going on where a run stood."""

from collections import Counter

import pytest

from jobs.engine.data.examples import Example, in_order
from jobs.engine.data.sources import ExamplesInMemory, TrainingData

SEED = 7


def examples(name: str, count: int) -> list[Example]:
    return [
        Example(row=i, prompt=f"{name}{i}", answer="", segments=(), tokens=(i,), is_trained=(False,))
        for i in range(count)
    ]


def mixed(weights: tuple[float, ...] = (3.0, 1.0), seed: int = SEED) -> TrainingData:
    sources = {name: ExamplesInMemory(examples(name, 20), seed=seed) for name in "ab"[: len(weights)]}
    return TrainingData(sources, weights=weights, seed=seed)


def taken(data: TrainingData, begin: int, count: int) -> list[str]:
    return [e.prompt for e in data.take(begin, count)]


def test_one_source_in_memory_gives_the_order_that_runs_had_before() -> None:
    order = in_order(20, seed=SEED)

    assert taken(mixed((1.0,)), 0, 50) == [f"a{next(order)}" for _ in range(50)]


def test_sources_come_in_proportion_to_their_weights() -> None:
    data = mixed()

    counts = Counter(prompt[0] for prompt in taken(data, 0, 4000))

    assert counts["a"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert data.metrics["data/a/share"] == counts["a"] / 4000
    assert data.metrics["data/a/share"] + data.metrics["data/b/share"] == 1.0
    assert data.metrics["train/epoch"] == counts["a"] / 20


def test_the_order_follows_from_the_seed() -> None:
    assert taken(mixed(), 0, 100) == taken(mixed(), 0, 100)
    assert taken(mixed(), 0, 100) != taken(mixed(seed=8), 0, 100)


@pytest.mark.parametrize("stop", [0, 1, 17, 64])
def test_a_run_goes_on_in_the_middle_with_the_very_next_examples(stop: int) -> None:
    whole, first, second = mixed(), mixed(), mixed()
    wanted = taken(whole, 0, 100)

    begun = taken(first, 0, stop)
    second.seek(first.positions)

    assert begun + taken(second, stop, 100 - stop) == wanted


def test_one_source_tells_no_share() -> None:
    data = mixed((1.0,))
    data.take(0, 5)

    assert data.metrics == {"train/epoch": 0.25}
