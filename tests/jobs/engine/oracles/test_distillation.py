"""The divergence from a teacher, held against TRL's and verl's own."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from jobs.engine.distillation import TopTokens, divergence, listed_scores, with_tail
from tests.jobs.engine.oracles.peers import TRL, VERL, peer

VOCABULARY = 23


def logits(seed: int) -> Tensor:
    """Return random logits of 2 x 5 positions, float64."""
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn((2, 5, VOCABULARY), generator=generator, dtype=torch.float64)


def ours(student_BLV: Tensor, teacher_BLV: Tensor, *, top: int, beta: float) -> Tensor:
    """Return the divergence over the teacher's likeliest tokens, float64 [B, L]."""
    teacher = teacher_BLV.log_softmax(dim=-1)
    values, ids = teacher.topk(top, dim=-1)
    return divergence(with_tail(student_BLV.log_softmax(dim=-1).gather(-1, ids)), with_tail(values), beta=beta)


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_with_the_whole_vocabulary_it_is_trls(beta: float) -> None:
    theirs = peer(TRL, "trl.experimental.gkd.gkd_trainer").cut("GKDTrainer", "generalized_jsd_loss")
    student, teacher = logits(1).requires_grad_(), logits(2)

    mine = ours(student, teacher, top=VOCABULARY, beta=beta).sum()
    expected = theirs.generalized_jsd_loss(student, teacher, beta=beta, reduction="sum")  # type: ignore[attr-defined]

    assert mine.item() == pytest.approx(expected.item(), rel=1e-6)
    (gradient,), (their_gradient,) = torch.autograd.grad(mine, student), torch.autograd.grad(expected, student)
    assert torch.allclose(gradient, their_gradient, atol=1e-6)


def test_over_the_top_k_the_forward_kl_is_verls_and_the_tail_that_verl_leaves_out() -> None:
    module = peer(VERL, "verl.trainer.distillation.fsdp.losses")
    student, teacher = logits(3).float(), logits(4).float()
    ids, values = listed_scores(teacher.flatten(0, 1), TopTokens(count=6, below=VOCABULARY))
    config = SimpleNamespace(distillation_loss=SimpleNamespace(topk=6, log_prob_min_clamp=None))
    told = module.compute_forward_kl_topk(
        student_logits=student.flatten(0, 1).unsqueeze(0),
        teacher_topk_log_probs=torch.nested.as_nested_tensor([values[:, :6]], layout=torch.jagged),
        teacher_topk_ids=torch.nested.as_nested_tensor([ids.long()], layout=torch.jagged),
        config=config,
        data_format="thd",
    )
    at_ids, overlaps = listed_scores(student.flatten(0, 1), ids)
    tails = [1 - scores.exp().sum(dim=-1) for scores in (values[:, :6], at_ids)]

    mine = divergence(with_tail(at_ids), values, beta=0.0)

    expected = told["distillation_losses"].flatten() + tails[0] * (tails[0] / tails[1]).log()
    assert torch.allclose(mine, expected, atol=1e-5)
    assert torch.allclose(overlaps, told["overlap_count"].flatten() / 6)
