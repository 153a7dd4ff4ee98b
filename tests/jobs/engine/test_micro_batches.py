"""Micro-batches by number and by tokens, and sequences dealt to ranks."""

from itertools import chain

import pytest
import torch

from jobs.engine.batch import make_batch, share_out
from jobs.engine.micro_batches import Cut, even_out
from tests.jobs.engine.policy_batches import spec_of

LENGTHS = torch.tensor([2, 9, 4, 9, 3, 1, 7, 5])


def lengths_of(cut: Cut, at_least: int = 1) -> list[list[int]]:
    return [LENGTHS[rows].tolist() for rows in cut.rows(LENGTHS, at_least=at_least)]


def test_micro_batches_hold_sequences_of_like_length_and_each_once() -> None:
    batch = make_batch([([i + 1] * n, [True] * n) for i, n in enumerate((2, 9, 4, 9, 3))], pad_id=0)

    micros = Cut(size=2).split(batch)

    assert [micro.lengths_B.tolist() for micro in micros] == [[9, 9], [4, 3], [2]]
    assert [micro.tokens_BL.shape for micro in micros] == [(2, 9), (2, 4), (1, 2)]
    assert sorted(int(row[0]) for micro in micros for row in micro.tokens_BL) == [1, 2, 3, 4, 5]
    assert sum(micro.num_trained_tokens for micro in micros) == batch.num_trained_tokens


def test_a_budget_holds_with_padding_and_without() -> None:
    assert lengths_of(Cut(size=1, max_tokens=20)) == [[9, 9], [7, 5], [4, 3, 2, 1]]  # 18, 14 and 16 with padding
    assert lengths_of(Cut(size=1, max_tokens=20, is_packed=True)) == [[9, 9], [7, 5, 4, 3], [2, 1]]


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_sequence_beyond_the_budget_comes_alone(is_packed: bool) -> None:
    assert lengths_of(Cut(size=8, max_tokens=8, is_packed=is_packed))[:3] == [[9], [9], [7]]
    assert lengths_of(Cut(size=8, max_tokens=1, is_packed=is_packed)) == [[n] for n in (9, 9, 7, 5, 4, 3, 2, 1)]


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("wanted", range(1, 12))
def test_a_rank_takes_as_many_micro_batches_as_another_needs(is_packed: bool, wanted: int) -> None:
    cut = Cut(size=1, max_tokens=20, is_packed=is_packed)

    found = cut.rows(LENGTHS, at_least=wanted)

    assert len(found) == min(max(wanted, 3), len(LENGTHS))
    assert sorted(chain.from_iterable(rows.tolist() for rows in found)) == list(range(len(LENGTHS)))
    assert all(len(rows) for rows in found)
    sizes = [len(rows) * int(LENGTHS[rows].max()) for rows in found] if not is_packed else []
    assert all(size <= 20 for size in sizes)


def test_one_that_is_missing_is_made_by_halving_the_one_with_most_tokens() -> None:
    assert lengths_of(Cut(size=1, max_tokens=40, is_packed=True)) == [[9, 9, 7, 5, 4, 3, 2, 1]]
    assert lengths_of(Cut(size=1, max_tokens=40, is_packed=True), 2) == [[9, 9, 7], [5, 4, 3, 2, 1]]
    assert lengths_of(Cut(size=1, max_tokens=40, is_packed=True), 3) == [[9, 9], [7], [5, 4, 3, 2, 1]]


def test_knobs_say_how_to_cut() -> None:
    by_number = spec_of("grpo", train__micro_batch_size=3, train__max_tokens_per_gpu=99, train__packing=False)
    by_tokens = spec_of("sft", train__dynamic_batch=True, train__max_tokens_per_gpu=99, train__packing=True)

    assert Cut.of(by_number) == Cut(size=3)
    assert Cut.of(by_tokens) == Cut(size=32, max_tokens=99, is_packed=True)


@pytest.mark.parametrize(("updates", "ranks"), [(1, 1), (1, 2), (4, 2), (2, 4)])
def test_ranks_get_as_many_sequences_of_the_same_updates_and_about_as_many_tokens(updates: int, ranks: int) -> None:
    lengths_B = torch.randint(16, 257, (32,), generator=torch.Generator().manual_seed(1))
    drawn = share_out(32, num_updates=updates, num_ranks=ranks, seed="a")

    dealt = even_out(drawn, lengths_B)

    for u in range(updates):
        before, after = ([rank[u] for rank in shares] for shares in (drawn, dealt))
        assert sorted(torch.cat(before).tolist()) == sorted(torch.cat(after).tolist())
        assert [len(part) for part in after] == [32 // updates // ranks] * ranks
        tokens = [[int(lengths_B[part].sum()) for part in parts] for parts in (before, after)]
        assert max(tokens[1]) <= max(tokens[0])
        assert ranks == 1 or max(tokens[1]) - min(tokens[1]) < max(tokens[0]) - min(tokens[0])


def test_one_rank_keeps_its_share_as_it_was_drawn() -> None:
    drawn = share_out(8, num_updates=2, num_ranks=1, seed="a")

    assert all(torch.equal(a, b) for a, b in zip(even_out(drawn, LENGTHS)[0], drawn[0], strict=True))


@pytest.mark.parametrize(
    "cut",
    [
        Cut(size=2, unit=2),
        Cut(size=1, unit=2),
        Cut(size=1, max_tokens=18, unit=2),
        Cut(size=1, max_tokens=16, unit=2, is_packed=True),
    ],
)
@pytest.mark.parametrize("at_least", [1, 3])
def test_both_responses_of_a_pair_stay_together_in_order(cut: Cut, at_least: int) -> None:
    micros = [rows.tolist() for rows in cut.rows(LENGTHS, at_least=at_least)]

    assert sorted(chain(*micros)) == list(range(8))
    for rows in micros:
        assert [(first % 2, second - first) for first, second in zip(rows[0::2], rows[1::2], strict=True)] == [
            (0, 1)
        ] * (len(rows) // 2)
    if cut.max_tokens is not None:
        lengths = [LENGTHS[torch.tensor(rows)].tolist() for rows in micros]
        tokens = [sum(n) if cut.is_packed else max(n) * len(n) for n in lengths]
        assert all(held <= cut.max_tokens or len(n) == 2 for held, n in zip(tokens, lengths, strict=True))
        assert at_least == 1 or len(micros) >= 3


def test_the_knobs_of_a_run_from_pairs_count_pairs() -> None:
    assert Cut.of(spec_of("dpo", train__micro_batch_size=3)).unit == 2
    assert Cut.of(spec_of("sft")).unit == 1
