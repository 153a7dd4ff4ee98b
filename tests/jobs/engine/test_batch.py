"""Batches, shares and seeds."""

import pytest
import torch

from jobs.engine.batch import make_batch, share_out, stable_seed
from jobs.engine.rollouts.evaluation import even_parts


def three() -> list[tuple[list[int], list[bool]]]:
    return [([5, 6, 7], [False, True, True]), ([8, 9], [True, True]), ([1, 2, 3, 4], [False, False, False, True])]


def test_a_batch_is_padded_on_the_right_and_never_counts_the_first_token() -> None:
    batch = make_batch(three(), pad_id=0)

    assert batch.tokens_BL.tolist() == [[5, 6, 7, 0], [8, 9, 0, 0], [1, 2, 3, 4]]
    assert batch.mask_BL.tolist() == [
        [False, True, True, False],
        [False, True, False, False],
        [False, False, False, True],
    ]
    assert (batch.num_sequences, batch.num_tokens, batch.num_trained_tokens) == (3, 9, 4)


def test_rows_are_cut_to_the_longest_of_them() -> None:
    part = make_batch(three(), pad_id=0).rows(torch.tensor([1, 0]))

    assert part.tokens_BL.tolist() == [[8, 9, 0], [5, 6, 7]]
    assert part.lengths_B.tolist() == [2, 3]


@pytest.mark.parametrize(("updates", "ranks"), [(1, 1), (1, 2), (4, 2), (2, 4)])
def test_every_sequence_is_in_exactly_one_share(updates: int, ranks: int) -> None:
    shares = share_out(32, num_updates=updates, num_ranks=ranks, seed="a")

    assert sorted(i for rank in shares for part in rank for i in part.tolist()) == list(range(32))
    assert {len(part) for rank in shares for part in rank} == {32 // updates // ranks}


def test_shares_depend_on_the_seed_alone() -> None:
    once, again, other = (share_out(16, num_updates=1, num_ranks=2, seed=s) for s in ("0/1", "0/1", "0/2"))

    assert torch.equal(once[0][0], again[0][0])
    assert not torch.equal(once[0][0], other[0][0])


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="shared out evenly"):
        share_out(9, num_updates=1, num_ranks=2, seed="")


def test_seeds_are_the_same_on_every_machine_and_differ_by_each_part() -> None:
    assert stable_seed(0, 1, 2, 3) == 7019356480472336628
    assert len({stable_seed(a, b, c, d) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)}) == 16


def test_even_parts_give_every_rank_as_many_sequences_and_count_none_twice() -> None:
    batch = make_batch(three(), pad_id=0)

    parts = even_parts(batch, 2)

    assert [p.num_sequences for p in parts] == [2, 2]
    assert sum(p.num_trained_tokens for p in parts) == batch.num_trained_tokens


def test_more_ranks_than_sequences_still_get_equal_parts() -> None:
    parts = even_parts(make_batch(three(), pad_id=0), 4)

    assert [p.num_sequences for p in parts] == [1, 1, 1, 1]
    assert [p.num_trained_tokens for p in parts] == [2, 1, 1, 0]
