"""Learning from a teacher: the divergence by hand, what a top k means, and what the output layer says of it."""

import itertools
import math
from typing import Any

import pytest
import torch

import jobs.engine.roles.head as head
from jobs.engine.distillation import TopTokens, divergence, listed_scores, with_tail
from jobs.engine.roles.language_model import load_model
from tests.jobs.engine.roles.test_head import batch_of, gradients, model_of

STUDENT = with_tail(torch.tensor([[[0.5, 0.2]]], dtype=torch.float64).log())  # and 0.3 for all other tokens
TEACHER = with_tail(torch.tensor([[[0.6, 0.3]]], dtype=torch.float64).log())  # and 0.1


@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        (0.0, 0.6 * math.log(0.6 / 0.5) + 0.3 * math.log(0.3 / 0.2) + 0.1 * math.log(0.1 / 0.3)),
        (1.0, 0.5 * math.log(0.5 / 0.6) + 0.2 * math.log(0.2 / 0.3) + 0.3 * math.log(0.3 / 0.1)),
        (
            0.5,
            0.5 * (0.6 * math.log(0.6 / 0.55) + 0.3 * math.log(0.3 / 0.25) + 0.1 * math.log(0.1 / 0.2))
            + 0.5 * (0.5 * math.log(0.5 / 0.55) + 0.2 * math.log(0.2 / 0.25) + 0.3 * math.log(0.3 / 0.2)),
        ),
    ],
)
def test_the_divergence_by_hand(beta: float, expected: float) -> None:
    assert float(divergence(STUDENT, TEACHER, beta=beta)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_equal_models_are_no_way_apart_and_nothing_pulls(beta: float) -> None:
    apart = divergence(STUDENT, STUDENT, beta=beta)
    # Of logits: a gradient of log-probabilities that is the same for each outcome moves nothing.
    logits = torch.tensor([[[0.4, -0.3, 1.2, 0.0]]], dtype=torch.float64, requires_grad=True)
    listed = with_tail(logits.log_softmax(dim=-1)[..., :2])
    (pull,) = torch.autograd.grad(divergence(listed, listed.detach(), beta=beta).sum(), logits)

    assert float(apart) == pytest.approx(0.0, abs=1e-12)
    assert torch.allclose(pull, torch.zeros_like(pull), atol=1e-12)


def test_a_longer_list_never_tells_less_and_the_whole_vocabulary_tells_all() -> None:
    generator = torch.Generator().manual_seed(5)
    student, teacher = (
        torch.randn((1, 6, 17), generator=generator, dtype=torch.float64).log_softmax(dim=-1) for _ in range(2)
    )
    ids = teacher.argsort(dim=-1, descending=True)

    told = [
        float(divergence(*(with_tail(one.gather(-1, ids[..., :k])) for one in (student, teacher)), beta=1.0).sum())
        for k in range(1, 18)
    ]

    assert all(longer >= shorter - 1e-9 for shorter, longer in itertools.pairwise(told))
    assert told[0] < told[8] < told[-1]
    assert told[-1] == pytest.approx(float((student.exp() * (student - teacher)).sum()), abs=1e-9)


def test_a_tail_that_is_only_rounding_has_a_finite_logarithm_and_no_gradient() -> None:
    listed = torch.randn((1, 3, 9), generator=torch.Generator().manual_seed(6)).log_softmax(dim=-1).requires_grad_()

    tail = with_tail(listed.detach())[..., -1]
    (pull,) = torch.autograd.grad(
        divergence(with_tail(listed), with_tail(listed.detach().flip(-1)), beta=1.0).sum(), listed
    )

    assert torch.isfinite(tail).all()
    assert float(tail.max()) < -14
    assert torch.isfinite(pull).all()


def test_a_beta_that_is_no_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.5"):
        divergence(STUDENT, TEACHER, beta=1.5)


def test_a_teacher_lists_its_likeliest_tokens_of_those_that_the_student_has() -> None:
    logits = torch.tensor([[1.0, 5.0, 2.0, 4.0, 9.0]])

    ids, logprobs = listed_scores(logits, TopTokens(count=2, below=4))
    every, _ = listed_scores(logits, TopTokens(count=50, below=4))

    assert ids.tolist() == [[1, 3]]
    assert torch.allclose(logprobs[:, :2], logits.log_softmax(dim=-1)[:, [1, 3]])
    assert float(logprobs[0, 2].exp()) == pytest.approx(float(logits.softmax(dim=-1)[0, [0, 2, 4]].sum()))
    assert sorted(every[0].tolist()) == [0, 1, 2, 3]


def test_the_tail_of_a_sure_teacher_has_no_rounding_of_1() -> None:
    """1 less the listed shares knows nothing of a tail of 3e-7 but its size."""
    logits = torch.full((1, 400), -21.0)
    logits[0, 7], logits[0, 9] = 0.0, -3.0

    _, logprobs = listed_scores(logits, TopTokens(count=2, below=400))
    _, all_listed = listed_scores(logits, TopTokens(count=400, below=400))

    exact = logits.double().softmax(dim=-1)
    wanted = float(exact.sum() - exact[0, 7] - exact[0, 9])
    assert float(logprobs[0, 2].exp()) == pytest.approx(wanted, rel=1e-5)
    assert float(all_listed[0, -1]) == pytest.approx(math.log(torch.finfo(torch.float32).eps))


def test_overlap_is_the_share_of_the_list_that_is_likeliest_here() -> None:
    logits = torch.tensor([[9.0, 8.0, 1.0, 0.0], [9.0, 8.0, 1.0, 0.0]])

    _, overlaps = listed_scores(logits, torch.tensor([[1, 0], [0, 3]]))

    assert overlaps.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("family", ["qwen2", "gemma2"])
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_the_output_layer_in_pieces_says_what_whole_logits_say(
    family: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", chunk * 61)
    batch, model = batch_of([9, 4, 12]), model_of(family, is_tied=True)
    logits_BLV = model(input_ids=batch.tokens_BL, use_cache=False).logits.roll(1, dims=1)
    whole_BLV = (logits_BLV / 0.7).log_softmax(dim=-1)
    ids_BLK = torch.randint(0, 61, (*batch.tokens_BL.shape, 5), generator=torch.Generator().manual_seed(8))
    expected_BLK = torch.where(batch.mask_BL.unsqueeze(-1), whole_BLV.gather(-1, ids_BLK), 0.0)
    pulls = gradients(model, expected_BLK.sum(dim=-1), batch.mask_BL)

    head.score_counted_tokens(model)
    _, _, top_ids_BLK, top_BLK = model(batch.tokens_BL, batch.mask_BL, 0.7, None, TopTokens(count=5, below=61))
    _, _, listed_BLK, overlaps_BL = model(batch.tokens_BL, batch.mask_BL, 0.7, None, ids_BLK)

    shares_BL1 = 1 - top_BLK[..., :5].exp().sum(dim=-1, keepdim=True)
    assert torch.allclose(top_BLK[..., 5:].exp()[batch.mask_BL], shares_BL1[batch.mask_BL], atol=1e-5)
    top_BLK = top_BLK[..., :5]
    assert torch.allclose(top_BLK[batch.mask_BL], whole_BLV.topk(5, dim=-1).values[batch.mask_BL], atol=1e-5)
    assert torch.allclose(top_BLK[batch.mask_BL], whole_BLV.gather(-1, top_ids_BLK.long())[batch.mask_BL], atol=1e-5)
    assert torch.allclose(listed_BLK, expected_BLK, atol=1e-5)
    assert not overlaps_BL.requires_grad
    for mine, theirs in zip(gradients(model, listed_BLK.sum(dim=-1), batch.mask_BL), pulls, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_packed_sequences_say_what_padded_ones_say(tmp_path: Any) -> None:
    model_of("qwen2", is_tied=False).save_pretrained(tmp_path)
    batch = batch_of([9, 4, 12])
    padded, packed = (load_model(tmp_path, precision="float32", is_packed=is_packed) for is_packed in (False, True))
    assert packed.is_packed
    ids_BLK = torch.randint(0, 61, (*batch.tokens_BL.shape, 3), generator=torch.Generator().manual_seed(8))

    for asked in (TopTokens(count=3, below=61), ids_BLK):
        one, other = (
            model(batch.tokens_BL, batch.mask_BL, 1.0, batch.lengths_B, asked)[2:] for model in (padded, packed)
        )
        for mine, theirs in zip(one, other, strict=True):
            assert torch.allclose(mine.float(), theirs.float(), atol=1e-5)
