"""The peers' functions are their own, and what is not installed does not pretend to be."""

import sys

import pytest

from tests.jobs.engine.oracles.peers import OPENRLHF, TRL, VERL, Absent, peer


def test_functions_come_out_of_the_files_of_each_peer() -> None:
    found = (
        peer(VERL, "verl.trainer.ppo.core_algos").compute_rloo_outcome_advantage,
        peer(VERL, "verl.trainer.ppo.core_algos").ActorConfig,
        peer(OPENRLHF, "openrlhf.models.loss").PolicyLoss,
        peer(OPENRLHF, "openrlhf.trainer.ppo_utils.kl_controller").AdaptiveKLController,
        peer(TRL, "trl.trainer.grpo_trainer").cut("GRPOTrainer", "_compute_loss")._compute_loss,
    )
    assert [one.__module__.split(":")[0] for one in found] == [VERL, VERL, OPENRLHF, OPENRLHF, TRL]
    assert not {"verl", "openrlhf", "trl", "tensordict"} & set(sys.modules)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no compute_nothing"):
        _ = peer(VERL, "verl.trainer.ppo.core_algos").compute_nothing
    with pytest.raises(ValueError, match="has not got all of _compute_nothing"):
        peer(TRL, "trl.trainer.grpo_trainer").cut("GRPOTrainer", "_compute_nothing")
    with pytest.raises(ImportError, match="tensordict is called"):
        Absent("tensordict")()
