"""What leaves the device while a rollout engine has it, in the words that DeepSpeed is told."""

from typing import Any

import pytest

from jobs.engine.roles.state_moves import StateMoves


class ZeroTwo:
    """As much of a DeepSpeed engine in ZeRO-2 as is asked here."""

    def __init__(self) -> None:
        self.left: set[str] = set()

    def offload_states(self, *, include: list[Any], pin_memory: bool) -> None:
        self.left |= {state.name for state in include}


@pytest.mark.parametrize(
    ("is_on_host", "left"),
    [(False, {"hp_params", "lp_grads", "optim_states"}), (True, {"lp_grads"})],
)
def test_an_optimizer_that_is_on_the_host_is_not_among_what_comes_back_to_the_device(
    is_on_host: bool, left: set[str]
) -> None:
    engine = ZeroTwo()

    StateMoves(engine, stage=2, is_pinned=True, is_on_host=is_on_host).states_off()

    assert engine.left == left
