"""A reward model: it learns to score the chosen response of a pair above the rejected one (Bradley and Terry).

Source: Training language models to follow instructions with human feedback, arXiv 2203.02155, equation 1; margins after
Llama 2, arXiv 2307.09288, section 3.2.2; centered scores after Eisenstein et al., arXiv 2312.09244,
equation 2.
"""

from torch import Tensor

from jobs.catalog.spec.runspec import RunSpec
from jobs.engine.algorithm import Algorithm, Counts, Loss
from jobs.engine.batch import Batch
from jobs.engine.preferences import pair_metrics, ranking_loss, sides


def score_loss(batch: Batch, scores_B: Tensor, spec: RunSpec, counts: Counts) -> Loss:
    """Return the shares of the mean loss of a pair; loss/pairs is without what centers the scores."""
    num_pairs = counts.num_sequences / 2
    chosen_P, rejected_P = sides(scores_B)
    margins_P = scores_B.new_full(chosen_P.shape, spec.float_knob("pairs.target_margin"))
    if batch.margins_B is not None:
        margins_P = margins_P + sides(batch.margins_B)[0]
    ranking = ranking_loss(chosen_P - rejected_P, margins_P).sum() / num_pairs
    shares = {name: values_P.sum() / num_pairs for name, values_P in pair_metrics(scores_B).items()}
    centering = spec.float_knob("pairs.center_coefficient") * (chosen_P + rejected_P).square().sum() / num_pairs
    return ranking + centering, shares | {"loss/pairs": ranking.detach()}


def scores(batch: Batch, scores_B: Tensor, spec: RunSpec) -> Tensor:
    """Return what each response is worth: what the model says of it, [B]."""
    del batch, spec
    return scores_B


PLUGIN = Algorithm(score_loss=score_loss, rewards=scores)
